"""One link to several groups: how it starts, where requests go, and what it passes on."""

import asyncio
from collections.abc import Callable

import pytest

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.client.spread.spread_link import SpreadLink, link_to
from headrace_mq.errors import Closed, ConnectionLost, LoginFailed, RequestTimeout
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import (
    CreateTopic,
    DescribeTopics,
    Fetch,
    FetchFrom,
    GroupAnswer,
    GroupChanged,
    GroupMember,
    JoinGroup,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, Frame
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name
from tests.unit.headrace_mq.client.two_groups import ADDRESS, links_of

Make = Callable[..., SpreadLink]
SETTINGS = LinkSettings((1, 5))


def ignore(_answer: object) -> None:
    return None


def batch(queue_id: int) -> bytes:
    columns = Columns(["k"], [], [], [b"x"], [0])
    return bytes(encode_batch(QueueRef("t", queue_id), columns, born_first_ms=0))


async def look(link: SpreadLink) -> None:
    body = encode(DescribeTopics(["t"]))
    await link.request(RequestCode.DESCRIBE_TOPICS, body, timeout_ms=60_000)


def test_an_address_of_one_group_gets_the_usual_link() -> None:
    for address in ("127.0.0.1:1", "nameserver://h:1/c", "nameserver://h:1/c/g1"):
        assert type(link_to(address, client_id="me", settings=SETTINGS)) is Link
    assert type(link_to(ADDRESS, client_id="me", settings=SETTINGS)) is SpreadLink
    with pytest.raises(ValueError, match="names the groups g1, g2"):
        Link(ADDRESS, client_id="me", settings=SETTINGS)


async def test_a_link_starts_with_the_groups_that_answer(two_groups: Make) -> None:
    ready: list[int] = []
    link = two_groups(on_ready=lambda: ready.append(1))
    one, two = links_of(link)
    one.is_up = False
    await link.start(60_000)
    assert one.began
    assert two.began
    assert link.is_up
    assert link.is_ready
    two.options["on_ready"]()
    assert (ready, link.connections, link.frame_bytes_max) == ([1], 2, 1 << 20)
    await link.aclose()
    assert one.closed
    assert two.closed


async def test_a_link_does_not_start_where_no_group_answers_or_one_refuses(
    two_groups: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = two_groups()
    for each in links_of(link):
        each.is_up = False
    with pytest.raises(ConnectionLost):
        await link.start(60_000)
    assert links_of(link)[0].closed
    link = two_groups()

    async def refuse(_timeout_ms: int) -> None:
        raise LoginFailed("no")

    links_of(link)[1].is_up = False
    links_of(link)[1].reached = refuse  # type: ignore[method-assign]  # one group behaves otherwise
    with pytest.raises(LoginFailed):
        await link.start(60_000)


async def test_batches_and_fetches_go_to_the_group_of_their_queue(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)
    with pytest.raises(ConnectionLost, match="none of the groups"):
        link.submit(RequestCode.PRODUCE, batch(3), receive=ignore)
    assert not link.tell(RequestCode.PRODUCE, batch(3))
    await look(link)
    link.submit(RequestCode.PRODUCE, batch(3), receive=ignore)
    fetch = encode(Fetch([FetchFrom("t", 1, 0)], 1, 1))
    link.submit(RequestCode.FETCH, fetch, receive=ignore)
    link.submit(RequestCode.CREATE_TOPIC, encode(CreateTopic("t")), receive=ignore)
    link.submit(RequestCode.HEARTBEAT, b"", receive=ignore)
    assert [code for code, *_ in two.submitted] == [RequestCode.PRODUCE]
    assert [code for code, *_ in one.submitted] == [
        RequestCode.FETCH, RequestCode.CREATE_TOPIC, RequestCode.HEARTBEAT,
    ]  # fmt: skip
    assert link.tell(RequestCode.PRODUCE, batch(2))
    one.is_up = False
    assert link.tell(RequestCode.REPLY, b"r")
    assert two.told == [RequestCode.PRODUCE, RequestCode.REPLY]
    assert not link.serves(QueueRef("t", 0))
    assert link.serves(QueueRef("t", 2))
    assert not link.serves(QueueRef("u", 0))


async def test_a_request_waits_for_a_group_and_ends_with_the_link(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)
    one.is_up = two.is_up = False
    waiting = asyncio.create_task(look(link))
    await asyncio.sleep(0)
    two.is_up = True
    two.options["on_ready"]()
    await waiting
    two.is_up = False
    waiting = asyncio.create_task(look(link))
    await asyncio.sleep(0)
    await link.aclose()
    with pytest.raises(Closed):
        await waiting


async def test_the_connection_of_a_group_that_is_late_is_ended(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)

    async def hang(_code: object, _body: bytes, *, timeout_ms: int) -> memoryview:
        await asyncio.Event().wait()
        raise AssertionError

    two.request = hang  # type: ignore[method-assign]  # one group behaves otherwise
    with pytest.raises(RequestTimeout, match="broker group g2"):
        await link.request(RequestCode.DESCRIBE_TOPICS, encode(DescribeTopics()), timeout_ms=1)
    link.drop("late")
    assert (one.dropped, two.dropped) == ("", "late")
    link.drop("all")
    assert (one.dropped, two.dropped) == ("all", "all")


async def test_a_push_is_passed_on_as_the_view_of_all_groups(two_groups: Make) -> None:
    pushed: list[Frame] = []
    down: list[int] = []
    link = two_groups(on_push=pushed.append, on_down=lambda: down.append(1))
    one, two = links_of(link)
    ann, bob = (GroupMember(name, ["t"]) for name in ("ann", "bob"))
    for each in (one, two):
        each.answers[RequestCode.JOIN_GROUP] = GroupAnswer(1, [ann])
    joining = encode(JoinGroup("g", "ann", ["t"]))
    await link.request(RequestCode.JOIN_GROUP, joining, timeout_ms=60_000)

    def push(where: int, code: RequestCode, body: bytes) -> None:
        frame = Frame(code, PROTOCOL_VERSION, 0, 0, memoryview(body))
        links_of(link)[where].options["on_push"](frame)

    change = encode(GroupChanged("g", 2, [ann, bob]))
    push(0, RequestCode.PUSHED_GROUP_CHANGE, change)
    assert pushed == []
    push(1, RequestCode.PUSHED_GROUP_CHANGE, change)
    assert decode(GroupChanged, pushed[0].body).members == [ann, bob]
    push(0, RequestCode.PUSHED_REPLY, b"r")
    assert pushed[1].code == RequestCode.PUSHED_REPLY
    two.options["on_down"]()
    assert down == [1]
