from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq.archive.archive_reader import ArchiveReader
from headrace_mq.archive.database import KeySearch
from headrace_mq.archive.pending_queries import QueryPending
from headrace_mq.archive.rebuilt import ArchivedRow
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.message import QueueRef
from headrace_mq.settings import ArchiveSettings

QUEUE = QueueRef("orders", 0)


def row(offset: int, **changed: Any) -> ArchivedRow:
    plain = (offset, offset * 10, offset, 1, None, "k", "", "{}", b"x", 5, 100 + offset, 7, 0, 1, 0)
    return ArchivedRow(*plain)._replace(**changed)


@pytest.fixture
def past(shelf: Any) -> ArchiveReader:
    """A reader of what was found to be its broker's archive."""
    made = unchecked(shelf)
    made.know({})
    return made


def unchecked(shelf: Any) -> ArchiveReader:
    return ArchiveReader(shelf, ArchiveSettings(url="postgresql://memory"))


async def answered(ask: Callable[[], Any]) -> Any:
    while True:
        try:
            return ask()
        except QueryPending as coming:
            await coming.answer


async def test_while_nothing_is_known_every_queue_begins_at_its_first_message(shelf: Any) -> None:
    past = unchecked(shelf)
    assert past.first(QUEUE, 50) == 0
    past.know({})
    assert past.first(QUEUE, 50) == 50


async def test_a_queue_begins_where_the_archive_does(past: ArchiveReader) -> None:
    past.know({QUEUE: 7})
    past.added({QUEUE: 30, QueueRef("new", 0): 4})
    assert past.first(QUEUE, 50) == 7
    assert past.first(QueueRef("new", 0), 9) == 4


async def test_the_first_offset_moves_up_when_rows_were_deleted(
    past: ArchiveReader, shelf: Any
) -> None:
    past.know({QUEUE: 0})
    arrived: list[object] = []
    past.on_arrived = arrived.append
    shelf.put(QUEUE, row(20))
    await past._block(QUEUE, 3, 10, 1_000)
    assert past.first(QUEUE, 50) == 20
    shelf.rows.clear()
    await past._block(QUEUE, 20, 10, 1_000)
    assert past.first(QUEUE, 50) == 50


@pytest.mark.parametrize(("time_ms", "found"), [(0, 3), (104, 4), (105, 8), (108, 8), (109, None)])
async def test_a_time_is_found_among_gaps(
    past: ArchiveReader, shelf: Any, time_ms: int, found: int | None
) -> None:
    for offset in (3, 4, 8):
        shelf.put(QUEUE, row(offset))
    past.know({QUEUE: 3})
    assert await answered(lambda: past.offset_at(QUEUE, time_ms, 10)) == found


async def test_a_time_that_only_the_log_holds_is_left_to_it(
    past: ArchiveReader, shelf: Any
) -> None:
    for offset in range(10):
        shelf.put(QUEUE, row(offset))
    past.know({QUEUE: 0})
    assert await answered(lambda: past.offset_at(QUEUE, 108, 8)) is None


async def test_the_append_time_is_unknown_while_the_database_is_away(
    past: ArchiveReader, shelf: Any
) -> None:
    shelf.put(QUEUE, row(4))
    assert await answered(lambda: past.stored_at(QUEUE, 2)) == (4, 104)
    shelf.failing = ArchiveUnavailable("away")
    assert await answered(lambda: past.stored_at(QUEUE, 3)) is None
    assert past.stored_at(QUEUE, 0) is None


async def test_a_database_is_asked_nothing_until_it_was_found_to_be_the_archive(
    shelf: Any,
) -> None:
    shelf.put(QUEUE, row(0))
    past = unchecked(shelf)
    arrived: list[object] = []
    past.on_arrived = arrived.append
    asks: list[Callable[[], Any]] = [
        lambda: past.offset_at(QUEUE, 100, 5),
        lambda: past.keyed(keyed()),
    ]
    for ask in asks:
        with pytest.raises(ArchiveUnavailable, match="whether memory is its archive"):
            await answered(ask)
    assert past.stored_at(QUEUE, 0) is None
    assert past.read(QUEUE, 0, 1_000, 5) is None
    (load,) = past.blocks._jobs.values()
    with pytest.raises(ArchiveUnavailable):
        await load
    assert (shelf.asked, arrived) == ([], [])

    past.know({QUEUE: 0})
    assert await answered(asks[0]) == 0
    assert await answered(lambda: past.stored_at(QUEUE, 0)) == (0, 100)
    assert [batch.base for _, batch in (await answered(asks[1]))[0]] == [0]
    past.read(QUEUE, 0, 1_000, 5)
    await next(iter(past.blocks._jobs.values()))
    assert past.read(QUEUE, 0, 1_000, 5)
    await past.aclose()


def keyed(**changed: Any) -> KeySearch:
    return KeySearch("orders", "k", 0, 1_000, 0, 1_000, 3)._replace(**changed)


async def test_a_search_goes_on_behind_the_last_batch_that_fits(
    past: ArchiveReader, shelf: Any
) -> None:
    for offset in range(5):
        shelf.put(QUEUE, row(offset))
    found, more = await answered(lambda: past.keyed(keyed()))
    assert [batch.base for _, batch in found] == [0, 1, 2]
    assert more == 30
    found, more = await answered(lambda: past.keyed(keyed(position=more)))
    assert [batch.base for _, batch in found] == [3, 4]
    assert more is None


async def test_a_batch_with_more_of_a_key_than_an_answer_holds_comes_as_a_whole(
    past: ArchiveReader, shelf: Any
) -> None:
    for offset in range(6):
        shelf.put(QUEUE, row(offset, log_position=40))
    shelf.put(QUEUE, row(6))
    found, more = await answered(lambda: past.keyed(keyed()))
    assert [batch.base for _, batch in found] == list(range(6))
    assert more == 41
    found, more = await answered(lambda: past.keyed(keyed(position=more)))
    assert [batch.base for _, batch in found] == [6]
    assert more is None
    await past.aclose()
