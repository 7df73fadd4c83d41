"""Requests about users of a broker whose login is off."""

import pytest

from headrace_mq.errors import InvalidArgument
from headrace_mq.protocol.access import (
    SCRAM,
    Credentials,
    ExplainAccess,
    Explanation,
    ListRules,
    Login,
    RuleEntry,
    SetPassword,
    SetRule,
    SetUser,
)
from headrace_mq.protocol.bodies import decode
from headrace_mq.protocol.codes import RequestCode

RULE = RuleEntry("ann", "read", "cluster", allows=True)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.LOGIN, Login(SCRAM, "n,,n=ann,r=x")),
        (RequestCode.SET_USER, SetUser("add", "ann", admin=1)),
        (RequestCode.SET_PASSWORD, SetPassword("ann", Credentials(b"", b"", b"", 0))),
        (RequestCode.LIST_USERS, b""),
        (RequestCode.SET_RULE, SetRule(RULE)),
        (RequestCode.LIST_RULES, ListRules()),
        (RequestCode.EXPLAIN_ACCESS, ExplainAccess("ann", "read", "cluster")),
    ],
)
async def test_without_a_login_there_are_no_users(client, code: RequestCode, body: object) -> None:
    refused = await client.refusal(code, body)
    assert isinstance(refused, InvalidArgument)
    assert "start it with --login" in str(refused)


async def test_without_a_login_each_client_may_do_everything(client) -> None:
    asked = ExplainAccess("", "consume", "topic:orders")
    told = decode(Explanation, await client.ask(RequestCode.EXPLAIN_ACCESS, asked))
    assert (told.allowed, told.reason) == (True, "this broker has no login")
