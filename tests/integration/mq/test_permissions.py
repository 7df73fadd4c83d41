"""Each kind of request, asked for under each rule: the broker decides as a table written by hand does."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import SecretStr

from headrace_mq import AdminClient
from headrace_mq._net.link import Link, LinkSettings
from headrace_mq._net.login import credentials_of
from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.broker import dispatcher
from headrace_mq.broker.server import Broker
from headrace_mq.errors import BrokerError, LoginFailed, NotPermitted
from headrace_mq.message import QueueRef
from headrace_mq.protocol.access import (
    ExplainAccess,
    ListRules,
    RuleEntry,
    SetPassword,
    SetRule,
    SetUser,
)
from headrace_mq.protocol.administration import (
    CloneOffsets,
    DeleteGroup,
    DeleteQueues,
    DescribeGroup,
    DescribeLag,
    DescribeQueues,
    FindMessages,
    FreezeQueues,
    ListConnections,
    ListGroups,
    OffsetsAt,
    ResetOffsets,
)
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import (
    Body,
    CommitOffsets,
    CreateTopic,
    DescribeTopics,
    Fetch,
    FetchFrom,
    GetOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LockQueues,
    ProduceAnswer,
    QueueRanges,
    Reply,
    UnlockQueues,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.limits import (
    HandOverTo,
    NoteChange,
    Rates,
    SetBacklogLimit,
    SetGroup,
    SetQuota,
)
from headrace_mq.protocol.releases import ReleaseMessages
from headrace_mq.protocol.scheduled import (
    DELAY_HEADER,
    SCHEDULE_TOPIC,
    TOPIC_HEADER,
    CancelScheduled,
)
from headrace_mq.protocol.transactions import EndTransactions, TakeChecks
from tests.integration.mq.secured_broker import PASSWORD, Door, guarded

PUSHED_FROM = 128
KEYS = credentials_of(SecretStr("another one"))
NEVER = "no one may"


def batch(topic: str, **headers: str) -> bytes:
    columns = Columns([], [], [headers] if headers else [], [b"x"], [])
    return bytes(encode_batch(QueueRef(topic, 0), columns, born_first_ms=1))


def later(topic: str) -> bytes:
    return batch(SCHEDULE_TOPIC, **{TOPIC_HEADER: topic, DELAY_HEADER: "60000"})


class Row(NamedTuple):
    """One request, and everything that it needs, as the documentation says it; of needs with "or" one is enough."""

    code: RequestCode
    body: Body | bytes
    needs: tuple[str, ...]


C = RequestCode
# `t` and `tea` are topics that exist, `new` is none; `g` and `h` are groups. Written by hand from docs/login.md.
TABLE = [
    Row(C.HEARTBEAT, Heartbeat(), ()),
    Row(C.HEARTBEAT, Heartbeat("g", "m"), ("consume group:g",)),
    Row(C.PRODUCE, batch("t"), ("publish topic:t",)),
    Row(C.PRODUCE, batch("%RETRY%g"), ("consume group:g",)),
    Row(C.PRODUCE, later("t"), ("publish topic:t",)),
    Row(C.PRODUCE, batch(AUDIT_TOPIC), (NEVER,)),
    Row(C.FETCH, Fetch([FetchFrom("t", 0, 0)], 1_000, 0), ("consume topic:t",)),
    Row(C.FETCH, Fetch([FetchFrom("t", 0, 0), FetchFrom("tea", 0, 0)], 1_000, 0, "g"),
        ("consume topic:t", "consume topic:tea", "consume group:g")),
    Row(C.FETCH, Fetch([FetchFrom(AUDIT_TOPIC, 0, 0)], 1_000, 0), ("read cluster",)),
    Row(C.COMMIT_OFFSETS, CommitOffsets("g", "m", 1, []), ("consume group:g",)),
    Row(C.GET_OFFSETS, GetOffsets("g", ["t"]), ("read group:g",)),
    Row(C.GET_OFFSETS, GetOffsets("%RESENT%g", ["t"]), ("read group:g",)),
    Row(C.JOIN_GROUP, JoinGroup("g", "m", ["t"]), ("consume group:g", "consume topic:t")),
    Row(C.LEAVE_GROUP, LeaveGroup("g", "m"), ("consume group:g",)),
    Row(C.REPLY, Reply("c", "x", b""), ()),
    Row(C.CREATE_TOPIC, CreateTopic("new", 1), ("create topic:new",)),
    Row(C.CREATE_TOPIC, CreateTopic("t", 1), ("read topic:t",)),
    Row(C.CREATE_TOPIC, CreateTopic("t", 9), ("update topic:t",)),
    Row(C.DESCRIBE_TOPICS, DescribeTopics(), ("read topic:*",)),
    Row(C.DESCRIBE_TOPICS, DescribeTopics(["t", "tea"]), ("read topic:t", "read topic:tea")),
    Row(C.DESCRIBE_TOPICS, DescribeTopics(["new"], create_missing=True), ("create topic:new",)),
    Row(C.QUEUE_RANGES, QueueRanges(["t"]), ("read topic:t",)),
    Row(C.DESCRIBE_BROKER, b"", ("read cluster",)),
    Row(C.DESCRIBE_QUEUES, DescribeQueues(["t"]), ("read topic:t",)),
    Row(C.FREEZE_QUEUES, FreezeQueues("t", [], True, True, True), ("update topic:t",)),
    Row(C.DELETE_QUEUES, DeleteQueues("t"), ("delete topic:t",)),
    Row(C.DELETE_QUEUES, DeleteQueues(AUDIT_TOPIC), (NEVER,)),
    Row(C.FIND_MESSAGES, FindMessages("t", "k", 0, 1, 1, 1), ("consume topic:t",)),
    Row(C.FIND_MESSAGES, FindMessages("t", "k", 0, 1, 1, 1, heads=True), ("read topic:t or consume topic:t",)),
    Row(C.FIND_MESSAGES, FindMessages(AUDIT_TOPIC, "k", 0, 1, 1, 1, heads=True), ("read cluster",)),
    Row(C.FETCH, Fetch([FetchFrom("t", 0, 0)], 1_000, 0, heads=True), ("read topic:t or consume topic:t",)),
    Row(C.FETCH, Fetch([FetchFrom("%RETRY%g", 0, 0)], 1_000, 0, heads=True), ("read group:g or consume group:g",)),
    Row(C.FETCH, Fetch([FetchFrom(SCHEDULE_TOPIC, 0, 0)], 1_000, 0, heads=True),
        (f"consume topic:{SCHEDULE_TOPIC}",)),
    Row(C.FETCH, Fetch([FetchFrom(AUDIT_TOPIC, 0, 0)], 1_000, 0, heads=True), ("read cluster",)),
    Row(C.OFFSETS_AT, OffsetsAt(["t"], 1), ("read topic:t",)),
    Row(C.OFFSETS_AT, OffsetsAt([AUDIT_TOPIC], 1), ()),
    Row(C.RESET_OFFSETS, ResetOffsets("g", "latest"), ("update group:g",)),
    Row(C.RESET_OFFSETS, ResetOffsets(AUDIT_TOPIC, "latest"), (f"update group:{AUDIT_TOPIC}",)),
    Row(C.GET_OFFSETS, GetOffsets(AUDIT_TOPIC, ["t"]), (f"read group:{AUDIT_TOPIC}",)),
    Row(C.CLONE_OFFSETS, CloneOffsets("g", "h"), ("read group:g", "update group:h")),
    Row(C.DELETE_GROUP, DeleteGroup("g"), ("delete group:g",)),
    Row(C.LOCK_QUEUES, LockQueues("g", "m", []), ("consume group:g",)),
    Row(C.UNLOCK_QUEUES, UnlockQueues("g", "m", []), ("consume group:g",)),
    Row(C.CANCEL_SCHEDULED, CancelScheduled(1), (f"delete topic:{SCHEDULE_TOPIC}",)),
    Row(C.DESCRIBE_SCHEDULE, b"", ("read cluster",)),
    Row(C.DESCRIBE_PRODUCERS, b"", ("read cluster",)),
    Row(C.END_TRANSACTIONS, EndTransactions("g", []), ("publish group:g",)),
    Row(C.TAKE_CHECKS, TakeChecks("g", "c", 0), ("publish group:g",)),
    Row(C.DESCRIBE_TRANSACTIONS, b"", ("read cluster",)),
    Row(C.SET_QUOTA, SetQuota("topic", "t", Rates(1, 1, 1, 1)), ("administer cluster",)),
    Row(C.DESCRIBE_QUOTAS, b"", ("read cluster",)),
    Row(C.SET_BACKLOG_LIMIT, SetBacklogLimit("g", 1, "block"), ("update group:g",)),
    Row(C.DESCRIBE_BACKLOGS, b"", ("read cluster",)),
    Row(C.LIST_GROUPS, ListGroups(), ("read group:*",)),
    Row(C.DESCRIBE_GROUP, DescribeGroup("g"), ("read group:g",)),
    Row(C.DESCRIBE_LAG, DescribeLag("g", ["t"]), ("read group:g",)),
    Row(C.LIST_CONNECTIONS, ListConnections(), ("read cluster",)),
    Row(C.BROKER_STATUS, b"", ("read cluster",)),
    Row(C.DESCRIBE_SETTINGS, b"", ("read cluster",)),
    Row(C.SET_GROUP, SetGroup("g", "off"), ("update group:g",)),
    Row(C.RELEASE_MESSAGES, ReleaseMessages("t", []), ("delete topic:t",)),
    Row(C.FOLLOW, b"", ("administer cluster",)),
    Row(C.HAND_OVER, HandOverTo(), ("administer cluster",)),
    Row(C.REGISTER, b"", ("administer cluster",)),
    Row(C.ROUTES, b"", ()),
    Row(C.NOTE_CHANGE, NoteChange("x", "g"), ("update group:g",)),
    Row(C.NOTE_CHANGE, NoteChange("x"), ("administer cluster",)),
    Row(C.SET_USER, SetUser("add", "eve"), ("administer cluster",)),
    Row(C.SET_PASSWORD, SetPassword("other", KEYS), ("administer cluster",)),
    Row(C.LIST_USERS, b"", ("administer cluster",)),
    Row(C.SET_RULE, SetRule(RuleEntry("role:x", "read", "cluster", True)), ("administer cluster",)),
    Row(C.LIST_RULES, ListRules(), ("administer cluster",)),
    Row(C.EXPLAIN_ACCESS, ExplainAccess("", "read", "cluster"), ()),
    Row(C.EXPLAIN_ACCESS, ExplainAccess("a", "read", "cluster"), ("administer cluster",)),
]  # fmt: skip

ACTIONS = ("publish", "consume", "create", "update", "delete", "read", "administer", "*")
RESOURCES = (
    "cluster", "topic:t", "topic:te*", "topic:n*", "topic:*", "topic:none", f"topic:{SCHEDULE_TOPIC}",
    "topic:%*", "group:g", "group:g*", "group:*", "group:none",
)  # fmt: skip

Rule = tuple[bool, str, str]
# Roles with one rule that allows something, and those that may do all but for one rule that denies something.
EVERYTHING: list[Rule] = [(True, "*", "cluster"), (True, "*", "topic:*"), (True, "*", "group:*")]
ROLES: dict[str, list[Rule]] = {
    "none": [],
    "all": EVERYTHING,
    **{f"allow {a} {r}": [(True, a, r)] for a, r in product(ACTIONS, RESOURCES)},
    **{f"deny {a} {r}": [*EVERYTHING, (False, a, r)] for a, r in product(ACTIONS, RESOURCES)},
}


def may(rules: Iterable[Rule], need: str) -> bool:
    """Decides by the sentences of docs/login.md, without regard to how the broker does it."""
    if need == NEVER:
        return False
    action, resource = need.split()

    def covers(pattern: str) -> bool:
        if pattern.endswith("*"):
            return resource.startswith(pattern[:-1])
        return resource == pattern

    def touches_a_part(pattern: str) -> bool:
        return resource.endswith(":*") and pattern.partition(":")[0] == resource.partition(":")[0]

    for allows, which, pattern in rules:
        if not allows and which in {action, "*"} and (covers(pattern) or touches_a_part(pattern)):
            return False
    for allows, which, pattern in rules:
        # Those that may do anything to a thing may read it.
        if allows and covers(pattern) and (which in {action, "*"} or action == "read"):
            return True
    return False


def expected(rules: list[Rule], row: Row) -> bool:
    return all(any(may(rules, one) for one in need.split(" or ")) for need in row.needs)


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    """Its handlers do nothing, but for those that ask themselves: no role shall meet what another one did."""
    asking = {
        C.HELLO, C.LOGIN, C.PRODUCE, C.FETCH, C.FIND_MESSAGES, C.SET_PASSWORD, C.EXPLAIN_ACCESS,
    }  # fmt: skip
    stubs: dict[int, Any] = {
        code: handler if code in asking else lambda *_: (b"",)
        for code, handler in dispatcher.HANDLERS.items()
    }
    async with guarded(connections_per_address_max=1_024) as running:
        state = running._state
        assert state is not None
        assert state.users is not None
        for topic in ("t", "tea", "%RETRY%g"):
            state.topics.create(CreateTopic(topic, 2))
        state.users.change(SetUser("add", "other", [KEYS]))
        for role, rules in ROLES.items():
            for allows, action, resource in rules:
                entry = RuleEntry(f"role:{role}", action, resource, allows)
                state.users.set_rule(entry, remove=False)
        monkeypatch.setattr(dispatcher, "HANDLERS", stubs)
        yield running


async def permitted(link: Link, row: Row) -> bool:
    """Whether the broker lets a request through; all other errors come behind the guard."""
    body = row.body if isinstance(row.body, bytes) else encode(row.body)
    try:
        answer = await link.request(row.code, body, timeout_ms=30_000)
    except NotPermitted:
        return False
    except BrokerError:
        return True
    if row.code == C.PRODUCE:
        codes = {one.code for one in decode(ProduceAnswer, answer).results}
        return codes != {NotPermitted.code}
    return True


def test_the_table_has_every_request_code() -> None:
    before_login = {C.HELLO, C.LOGIN}
    assert {row.code for row in TABLE} | before_login == {c for c in C if c < PUSHED_FROM}


async def test_each_role_may_do_what_the_table_says_and_nothing_else(
    broker: Broker, tmp_path: Path
) -> None:
    state = broker._state
    assert state is not None
    assert state.users is not None
    door, found, wrong = Door(tmp_path, broker), 0, []
    own = credentials_of(SecretStr(PASSWORD))
    state.users.change(SetUser("add", "ann", [own]))
    link = Link(door.of("ann"), client_id="ann", settings=LinkSettings((1, 1)))
    await link.start(30_000)
    try:
        for role, rules in ROLES.items():
            state.users.change(SetUser("change", "ann", set_roles=True, roles=[role]))
            answers = await asyncio.gather(*(permitted(link, row) for row in TABLE))
            for row, answer in zip(TABLE, answers, strict=True):
                found += 1
                if answer != expected(rules, row):
                    wrong.append(f"{role}: {row.code.name} {row.needs}: {answer}")
    finally:
        await link.aclose()
    assert wrong == []
    assert found == len(ROLES) * len(TABLE)


async def test_an_administrator_may_do_all_but_change_the_audit_and_a_disabled_user_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    link = Link(Door(tmp_path, broker).of("root"), client_id="r", settings=LinkSettings((1, 1)))
    await link.start(30_000)
    for row in TABLE:
        assert await permitted(link, row) is (NEVER not in row.needs), row
    state = broker._state
    assert state is not None
    assert state.users is not None
    state.users.change(SetUser("add", "second", [KEYS], admin=1))
    state.users.change(SetUser("change", "root", disabled=1))
    for row in TABLE:
        if row.needs:
            assert not await permitted(link, row), row
    await link.aclose()


async def test_no_request_is_served_before_the_login(broker: Broker) -> None:
    with pytest.raises(LoginFailed):
        await AdminClient(broker.address).start()
    state = broker._state
    assert state is not None
    assert state.guard is not None

    class Stranger:
        user, principal, peer, host = "", "", "10.0.0.1:1", "10.0.0.1"

    stranger: Any = Stranger()
    served = []
    for row in TABLE:
        body = row.body if isinstance(row.body, bytes) else encode(row.body)
        frame = Frame(row.code, 1, 0, 1, memoryview(body))
        try:
            state.guard.passed(stranger, frame, lambda *_: None)
        except LoginFailed:
            continue
        served.append(row)
    assert served == []
