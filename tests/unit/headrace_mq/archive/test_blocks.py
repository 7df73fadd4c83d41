import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.archive.blocks import JOBS_MAX, Blocks
from headrace_mq.archive.rebuilt import ArchivedRow
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header

QUEUE = QueueRef("orders", 0)


def row(offset: int, **changed: Any) -> ArchivedRow:
    plain = (offset, offset, offset, 1, None, "", "", "{}", b"x" * 10, 5, 6, 7, 0, 1, 0)
    return ArchivedRow(*plain)._replace(**changed)


class Reader:
    """Reads blocks from a shelf, and waits for what comes."""

    def __init__(self, shelf: Any, **changed: Any) -> None:
        self.shelf = shelf
        self.arrived: asyncio.Queue[Collection[QueueRef]] = asyncio.Queue()
        values = {"messages_max": 10, "block_bytes_max": 1_000, "cache_bytes": 100_000}
        self.blocks = Blocks(shelf.block, self.arrived.put_nowait, **(values | changed))

    async def read(self, offset: int, before: int, bytes_max: int = 10_000) -> list[int]:
        found = self.blocks.read(QUEUE, offset, bytes_max, before)
        while found is None:
            await self.arrived.get()
            found = self.blocks.read(QUEUE, offset, bytes_max, before)
        return [read_header(batch).base_offset for batch in found]

    def asked(self) -> list[int]:
        return [asked[2] for asked in self.shelf.asked]


@pytest.fixture
def reader(shelf: Any) -> Callable[..., Reader]:
    def make(offsets: Collection[int], **changed: Any) -> Reader:
        for offset in offsets:
            shelf.put(QUEUE, row(offset))
        return Reader(shelf, **changed)

    return make


async def test_one_question_brings_a_block_of_messages(reader: Callable[..., Reader]) -> None:
    one = reader(range(25))
    assert await one.read(3, 25) == list(range(3, 13))
    assert await one.read(8, 25, bytes_max=1) == [8]
    assert one.asked().count(3) == 1
    assert set(one.asked()) <= {3, 13}
    await one.blocks.aclose()


async def test_the_next_block_is_asked_for_before_it_is_needed(
    reader: Callable[..., Reader],
) -> None:
    one = reader(range(25))
    assert await one.read(0, 25) == list(range(10))
    await one.arrived.get()
    assert one.blocks.read(QUEUE, 10, 10_000, 25) is not None
    await one.blocks.aclose()


async def test_offsets_without_a_row_are_skipped(reader: Callable[..., Reader]) -> None:
    one = reader([*range(3), *range(40, 45)])
    assert await one.read(3, 60) == [40, 41, 42, 43, 44]
    assert await one.read(45, 60) == []
    await one.blocks.aclose()


async def test_blocks_leave_messages_that_the_log_holds_to_the_log(
    reader: Callable[..., Reader],
) -> None:
    one = reader(range(20))
    assert await one.read(5, 7) == [5, 6]
    await one.blocks.aclose()


async def test_a_batch_kept_whole_is_found_by_each_of_its_offsets(
    reader: Callable[..., Reader], batch: Callable[..., bytearray]
) -> None:
    one = reader([0])
    whole = bytes(batch(QUEUE, [b"a"] * 4, offset=1))
    one.shelf.put(QUEUE, row(1, records=4, batch=whole))
    one.shelf.put(QUEUE, row(5))
    assert await one.read(3, 6) == [1, 5]
    await one.blocks.aclose()


async def test_memory_for_blocks_is_bounded_and_the_latest_stays(
    reader: Callable[..., Reader],
) -> None:
    one = reader(range(100), cache_bytes=1)
    for offset in range(0, 100, 10):
        assert (await one.read(offset, 100))[0] == offset
    assert len(one.blocks._blocks) <= 2
    assert await one.read(0, 100) == list(range(10))
    await one.blocks.aclose()


async def test_a_block_ends_where_it_has_enough_bytes(reader: Callable[..., Reader]) -> None:
    one = reader(range(20), block_bytes_max=30)
    assert await one.read(0, 20) == [0, 1, 2]
    assert await one.read(3, 20) == [3, 4, 5]
    await one.blocks.aclose()


async def test_the_next_read_queries_a_database_again_that_did_not_answer(
    reader: Callable[..., Reader],
) -> None:
    one = reader(range(5))
    one.shelf.failing = ArchiveUnavailable("away")
    with capture_logs() as logs:
        assert one.blocks.read(QUEUE, 0, 100, 5) is None
        (job,) = one.blocks._jobs.values()
        await asyncio.wait([job])
        await asyncio.sleep(0)
    assert [line["event"] for line in logs] == ["old messages cannot be read from the archive"]
    assert one.arrived.empty()
    one.shelf.failing = None
    assert await one.read(0, 5) == [0, 1, 2, 3, 4]
    await one.blocks.aclose()


async def test_only_so_many_blocks_are_on_their_way(reader: Callable[..., Reader]) -> None:
    one = reader([])
    queues = [QueueRef("orders", n) for n in range(JOBS_MAX + 3)]
    for queue in queues:
        one.shelf.put(queue, row(0))
        assert one.blocks.read(queue, 0, 100, 1) is None
    assert len(one.blocks._jobs) == JOBS_MAX
    while any(one.blocks.read(queue, 0, 100, 1) is None for queue in queues):
        await one.arrived.get()
        assert len(one.blocks._jobs) <= JOBS_MAX
    await one.blocks.aclose()
