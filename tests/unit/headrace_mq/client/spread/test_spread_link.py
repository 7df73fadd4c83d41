"""One link to several groups: how it starts, where requests go, and what it passes on."""

import asyncio
from collections.abc import Callable

import pytest

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.client.spread import spread_link
from headrace_mq.client.spread.spread_link import SpreadLink, link_to
from headrace_mq.errors import (
    Closed,
    ConnectionLost,
    LoginFailed,
    NotLeader,
    ReplyUndeliverable,
    RequestTimeout,
)
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
    TopicDescription,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, Frame
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name
from tests.unit.headrace_mq.client.two_groups import ADDRESS, FakeLink, links_of

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
    link.submit(RequestCode.HEARTBEAT, b"", receive=ignore)
    assert [code for code, *_ in two.submitted] == [RequestCode.PRODUCE]
    assert [code for code, *_ in one.submitted] == [RequestCode.FETCH, RequestCode.HEARTBEAT]
    assert link.tell(RequestCode.PRODUCE, batch(2))
    one.is_up = False
    assert two.told == [RequestCode.PRODUCE]
    assert not link.serves(QueueRef("t", 0))
    assert link.serves(QueueRef("t", 2))
    assert not link.serves(QueueRef("u", 0))


def connected(link: FakeLink) -> None:
    link.connections += 1
    link.options["on_ready"]()


async def heard(link: SpreadLink) -> None:
    await asyncio.gather(*link._hearing.values())


async def test_a_group_that_comes_back_says_which_queues_it_has_before_it_gets_messages(
    two_groups: Make,
) -> None:
    link = two_groups()
    one, two = links_of(link)
    await look(link)
    connected(one)
    with pytest.raises(ConnectionLost, match="g1 has still to say"):
        link.submit(RequestCode.PRODUCE, batch(0), receive=ignore)
    assert not link.tell(RequestCode.PRODUCE, batch(1))
    link.submit(RequestCode.PRODUCE, batch(2), receive=ignore)
    assert len(one.bodies(RequestCode.DESCRIBE_TOPICS)) == 1
    await heard(link)
    assert len(one.bodies(RequestCode.DESCRIBE_TOPICS)) == 2
    link.submit(RequestCode.PRODUCE, batch(0), receive=ignore)
    one.options["on_ready"]()  # it is writable again, over the same connection
    link.submit(RequestCode.PRODUCE, batch(1), receive=ignore)
    assert (len(one.submitted), len(two.submitted)) == (2, 1)


async def test_a_group_with_an_empty_disk_gets_no_message_of_a_spread_topic_and_does_not_make_it(
    two_groups: Make,
) -> None:
    link = two_groups()
    one, two = links_of(link)
    await look(link)
    one.topics.clear()
    connected(one)
    created = encode(CreateTopic("t", 4, "forever"))
    for _ in range(2):
        for body in (batch(0), batch(1)):
            with pytest.raises(ConnectionLost):
                link.submit(RequestCode.PRODUCE, body, receive=ignore)
        with pytest.raises(ConnectionLost, match="no group makes it"):
            link.submit(RequestCode.CREATE_TOPIC, created, receive=ignore)
        await heard(link)
    assert (one.submitted, two.submitted, link.owner(QueueRef("t", 0))) == ([], [], None)
    one.topics["u"] = TopicDescription("u", 1, "forever")
    body = encode(DescribeTopics(["u"]))
    await link.request(RequestCode.DESCRIBE_TOPICS, body, timeout_ms=60_000)
    connected(one)
    link.submit(RequestCode.CREATE_TOPIC, encode(CreateTopic("u", 1, "forever")), receive=ignore)
    assert [code for code, *_ in one.submitted] == [RequestCode.CREATE_TOPIC]


async def test_a_group_that_does_not_say_which_queues_it_has_is_asked_again(
    two_groups: Make,
) -> None:
    link = two_groups()
    one, _ = links_of(link)
    await look(link)
    connected(one)
    one.answers[RequestCode.DESCRIBE_TOPICS] = NotLeader("not yet")
    assert link.writer(QueueRef("t", 0)) is None
    await heard(link)
    del one.answers[RequestCode.DESCRIBE_TOPICS]
    assert link.writer(QueueRef("t", 0)) is None
    await heard(link)
    assert link.writer(QueueRef("t", 0)) == "g1"
    connected(one)
    assert link.writer(QueueRef("t", 0)) is None
    await link.aclose()
    assert link._hearing == {}


async def test_a_reply_goes_over_another_group_where_its_receiver_is_not_connected(
    two_groups: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = two_groups()
    one, two = links_of(link)
    assert link.tell(RequestCode.REPLY, b"r")
    assert (len(one.submitted), len(two.submitted)) == (1, 0)
    one.submitted[0][2](memoryview(b""))
    assert two.submitted == []
    for number, error in enumerate((ReplyUndeliverable("gone"), ConnectionLost("ended"))):
        assert link.tell(RequestCode.REPLY, b"r")
        one.submitted[-1][2](error)
        assert two.submitted[number][:2] == (RequestCode.REPLY, (b"r",))
        two.submitted[number][2](error)
    assert len(one.submitted) == 3
    monkeypatch.setattr(spread_link, "REPLIES_MAX", 1)
    assert link.tell(RequestCode.REPLY, b"r")
    assert not link.tell(RequestCode.REPLY, b"r")
    one.submitted[-1][2](memoryview(b""))
    one.is_up = two.is_up = False
    assert not link.tell(RequestCode.REPLY, b"r")


async def test_a_queue_of_a_group_that_is_away_is_not_called_missing(
    two_groups: Make,
) -> None:
    link = two_groups()
    _, two = links_of(link)
    two.is_up = False
    await look(link)
    link.require_served(QueueRef("t", 4))
    with pytest.raises(NotLeader, match="broker group g2"):
        link.require_served(QueueRef("t", 2))
    two.is_up = True
    await look(link)
    # It is there, so it refused what was asked.
    with pytest.raises(NotLeader, match="broker group g2 refused"):
        link.require_served(QueueRef("t", 2))
    two.is_up = False
    with pytest.raises(NotLeader, match="broker group g2"):
        link.require_served(QueueRef("t", 2))


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
