import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.tail import TAIL_MAX
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import QueueFrozen, QueueNotFound, TopicNotFound
from headrace_mq.message import Message, QueueRef, Record

Deliver = Callable[..., Awaitable[None]]


@pytest.fixture
async def deliver(broker: Broker, admin: AdminClient) -> AsyncIterator[Deliver]:
    """Sends bodies to a queue of a topic with two queues, one after the other."""
    await admin.create_topic("t", queues=2)
    async with Producer(
        broker.address, selector=lambda message, _count: int(message.tag)
    ) as producer:

        async def send(queue: int, *bodies: bytes) -> None:
            for body in bodies:
                await producer.send(Message(topic="t", body=body, tag=str(queue)))

        yield send


def told(records: list[Record]) -> list[tuple[int, int, bytes]]:
    return [(one.queue.queue_id, one.offset, one.body) for one in records]


async def test_the_last_messages_over_all_queues_come_oldest_first(
    admin: AdminClient, deliver: Deliver
) -> None:
    for number in range(6):
        await deliver(number % 2, b"%d" % number)
    end = await admin.tail("t", 6)
    assert sorted(told(end.records)) == [
        (queue, offset, b"%d" % (2 * offset + queue)) for queue in range(2) for offset in range(3)
    ]
    times = [(one.stored_at_ms, one.queue, one.offset) for one in end.records]
    assert times == sorted(times)
    assert end.behind == {QueueRef("t", 0): 3, QueueRef("t", 1): 3}
    assert (await admin.tail("t", 4)).records == end.records[-4:]
    assert (await admin.tail("t", 0)).records == []


async def test_only_the_named_queues_are_looked_at(admin: AdminClient, deliver: Deliver) -> None:
    await deliver(0, b"a", b"b")
    await deliver(1, b"c")
    end = await admin.tail("t", 10, [1])
    assert (told(end.records), end.behind) == ([(1, 0, b"c")], {QueueRef("t", 1): 1})


async def test_more_than_one_answer_brings_is_read_to_the_end(
    admin: AdminClient, deliver: Deliver
) -> None:
    large = [bytes([65 + number]) * 400_000 for number in range(8)]
    await deliver(0, *large)
    assert [one.body for one in (await admin.tail("t", 7)).records] == large[1:]


async def test_later_messages_are_followed_from_where_the_tail_ended(
    admin: AdminClient, deliver: Deliver
) -> None:
    await deliver(0, b"before")
    end = await admin.tail("t", 0)
    following = admin.follow(end.behind)
    await deliver(1, b"c")
    assert told([await anext(following)]) == [(1, 0, b"c")]
    await deliver(0, b"a", b"b")
    assert told([await anext(following), await anext(following)]) == [(0, 1, b"a"), (0, 2, b"b")]
    await following.aclose()


async def test_a_place_beyond_the_end_is_left_for_the_end(
    broker: Broker, admin: AdminClient, deliver: Deliver
) -> None:
    await deliver(0, b"a")
    following = admin.follow({QueueRef("t", 0): 9})
    later = asyncio.ensure_future(anext(following))
    while not len(broker._state.long_poll):
        await asyncio.sleep(0)
    await deliver(0, b"b")
    assert told([await later]) == [(0, 1, b"b")]
    await following.aclose()


async def test_a_tail_of_an_unknown_topic_or_queue_is_an_error(
    admin: AdminClient, deliver: Deliver
) -> None:
    await deliver(0, b"a")
    for count in (-1, TAIL_MAX + 1):
        with pytest.raises(ValueError, match="count is 0 to"):
            await admin.tail("t", count)
    with pytest.raises(TopicNotFound):
        await admin.tail("nothing", 1)
    with pytest.raises(QueueNotFound, match="0 to 1"):
        await admin.tail("t", 1, [2])
    await admin.freeze("t", reading=True)
    with pytest.raises(QueueFrozen):
        await admin.tail("t", 1)


async def test_a_queue_is_read_from_an_offset_on(admin: AdminClient, deliver: Deliver) -> None:
    await deliver(1, b"0", b"1", b"2", b"3")
    assert told(await admin.read(QueueRef("t", 1), 1, 2)) == [(1, 1, b"1"), (1, 2, b"2")]
    assert told(await admin.read(QueueRef("t", 1), 3, 100)) == [(1, 3, b"3")]
    assert await admin.read(QueueRef("t", 1), 9, 100) == []
    with pytest.raises(QueueNotFound, match="queues 0 to 1, not 2"):
        await admin.read(QueueRef("t", 2), 0, 1)
    with pytest.raises(TopicNotFound):
        await admin.read(QueueRef("u", 0), 0, 1)
    with pytest.raises(ValueError, match=f"1 to {TAIL_MAX}"):
        await admin.read(QueueRef("t", 0), 0, 0)
