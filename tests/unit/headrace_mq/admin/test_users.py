"""Administration of users tells a broker without a login from one with it."""

from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import BrokerError, InvalidArgument, NotPermitted
from headrace_mq.protocol.access import ExplainAccess

NO_LOGIN = "this broker has no login, and so no users; start it with --login"


class ClientOfAnOldBroker(AdminClient):
    """A client whose broker refuses each request."""

    def __init__(self, address: str, refusal: BrokerError) -> None:
        super().__init__(address)
        self.refusal = refusal
        self.asked: list[ExplainAccess] = []

    async def _ask(self, kind: Any, code: Any, body: Any = None) -> Any:
        self.asked.append(body)
        raise self.refusal


async def test_a_broker_without_a_login_has_no_users(admin: AdminClient) -> None:
    with pytest.raises(InvalidArgument, match="no login"):
        await admin.users()
    with pytest.raises(InvalidArgument, match="no login"):
        await admin.explain("ann", "read", "cluster")


async def test_without_a_login_all_is_allowed_also_by_an_older_broker(admin: AdminClient) -> None:
    old = ClientOfAnOldBroker("127.0.0.1:9", InvalidArgument(NO_LOGIN))
    for one in (admin, old):
        ruling = await one.may("consume", "topic:orders")
        assert (ruling.allowed, ruling.reason) == (True, "this broker has no login")
    assert [one.user for one in old.asked] == [""]


async def test_a_user_is_named_because_an_older_broker_knows_no_empty_name() -> None:
    refusal = NotPermitted("user 'ann' may not administer cluster")
    old = ClientOfAnOldBroker("tcp://127.0.0.1:9?user=ann&password_file=p.txt", refusal)
    with pytest.raises(NotPermitted, match="upgrade the broker first"):
        await old.may("consume", "topic:orders")
    assert [one.user for one in old.asked] == ["ann"]


async def test_a_word_without_a_meaning_stays_a_mistake() -> None:
    old = ClientOfAnOldBroker("127.0.0.1:9", InvalidArgument("an action is one of read"))
    with pytest.raises(InvalidArgument, match="an action is one of read"):
        await old.may("burn", "topic:orders")
