import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import (
    Closed,
    ConnectionLost,
    CorruptBatch,
    DataCorrupt,
    OffsetOutOfRange,
    TooManyConnections,
    TopicNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader
from headrace_mq.protocol.bodies import (
    ErrorAnswer,
    FetchAnswer,
    QueueRange,
    encode,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER

FETCH = RequestCode.FETCH
A, B = QueueRef("t", 0), QueueRef("t", 1)
T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Runs blocking work beside the broker, which lives on this loop."""
    return await asyncio.to_thread(work)


@pytest.fixture
async def reader(broker: Any) -> AsyncIterator[BlockingReader]:
    broker.topics["t"] = 2
    reader = await aside(lambda: BlockingReader(broker.address, timeout_ms=60_000))
    yield reader
    reader.close()


def bodies(
    reader: BlockingReader, start: int, end: int, queue: QueueRef = A, **options: Any
) -> Any:
    return [
        columns.bodies[first:last]
        for _, columns, first, last in reader.read(queue, start, end, **options)
    ]


async def test_ranges_and_committed_offsets_are_read(broker: Any, reader: BlockingReader) -> None:
    broker.first[B] = 4
    broker.append(A, [b"a", b"b"])
    broker.offsets["g", A] = 1
    assert await aside(lambda: reader.ranges(["t"])) == [
        QueueRange("t", 0, 0, 2, epoch=1),
        QueueRange("t", 1, 4, 4, epoch=1),
    ]
    broker.epochs, broker.changed[A] = (3, 2), 1
    known = await aside(lambda: reader.ranges(["t"], {A: 1, B: 1}))
    assert [(one.epoch, one.changed_from) for one in known] == [(3, 1), (3, -1)]
    assert await aside(lambda: reader.committed("g", ["t"])) == {A: 1, B: -1}
    # This broker tells of no identities, as those of a version before.
    assert not await aside(lambda: reader.is_settled("t"))


async def test_a_refusal_is_raised(reader: BlockingReader) -> None:
    with pytest.raises(TopicNotFound):
        await aside(lambda: reader.ranges(["missing"]))


async def test_a_range_is_read_to_the_record(broker: Any, reader: BlockingReader) -> None:
    for first in (0, 3, 6):
        broker.append(A, [b"%d" % n for n in range(first, first + 3)])
    assert await aside(lambda: bodies(reader, 0, 9)) == [
        [b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6", b"7", b"8"],
    ]  # fmt: skip
    assert await aside(lambda: bodies(reader, 2, 7)) == [[b"2"], [b"3", b"4", b"5"], [b"6"]]
    assert await aside(lambda: bodies(reader, 4, 5)) == [[b"4"]]
    assert await aside(lambda: bodies(reader, 4, 4)) == []


async def test_the_next_answer_is_asked_for_while_one_is_worked_on(
    broker: Any, reader: BlockingReader
) -> None:
    batches = [broker.append(A, [b"%d" % n]) for n in range(3)]
    broker.held = {FETCH}
    reading = asyncio.create_task(aside(lambda: bodies(reader, 0, 3)))
    for batch in batches:
        (await broker.next(FETCH)).answer(encode_fetch_answer(FetchAnswer([])), batch)
    assert await reading == [[b"0"], [b"1"], [b"2"]]
    assert broker.count(FETCH) == 3


async def test_two_reads_at_once_do_not_take_each_others_answers(
    broker: Any, reader: BlockingReader
) -> None:
    for queue in (A, B):
        for number in range(3):
            broker.append(queue, [b"%d.%d" % (queue.queue_id, number)])

    def both() -> list[list[bytes]]:
        pairs = zip(reader.read(A, 0, 3), reader.read(B, 0, 3), strict=True)
        return [[*a[1].bodies, *b[1].bodies] for a, b in pairs]

    assert await aside(both) == [[b"0.%d" % n, b"1.%d" % n] for n in range(3)]


async def test_a_read_that_is_given_up_leaves_the_connection_usable(
    broker: Any, reader: BlockingReader
) -> None:
    batches = [broker.append(A, [b"%d" % n]) for n in range(2)]
    broker.held = {FETCH}

    def first_only() -> list[bytes]:
        reading = reader.read(A, 0, 2)
        _, columns, _, _ = next(reading)
        reading.close()  # type: ignore[attr-defined]  # it is a generator
        return columns.bodies

    reading = asyncio.create_task(aside(first_only))
    (await broker.next(FETCH)).answer(encode_fetch_answer(FetchAnswer([])), batches[0])
    given_up = await broker.next(FETCH)
    assert await reading == [b"0"]
    given_up.answer(encode_fetch_answer(FetchAnswer([])), batches[1])
    assert len(await aside(lambda: reader.ranges(["t"]))) == 2
    assert not reader._leader.connection()._arrived
    assert not reader._leader.connection()._expected


async def test_reading_what_is_not_held_is_an_error(broker: Any, reader: BlockingReader) -> None:
    broker.first[A] = 5
    broker.append(A, [b"x"])
    for start in (0, 9):
        with pytest.raises(OffsetOutOfRange):
            await aside(lambda start=start: bodies(reader, start, 12))  # type: ignore[misc]  # lambda


async def test_reading_past_the_end_is_an_error_after_what_there_is(
    broker: Any, reader: BlockingReader
) -> None:
    batch = broker.append(A, [b"x"])
    broker.held = {FETCH}
    got = []

    def read() -> None:
        for part in reader.read(A, 0, 2):
            got.append(part[1].bodies)

    reading = asyncio.create_task(aside(read))
    (await broker.next(FETCH)).answer(encode_fetch_answer(FetchAnswer([])), batch)
    (await broker.next(FETCH)).answer(encode_fetch_answer(FetchAnswer([])))
    with pytest.raises(OffsetOutOfRange, match="t/0 has nothing at offset 1 yet"):
        await reading
    assert got == [[b"x"]]


async def test_offsets_that_are_missing_in_the_middle_are_passed_over(
    broker: Any, reader: BlockingReader
) -> None:
    broker.append(A, [b"a"])
    broker.append(A, [b"b"], base=5)
    assert await aside(lambda: bodies(reader, 0, 6)) == [[b"a"], [b"b"]]


@pytest.mark.parametrize(("at", "error"), [(-1, CorruptBatch), (20, DataCorrupt)])
async def test_a_damaged_batch_is_an_error(
    broker: Any, reader: BlockingReader, at: int, error: type[Exception]
) -> None:
    damaged = bytearray(broker.append(A, [b"a"]))
    damaged[at] ^= 1
    broker.batches[A] = [bytes(damaged)]
    broker.held = {FETCH}
    reading = asyncio.create_task(aside(lambda: bodies(reader, 0, 1)))
    (await broker.next(FETCH)).answer(encode_fetch_answer(FetchAnswer([])), bytes(damaged))
    with pytest.raises(error):
        await reading


async def test_a_batch_of_another_queue_is_an_error(broker: Any, reader: BlockingReader) -> None:
    other = broker.append(B, [b"b"])
    broker.held = {FETCH}
    reading = asyncio.create_task(aside(lambda: bodies(reader, 0, 1)))
    (await broker.next(FETCH)).answer(encode_fetch_answer(FetchAnswer([])), other)
    with pytest.raises(DataCorrupt, match="a batch of t/1 as one of t/0"):
        await reading


@pytest.mark.parametrize("bytes_max", [0, (32 << 20) + 1])
async def test_a_fetch_has_a_size(reader: BlockingReader, bytes_max: int) -> None:
    with pytest.raises(ValueError, match="bytes_max"):
        bodies(reader, 0, 1, bytes_max=bytes_max)


async def test_a_broker_that_goes_away_is_an_error(broker: Any, reader: BlockingReader) -> None:
    await broker.stop()
    with pytest.raises(ConnectionLost, match=f"the connection to {broker.address} ended"):
        await aside(lambda: bodies(reader, 0, 1))
    with pytest.raises(Closed):
        reader.ranges(["t"])


async def test_the_block_closes_the_connection(broker: Any) -> None:
    def use() -> BlockingReader:
        with BlockingReader(broker.address) as reader:
            pass
        return reader

    reader = await aside(use)
    with pytest.raises(Closed):
        reader.ranges(["t"])


async def test_batches_that_are_not_wanted_are_passed_over_unread(
    broker: Any, reader: BlockingReader
) -> None:
    broker.append(A, [b"a"])
    damaged = bytearray(broker.append(A, [b"b"]))
    damaged[-1] ^= 1
    broker.batches[A][1] = bytes(damaged)
    broker.append(A, [b"c"])
    asked: list[int] = []

    def wanted(header: BatchHeader) -> bool:
        asked.append(header.base_offset)
        return header.base_offset != 1

    assert await aside(lambda: bodies(reader, 0, 3, wanted=wanted)) == [[b"a"], [b"c"]]
    assert asked == [0, 1, 2]


async def test_an_error_of_the_broker_about_the_connection_is_raised(
    broker: Any, reader: BlockingReader
) -> None:
    broker.held = {FETCH}
    reading = asyncio.create_task(aside(lambda: bodies(reader, 0, 1)))
    request = await broker.next(FETCH)
    sentence = encode(ErrorAnswer("close some"))
    request.peer.send(TooManyConnections.code, 0, sentence, flags=FLAG_ANSWER)
    with pytest.raises(TooManyConnections, match="close some"):
        await reading
    with pytest.raises(Closed):
        await aside(lambda: reader.ranges(["t"]))


async def test_offsets_are_committed_without_joining_the_group(
    broker: Any, reader: BlockingReader
) -> None:
    broker.append(A, [b"a"])
    await aside(lambda: reader.commit("g", {A: 1, B: 0}))
    assert await aside(lambda: reader.committed("g", ["t"])) == {A: 1, B: 0}
