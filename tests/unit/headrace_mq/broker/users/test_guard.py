"""No request passes that its user may not make, and the audit has who wanted it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq._runtime.clock import SystemClock
from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.access.needs import NEEDS
from headrace_mq.access.resources import JOURNAL_TOPICS, Action, Ask, ResourceKind, owned
from headrace_mq.broker.dispatcher import HANDLERS
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.users import guard as module
from headrace_mq.broker.users.audit import Audit, AuditLimits
from headrace_mq.broker.users.guard import Guard
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import (
    InvalidArgument,
    LoginFailed,
    MalformedRequest,
    NotPermitted,
    StoreFull,
    TopicInUse,
)
from headrace_mq.protocol.access import RuleEntry, SetUser
from headrace_mq.protocol.administration import DeleteQueues, ResetOffsets
from headrace_mq.protocol.bodies import CreateTopic, DescribeTopics, GetOffsets, QueueRanges, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.store.message_store import Appended

DELETION = (RequestCode.DELETE_QUEUES, 7)


class Client:
    """What the guard sees of a connection."""

    peer = "10.0.0.1:4000"
    host = "10.0.0.1"
    principal = "CN=ann"

    def __init__(self, user: str) -> None:
        self.user = user


class NoStore:
    """Takes the entries of the audit and keeps none."""

    def range(self, _queue: object) -> tuple[int, int]:
        return 0, 0

    def append(self, _batch: object, *, retention: str) -> Appended:
        return Appended(0, duplicate=False)


class Gate:
    """A guard with an administrator and a user."""

    def __init__(self, folder: Path) -> None:
        self.book = UserBook(users_file(folder))
        self.book.load()
        self.book.change(SetUser("add", "root", admin=1))
        self.book.change(SetUser("add", "ann"))
        limits = AuditLimits(
            entries_max=10, per_second_max=10, refusals_per_minute_max=10, retention="compact"
        )
        store: Any = NoStore()
        self.audit = Audit(store, SystemClock(), limits)
        self.guard = Guard(self.book, lambda topic: 4 * (topic == "orders"), self.audit)

    def allow(self, action: str, resource: str, *, allows: bool = True) -> None:
        self.book.set_rule(RuleEntry("ann", action, resource, allows), remove=False)

    def check(self, user: str, code: RequestCode, body: Any = b"") -> None:
        data = body if isinstance(body, bytes) else encode(body)
        client: Any = Client(user)
        self.guard.check(client, Frame(code, 1, 0, 1, memoryview(data)))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.mark.parametrize("code", sorted(HANDLERS), ids=lambda code: RequestCode(code).name)
def test_no_request_is_served_before_the_login_but_the_login(gate: Gate, code: int) -> None:
    if NEEDS[code].before_login:
        gate.check("", RequestCode(code))
    else:
        with pytest.raises(LoginFailed, match="HEADRACE_USER"):
            gate.check("", RequestCode(code))


@pytest.mark.parametrize("code", sorted(HANDLERS), ids=lambda code: RequestCode(code).name)
def test_a_user_without_rules_may_do_nothing_that_needs_one(gate: Gate, code: int) -> None:
    need = NEEDS[code]
    if need.before_login or need.asks is None or code in {RequestCode.REPLY, RequestCode.ROUTES}:
        return
    with pytest.raises((NotPermitted, MalformedRequest)):
        gate.check("ann", RequestCode(code))


def test_a_refusal_names_the_action_and_the_resource(gate: Gate) -> None:
    with pytest.raises(
        NotPermitted, match="user 'ann' may not read topic:orders; `headrace acl explain`"
    ):
        gate.check("ann", RequestCode.QUEUE_RANGES, QueueRanges(["orders"]))


def test_a_change_of_rules_counts_for_the_next_request(gate: Gate) -> None:
    gate.allow("read", "topic:orders")
    gate.check("ann", RequestCode.QUEUE_RANGES, QueueRanges(["orders"]))
    gate.allow("read", "topic:orders", allows=False)
    with pytest.raises(NotPermitted):
        gate.check("ann", RequestCode.QUEUE_RANGES, QueueRanges(["orders"]))


def test_every_resource_of_a_request_is_asked_about(gate: Gate) -> None:
    gate.allow("read", "topic:a*")
    with pytest.raises(NotPermitted, match="read topic:b"):
        gate.check("ann", RequestCode.QUEUE_RANGES, QueueRanges(["aa", "ab", "b"]))


def test_a_request_with_endless_names_is_refused(gate: Gate) -> None:
    names = [f"t{number}" for number in range(module.ASKS_MAX + 1)]
    with pytest.raises(InvalidArgument, match="at most 4096 resources"):
        gate.check("root", RequestCode.DESCRIBE_TOPICS, DescribeTopics(names))


def test_the_journals_of_the_broker_need_no_permission_of_their_own(gate: Gate) -> None:
    gate.check("ann", RequestCode.CREATE_TOPIC, CreateTopic("%SCHEDULE%", 1))
    ann: Any = Client("ann")
    with pytest.raises(NotPermitted):
        gate.guard.require_fetch(ann, {"%SCHEDULE%"}, "")


def test_to_send_to_a_new_topic_needs_to_create_it(gate: Gate) -> None:
    gate.allow("publish", "topic:*")
    ann: Any = Client("ann")
    gate.guard.require_publish(ann, "orders")
    with pytest.raises(NotPermitted, match="create topic:new"):
        gate.guard.require_publish(ann, "new")
    gate.allow("create", "topic:new")
    gate.guard.require_publish(ann, "new")


def test_permissions_that_are_remembered_end_with_their_policy_and_have_a_bound(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PASSED_MAX", 2)
    for action, resource in (("publish", "topic:*"), ("create", "topic:*"), ("consume", "group:g")):
        gate.allow(action, resource)
    gate.allow("consume", "topic:*")
    ann: Any = Client("ann")
    for _ in range(2):
        gate.guard.require_publish(ann, "orders")
        gate.guard.require_fetch(ann, {"orders"}, "g")
    gate.allow("publish", "topic:orders", allows=False)
    gate.allow("consume", "group:g", allows=False)
    with pytest.raises(NotPermitted, match="publish topic:orders"):
        gate.guard.require_publish(ann, "orders")
    with pytest.raises(NotPermitted, match="consume group:g"):
        gate.guard.require_fetch(ann, {"orders"}, "g")
    gate.guard.require_fetch(ann, {"orders"}, "")
    for number in range(5):
        gate.guard.require_publish(ann, f"t{number}")
    assert len(gate.guard._sent) + len(gate.guard._read) <= 2


def test_those_that_consume_for_a_group_may_use_its_topics(gate: Gate) -> None:
    gate.allow("consume", "group:kitchen")
    ann: Any = Client("ann")
    gate.guard.require_publish(ann, "%RETRY%kitchen")
    gate.guard.require_fetch(ann, {"%RETRY%kitchen"}, "kitchen")
    with pytest.raises(NotPermitted, match="consume group:bar"):
        gate.guard.require_publish(ann, "%DLQ%bar")


def test_a_refusal_stands_in_the_audit_with_its_request_and_what_it_needs(gate: Gate) -> None:
    with capture_logs() as logs:
        with pytest.raises(NotPermitted):
            gate.check("ann", RequestCode.SET_QUOTA)
        with pytest.raises(LoginFailed):
            gate.check("", RequestCode.LIST_GROUPS)
    who = {"user": "ann", "address": "10.0.0.1:4000", "outcome": "refused"}
    lines = [{key: line[key] for key in (*who, "action", "detail")} for line in logs]
    assert lines == [
        {**who, "action": "set_quota", "detail": "needs administer"},
        {**who, "user": "CN=ann", "action": "list_groups", "detail": "no login"},
    ]
    assert logs[0]["resource"] == "cluster"
    assert gate.guard.refused == 1


def test_a_change_stands_in_the_audit_with_its_outcome(gate: Gate) -> None:
    root: Any = Client("root")
    frame = Frame(RequestCode.CREATE_TOPIC, 1, 0, 1, memoryview(encode(CreateTopic("new", 4))))

    def full(*_: object) -> bytes:
        raise StoreFull("the disk is full")

    with capture_logs() as logs:
        assert gate.guard.passed(root, frame, lambda *_: b"done")(None, root, frame) == b"done"
        with pytest.raises(StoreFull):
            gate.guard.passed(root, frame, full)(None, root, frame)
    told = [(one["action"], one["resource"], one["outcome"], one["detail"]) for one in logs]
    assert told == [
        ("create_topic", "topic:new", "done", "queues=4 retention=transient"),
        ("create_topic", "topic:new", "failed", "the disk is full (queues=4 retention=transient)"),
    ]


def test_a_change_that_is_answered_later_stands_in_the_audit_when_it_is_done(gate: Gate) -> None:
    root: Any = Client("root")
    frame = Frame(RequestCode.DELETE_QUEUES, 1, 0, 7, memoryview(encode(DeleteQueues("orders"))))
    with capture_logs() as logs:
        assert gate.guard.passed(root, frame, lambda *_: None)(None, root, frame) is None
        assert logs == []
        gate.audit.finish(root, DELETION, TopicInUse("a group reads it"))
        gate.audit.finish(root, DELETION, None)
    (line,) = logs
    assert (line["outcome"], line["detail"]) == ("failed", "a group reads it (keep=0)")


def test_a_change_that_ends_before_its_handler_returns_stands_in_the_audit_once(
    gate: Gate,
) -> None:
    root: Any = Client("root")
    frame = Frame(RequestCode.DELETE_QUEUES, 1, 0, 7, memoryview(encode(DeleteQueues("orders"))))

    def full(*_: object) -> None:
        raise StoreFull("the disk is full")

    def late(*_: object) -> None:
        gate.audit.finish(root, DELETION, None)
        raise StoreFull("the answer does not fit")

    with capture_logs() as logs:
        ends_at_once = gate.guard.passed(
            root, frame, lambda *_: gate.audit.finish(root, DELETION, None)
        )
        assert ends_at_once(None, root, frame) is None
        assert gate.guard.passed(root, frame, lambda *_: b"done")(None, root, frame) == b"done"
        for failing in (full, late):
            with pytest.raises(StoreFull):
                gate.guard.passed(root, frame, failing)(None, root, frame)
    assert [one["outcome"] for one in logs] == ["done", "done", "failed", "done"]
    assert gate.audit._later == {}


def test_a_client_that_repeats_a_correlation_does_not_swap_how_its_changes_ended(
    gate: Gate,
) -> None:
    root: Any = Client("root")
    moving = Frame(
        RequestCode.RESET_OFFSETS, 1, 0, 7, memoryview(encode(ResetOffsets("g", "latest")))
    )
    doomed = Frame(RequestCode.DELETE_QUEUES, 1, 0, 7, memoryview(encode(DeleteQueues("orders"))))
    with capture_logs() as logs:
        for frame in (moving, doomed):
            gate.guard.passed(root, frame, lambda *_: None)(None, root, frame)
        gate.audit.finish(root, DELETION, TopicInUse("a group reads it"))
        gate.audit.finish(root, (RequestCode.RESET_OFFSETS, 7), None)
    assert [(one["action"], one["outcome"]) for one in logs] == [
        ("delete_queues", "failed"), ("reset_offsets", "done"),
    ]  # fmt: skip


def test_a_dry_run_stays_out_of_the_audit(gate: Gate) -> None:
    root: Any = Client("root")
    body = memoryview(encode(DeleteQueues("orders", dry_run=True)))
    frame = Frame(RequestCode.DELETE_QUEUES, 1, 0, 1, body)
    with capture_logs() as logs:
        gate.guard.passed(root, frame, lambda *_: b"")(None, root, frame)
    assert logs == []


def test_a_replica_stands_in_the_audit_once_for_each_connection(gate: Gate) -> None:
    root: Any = Client("root")
    frame = Frame(RequestCode.FOLLOW, 1, 0, 1, memoryview(b""))
    with capture_logs() as logs:
        for forget in (False, False, True, False):
            gate.guard.passed(root, frame, lambda *_: None)(None, root, frame)
            if forget:
                gate.guard.forget(root)
    assert [(one["action"], one["outcome"]) for one in logs] == [("follow", "done")] * 2


def test_the_audit_is_read_with_the_right_to_read_the_cluster_and_written_by_no_user(
    gate: Gate,
) -> None:
    ann: Any = Client("ann")
    root: Any = Client("root")
    gate.allow("*", "topic:*")
    with pytest.raises(NotPermitted, match="read cluster"):
        gate.guard.require_fetch(ann, {AUDIT_TOPIC}, "")
    gate.allow("read", "cluster")
    gate.guard.require_fetch(ann, {AUDIT_TOPIC}, "")
    gate.check("ann", RequestCode.QUEUE_RANGES, QueueRanges([AUDIT_TOPIC]))
    for user in (ann, root):
        with pytest.raises(NotPermitted, match="the broker alone changes it"):
            gate.guard.require_publish(user, AUDIT_TOPIC)
        with pytest.raises(NotPermitted, match="the broker alone changes it"):
            gate.check(user.user, RequestCode.DELETE_QUEUES, DeleteQueues(AUDIT_TOPIC))


@pytest.mark.parametrize("user", ["root", "ann", "off", "gone"])
@pytest.mark.parametrize("action", Action)
def test_an_explained_permission_agrees_with_the_guard_about_the_audit(
    gate: Gate, user: str, action: Action
) -> None:
    gate.book.change(SetUser("add", "off", disabled=1))
    client: Any = Client(user)
    for kind in (ResourceKind.TOPIC, ResourceKind.GROUP):
        ask = Ask(action, kind, AUDIT_TOPIC)
        explained = gate.book.policy.grants(user).explain(owned(ask)).allowed
        assert gate.guard.allows(client, ask) is explained
    may_see = user in {"root", "ann"} and action is Action.READ
    assert explained is (user == "root")
    if action not in {Action.READ, Action.CONSUME}:
        assert not gate.guard.allows(client, Ask(action, ResourceKind.TOPIC, AUDIT_TOPIC))
    if action is Action.READ:
        assert gate.guard.allows(client, Ask(action, ResourceKind.TOPIC, AUDIT_TOPIC)) is may_see


@pytest.mark.parametrize("user", ["root", "ann", "off", "gone"])
@pytest.mark.parametrize("name", sorted(JOURNAL_TOPICS))
def test_an_explained_permission_agrees_with_the_guard_about_the_journals(
    gate: Gate, user: str, name: str
) -> None:
    gate.book.change(SetUser("add", "off", disabled=1))
    client: Any = Client(user)
    asks = [Ask(action, ResourceKind.TOPIC, name) for action in Action]
    explained = [gate.book.policy.grants(user).explain(ask).allowed for ask in asks]
    assert [gate.guard.allows(client, ask) for ask in asks] == explained
    found = {ask.action for ask, allowed in zip(asks, explained, strict=True) if allowed}
    may = {"root": set(Action), "ann": {Action.READ, Action.CREATE}}
    assert found == may.get(user, set())


@pytest.mark.parametrize("name", [AUDIT_TOPIC, *sorted(JOURNAL_TOPICS)])
def test_a_group_with_the_name_of_a_topic_of_the_broker_needs_its_rule(
    gate: Gate, name: str
) -> None:
    with pytest.raises(NotPermitted, match=f"user 'ann' may not update group:{name}"):
        gate.check("ann", RequestCode.RESET_OFFSETS, ResetOffsets(name, "latest"))
    with pytest.raises(NotPermitted, match=f"user 'ann' may not read group:{name}"):
        gate.check("ann", RequestCode.GET_OFFSETS, GetOffsets(name, ["orders"]))


def test_without_a_login_everything_passes_but_writing_to_the_audit(gate: Gate) -> None:
    guard = Guard(None, lambda _: 0, gate.audit)
    stranger: Any = Client("")
    guard.require_publish(stranger, "orders")
    guard.require_fetch(stranger, {AUDIT_TOPIC, "orders"}, "g")
    with pytest.raises(NotPermitted, match="the broker alone"):
        guard.require_publish(stranger, AUDIT_TOPIC)
    frame = Frame(RequestCode.CREATE_TOPIC, 1, 0, 1, memoryview(encode(CreateTopic("new", 4))))
    with capture_logs() as logs:
        guard.passed(stranger, frame, lambda *_: b"")(None, stranger, frame)
    assert [(one["user"], one["action"], one["detail"]) for one in logs] == [
        ("CN=ann", "create_topic", "queues=4 retention=transient")
    ]


def test_requests_that_change_nothing_stay_out_of_the_audit(gate: Gate) -> None:
    root: Any = Client("root")
    frame = Frame(RequestCode.BROKER_STATUS, 1, 0, 1, memoryview(b""))
    with capture_logs() as logs:
        gate.guard.passed(root, frame, lambda *_: b"done")(None, root, frame)
    assert logs == []
    assert gate.guard.allows(root, Ask(Action.DELETE, ResourceKind.TOPIC, "any"))


@pytest.mark.parametrize("code", sorted(HANDLERS), ids=lambda code: RequestCode(code).name)
def test_an_administrator_may_do_everything_until_it_is_disabled(gate: Gate, code: int) -> None:
    gate.book.change(SetUser("add", "other", admin=1))
    body: Any = b""
    with suppress(MalformedRequest):
        gate.check("root", RequestCode(code), body)
    gate.book.change(SetUser("change", "root", disabled=1))
    need = NEEDS[code]
    if need.before_login or need.asks is None or code in {RequestCode.REPLY, RequestCode.ROUTES}:
        return
    with pytest.raises((NotPermitted, MalformedRequest)):
        gate.check("root", RequestCode(code), body)


def test_heads_need_to_read_a_topic_that_not_everyone_may_look_at(gate: Gate) -> None:
    ann: Any = Client("ann")
    gate.allow("read", "topic:*")
    gate.allow("read", "group:kitchen")
    gate.guard.require_heads(ann, ["orders", "%DLQ%kitchen"], RequestCode.FETCH)
    assert gate.guard.hides(ann, "orders")
    assert gate.guard.hides(ann, "%DLQ%kitchen")
    # Marks have places alone.
    assert not gate.guard.hides(ann, "%MARK%kitchen")
    for topic in (AUDIT_TOPIC, *JOURNAL_TOPICS, "%DLQ%bar"):
        with pytest.raises(NotPermitted):
            gate.guard.require_heads(ann, [topic], RequestCode.FETCH)
    gate.allow("consume", "topic:orders")
    assert not gate.guard.hides(ann, "orders")
    gate.allow("read", "topic:orders", allows=False)
    gate.guard.require_heads(ann, ["orders"], RequestCode.FETCH)
