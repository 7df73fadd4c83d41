"""A reader goes on with the next leader of its group: each message once, and in order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from headrace_mq.client.sync.leader import Leader
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import Closed, ConnectionLost, NotLeader, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchAnswer,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    decode,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode

FETCH, RANGES = RequestCode.FETCH, RequestCode.QUEUE_RANGES
A, B = QueueRef("t", 0), QueueRef("t", 1)
T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


@pytest.fixture
async def other(broker: Any, free_port: Callable[[], int]) -> AsyncIterator[Any]:
    """A replica of the broker; both have nine messages in each of two queues."""
    made = type(broker)(free_port())
    made.is_replica = True
    await made.start()
    for one in (broker, made):
        one.topics["t"] = 2
        for queue in (A, B):
            for first in (0, 3, 6):
                one.append(queue, [b"%d" % number for number in range(first, first + 3)])
    yield made
    await made.stop()


ALL = [b"%d" % number for number in range(9)]


def opened(*brokers: Any, timeout_ms: int = 20_000) -> BlockingReader:
    return BlockingReader(",".join(one.address for one in brokers), timeout_ms=timeout_ms)


def read(reader: BlockingReader, queue: QueueRef = A) -> list[bytes]:
    parts = reader.read(queue, 0, 9, bytes_max=1)
    return [body for _, columns, *span in parts for body in columns.bodies[slice(*span)]]


def answer_in_part(broker: Any, queue: QueueRef, request: Any) -> None:
    """Answers with the first batch alone."""
    request.answer(encode_fetch_answer(FetchAnswer([])), broker.batches[queue][0])


async def elect(old: Any, new: Any) -> None:
    """The old leader is gone, and the other one leads."""
    new.is_replica = False
    await old.stop()


async def test_a_read_goes_on_with_the_next_leader(broker: Any, other: Any) -> None:
    broker.held = {FETCH}
    with await aside(lambda: opened(broker, other)) as reader:
        reading = asyncio.create_task(aside(lambda: read(reader)))
        answer_in_part(broker, A, await broker.next(FETCH))
        await broker.next(FETCH)
        await elect(broker, other)
        assert await reading == ALL
    # What came already is not asked for again.
    (asked,) = [decode(Fetch, one.body) for one in other.seen if one.code == FETCH]
    assert [one.offset for one in asked.queues] == [3]


async def test_two_reads_at_once_go_on_with_the_next_leader(broker: Any, other: Any) -> None:
    broker.held = {FETCH}

    def both(reader: BlockingReader) -> list[list[bytes]]:
        pairs = zip(
            reader.read(A, 0, 9, bytes_max=1), reader.read(B, 0, 9, bytes_max=1), strict=True
        )
        return [[*one[1].bodies, *two[1].bodies] for one, two in pairs]

    with await aside(lambda: opened(broker, other)) as reader:
        reading = asyncio.create_task(aside(lambda: both(reader)))
        for queue in (A, B):
            answer_in_part(broker, queue, await broker.next(FETCH))
            await broker.next(FETCH)
        await elect(broker, other)
        parts = await reading
    assert [body for part in parts for body in part[:3]] == ALL
    assert all(part[:3] == part[3:] for part in parts)


async def test_a_leader_that_leads_no_longer_is_left(broker: Any, other: Any) -> None:
    broker.held = {FETCH, RANGES}
    with await aside(lambda: opened(broker, other)) as reader:
        reading = asyncio.create_task(aside(lambda: read(reader)))
        request = await broker.next(FETCH)
        broker.is_replica, other.is_replica = True, False
        request.refuse(NotLeader("another one leads"))
        assert await reading == ALL


async def test_a_question_goes_to_the_next_leader(broker: Any, other: Any) -> None:
    broker.held = {RANGES}
    with await aside(lambda: opened(broker, other)) as reader:
        asked = asyncio.create_task(aside(lambda: reader.ranges(["t"])))
        await broker.next(RANGES)
        await elect(broker, other)
        assert await asked == [QueueRange("t", number, 0, 9, epoch=1) for number in range(2)]
        # Which it goes on to ask; a refusal is none of a leader that is gone.
        with pytest.raises(TopicNotFound):
            await aside(lambda: reader.ranges(["missing"]))
        await aside(lambda: reader.commit("g", {A: 5}))
    assert other.offsets["g", A] == 5


async def test_a_lone_broker_is_not_asked_again(broker: Any, other: Any) -> None:
    broker.held = {RANGES}
    with await aside(lambda: opened(broker)) as reader:
        asked = asyncio.create_task(aside(lambda: reader.ranges(["t"])))
        await broker.next(RANGES)
        broker.drop()
        with pytest.raises(ConnectionLost):
            await asked
        with pytest.raises(Closed):
            await aside(lambda: reader.ranges(["t"]))
    assert broker.count(RANGES) == 1


async def test_a_group_without_a_leader_is_given_up_after_a_time(broker: Any, other: Any) -> None:
    broker.held = {RANGES}
    with await aside(lambda: opened(broker, other, timeout_ms=3_000)) as reader:
        asked = asyncio.create_task(aside(lambda: reader.ranges(["t"])))
        await broker.next(RANGES)
        await broker.stop()
        with pytest.raises(ConnectionLost, match="no broker answers at"):
            await asked


async def test_a_leader_that_is_closed_asks_none_again(broker: Any, other: Any) -> None:
    leader = Leader(f"{broker.address},{other.address}", timeout_ms=20_000)
    asked = await aside(lambda: leader.ask(QueueRangesAnswer, RANGES, QueueRanges(["t"])))
    assert len(asked.ranges) == 2
    leader.close()
    with pytest.raises(Closed):
        leader.ask(QueueRangesAnswer, RANGES, QueueRanges(["t"]))
