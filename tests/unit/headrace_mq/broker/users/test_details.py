"""What the audit says of a request, and that it never says a secret."""

from headrace_mq.access.needs import NEEDS
from headrace_mq.broker.users.details import DETAILED, detail_of
from headrace_mq.protocol.access import Credentials, SetUser
from headrace_mq.protocol.administration import FreezeQueues, ResetOffsets
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.limits import Rates, SetQuota

# Codes that change something and have no more to say than their resource, or whose handlers say it.
BRIEF = {
    RequestCode.DESCRIBE_TOPICS, RequestCode.FOLLOW, RequestCode.LIST_USERS, RequestCode.LIST_RULES,
    RequestCode.EXPLAIN_ACCESS, RequestCode.SET_USER, RequestCode.SET_PASSWORD, RequestCode.SET_RULE,
    RequestCode.REGISTER,
}  # fmt: skip
CHANGING = ("create", "update", "delete", "administer")


def told(code: RequestCode, body: object) -> str | None:
    return detail_of(code, memoryview(encode(body)))  # type: ignore[arg-type]  # any body


def test_the_table_has_each_request_that_changes_something() -> None:
    changing = {code for code, need in NEEDS.items() if any(word in need.text for word in CHANGING)}
    assert changing - BRIEF == set(DETAILED)


def test_values_stand_by_their_names_without_what_the_resource_says() -> None:
    freeze = FreezeQueues("orders", [1, 2], writing=True, reading=False, frozen=False)
    assert told(RequestCode.FREEZE_QUEUES, freeze) == (
        "queues=[1, 2] writing=True reading=False frozen=False"
    )
    quota = told(RequestCode.SET_QUOTA, SetQuota("client", "10.0.0.1", Rates(1, 2, 3, 4)))
    assert quota is not None
    assert quota.startswith("kind=client name=10.0.0.1 ")
    assert quota.endswith("remove=False")


def test_a_dry_run_is_no_change() -> None:
    assert told(RequestCode.RESET_OFFSETS, ResetOffsets("g", "latest", dry_run=True)) is None


def test_credentials_are_never_read() -> None:
    body = SetUser("add", "ann", [Credentials(b"s" * 32, b"k" * 32, b"v" * 32, 4_096)])
    assert told(RequestCode.SET_USER, body) == ""
