import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq.archive.pending_queries import QueryPending
from headrace_mq.errors import OffsetOutOfRange
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records, read_header
from headrace_mq.protocol.scheduled import SCHEDULE_QUEUE
from headrace_mq.store.log.lookup import LookupQuery
from headrace_mq.store.message_store import MessageStore

QUEUE = QueueRef("orders", 0)
LARGE, LAST = bytes(60_000), b"last" * 2_000


async def emptied(archived: Callable[..., Any], batch: Callable[..., bytearray]) -> Any:
    """A store whose messages 0 to 5 are in the archive alone, and 6 in the log."""
    one = archived()
    for number in range(3):
        await one.append(batch(QUEUE, [b"a%d" % number, LARGE], keys=["k", f"k{number}"]))
        one.clock.advance(10)
    await one.append(batch(QUEUE, [LAST], keys=["k"]))
    one.archiver.start()
    await one.archiver.caught_up()
    assert one.delete_archived() == 3
    assert MessageStore.range(one.store, QUEUE) == (6, 7)
    return one


async def read(one: Any, offset: int) -> list[bytes]:
    arrived = asyncio.Event()
    one.store.on_visible = lambda queues: arrived.set()
    while (found := one.store.read_now(QUEUE, offset, 1 << 20)) is None:
        await arrived.wait()
        arrived.clear()
    return [record.body for batch in found for record in decode_records(batch)]


async def answered(ask: Callable[[], Any]) -> Any:
    while True:
        try:
            return ask()
        except QueryPending as coming:
            await coming.answer


async def test_readers_see_one_queue_from_the_archive_to_the_log(
    archived: Callable[..., Any], batch: Callable[..., bytearray]
) -> None:
    one = await emptied(archived, batch)
    assert one.store.range(QUEUE) == (0, 7)
    found: list[bytes] = []
    while len(found) < 7:
        found += await read(one, len(found))
    assert found == [b"a0", LARGE, b"a1", LARGE, b"a2", LARGE, LAST]
    with pytest.raises(OffsetOutOfRange):
        one.store.read_now(QUEUE, 8, 1)


async def test_reads_skip_messages_that_the_archive_lost(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = await emptied(archived, batch)
    shelf.rows[QUEUE] = [row for row in shelf.rows[QUEUE] if row.queue_offset < 2]
    assert await read(one, 2) == [LAST]


async def test_times_are_found_on_both_sides(
    archived: Callable[..., Any], batch: Callable[..., bytearray]
) -> None:
    one = await emptied(archived, batch)
    last_ms = one.store.stored_at(QUEUE, 6)
    places = [
        await answered(lambda at=at: one.store.offset_at(QUEUE, last_ms - at))
        for at in (0, 10, 20, 99)
    ]
    assert places == [6, 4, 2, 0]
    assert await answered(lambda: one.store.stored_at(QUEUE, 3)) == last_ms - 20


async def test_keys_are_found_on_both_sides(
    archived: Callable[..., Any], batch: Callable[..., bytearray]
) -> None:
    one = await emptied(archived, batch)
    found, cursor, offsets = 0, None, []
    for _ in range(9):
        part = await answered(
            lambda cursor=cursor: one.store.find(LookupQuery("orders", "k"), cursor)
        )
        found += part.messages
        offsets += [read_header(batch).base_offset for batch in part.batches]
        cursor = part.cursor
        if cursor is None:
            break
    assert (found, offsets) == (4, [0, 2, 4, 6])
    none = await answered(lambda: one.store.find(LookupQuery("orders", "k"), starts={QUEUE: 99}))
    assert none.batches == []


async def test_a_search_stops_at_a_batch_when_its_answer_is_full(
    archived: Callable[..., Any], batch: Callable[..., bytearray]
) -> None:
    one = await emptied(archived, batch)
    for bounds in ({"records_max": 1}, {"bytes_max": 1}):
        first = await answered(
            lambda bounds=bounds: one.store.find(LookupQuery("orders", "k"), **bounds)
        )
        assert first.messages == 1, bounds
    rest = await answered(lambda: one.store.find(LookupQuery("orders", "k"), first.cursor))
    assert [read_header(batch).base_offset for batch in rest.batches] == [2, 4]


async def test_the_brokers_own_journals_are_not_archived(
    archived: Callable[..., Any], batch: Callable[..., bytearray], shelf: Any
) -> None:
    one = archived()
    await one.append(batch(SCHEDULE_QUEUE, [b"later"]), batch(QUEUE, [b"now"]))
    one.archiver.start()
    await one.archiver.caught_up()
    assert shelf.rows.keys() == {QUEUE}
    assert one.store.range(SCHEDULE_QUEUE) == (0, 1)


async def test_nothing_is_archived_before_readers_may_see_it(
    archived: Callable[..., Any], batch: Callable[..., bytearray]
) -> None:
    one = archived()
    one.store.append(batch(QUEUE, [b"x"]), retention="transient")
    assert one.store.archivable("transient") == (0, 0)
    await one.store.durable()
    assert one.store.archivable("transient")[1] > 0
