"""What the broker relies on: append, durable and read."""

import asyncio
import random
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import (
    CorruptBatch,
    InvalidArgument,
    OffsetOutOfRange,
    SequenceGap,
    StoreFull,
    StoreReadOnly,
    UnsupportedVersion,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BATCH_RECORDS_MAX,
    check_body,
    check_head,
    decode_placed,
    decode_records,
    read_header,
)
from headrace_mq.protocol.sparse import thinned
from headrace_mq.settings import StoreSettings
from headrace_mq.store import message_store
from headrace_mq.store.message_store import Appended, MessageStore

ORDERS = QueueRef("orders", 0)
MakeBatch = Callable[..., bytearray]
OpenStore = Callable[..., MessageStore]


async def put(
    store: MessageStore, *batches: bytearray, retention: str = "forever"
) -> list[Appended]:
    results = [store.append(batch, retention=retention) for batch in batches]
    await store.durable()
    return results


def bodies(store: MessageStore, queue: QueueRef = ORDERS, offset: int | None = None) -> list[bytes]:
    """Every body from an offset on, read like a consumer reads."""
    first, end = store.range(queue)
    at = first if offset is None else offset
    found = []
    while at < end and (batches := store.read(queue, at, 1)):
        for batch in batches:
            found += [r.body for r in decode_records(batch) if r.offset >= at]
            at = read_header(batch).next_offset
    return found


async def test_an_appended_batch_is_read_as_it_was_sent(
    open_store: OpenStore, make_batch: MakeBatch, clock: Any
) -> None:
    store = open_store()
    sent = make_batch(b"a", b"b")
    assert await put(store, sent) == [Appended(0, duplicate=False)]
    (batch,) = store.read(ORDERS, 0, 1_000)
    check_head(batch)
    check_body(batch)
    header = read_header(batch)
    assert (header.base_offset, header.count, header.epoch) == (0, 2, 1)
    assert header.appended_at_ms == clock.now_ms()
    assert bytes(batch) == bytes(sent)
    assert store.range(ORDERS) == (0, 2)
    assert store.queues() == [(ORDERS, "forever")]


async def test_the_callers_buffer_may_be_used_again(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    batch = make_batch(b"first")
    view = memoryview(batch)
    store.append(view, retention="forever")
    view[:] = bytes(len(view))
    await store.durable()
    assert bodies(store) == [b"first"]


async def test_nothing_is_visible_before_it_is_durable(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    seen: list[Collection[QueueRef]] = []
    store.on_visible = seen.append
    store.append(make_batch(b"a"), retention="forever")
    store.append(make_batch(b"b", queue=1), retention="transient")
    assert store.range(ORDERS) == (0, 0)
    assert store.read(ORDERS, 0, 100) == []
    assert store.queues() == []
    assert seen == []
    await store.durable()
    assert list(map(list, seen)) == [[ORDERS, QueueRef("orders", 1)]]
    assert store.range(ORDERS) == (0, 1)
    assert sorted(store.queues()) == [(ORDERS, "forever"), (QueueRef("orders", 1), "transient")]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_reader_woken_for_new_batches_can_read_all_of_them_at_once(
    open_store: OpenStore, make_batch: MakeBatch, count: int
) -> None:
    store = open_store()
    await put(store, make_batch(b"old"))
    read: list[list[int] | None] = []

    def look(_: Collection[QueueRef]) -> None:
        for offset in (0, 1, 1 + count):
            found = store.read_now(ORDERS, offset, 10_000)
            assert found is not None
            read.append([read_header(batch).base_offset for batch in found])
        assert store.read_now(QueueRef("orders", 9), 0, 100) == []

    store.on_visible = look
    for number in range(count):
        store.append(make_batch(b"%d" % number), retention="forever")
    await store.durable()
    # The one that came alone is returned without a look at what may stand behind it: nothing does.
    assert read == [[*range(count + 1)], [*range(1, count + 1)], []]
    store.on_visible = None
    assert bodies(store) == [b"old", *(b"%d" % number for number in range(count))]


@pytest.mark.parametrize(
    ("number", "remedy"), [(28, "make room on the disk"), (24, r"LimitNOFILE, ulimit -n")]
)
async def test_a_segment_that_cannot_be_made_says_what_would_help(
    open_store: OpenStore, make_batch: MakeBatch, files: Any, number: int, remedy: str
) -> None:
    store = open_store()
    files.allocate_error = OSError(number, "as the system says it")
    store.append(make_batch(b"a"), retention="forever")
    with pytest.raises(StoreFull, match=remedy):
        await store.durable()
    files.allocate_error = None
    await put(store, make_batch(b"b"))
    assert bodies(store) == [b"b"]


def taken_bytes(folder: Path) -> int:
    """The disk that all files of a folder take, reserved blocks included."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


async def test_a_few_messages_take_a_few_mib_of_disk(
    open_store: OpenStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    store = open_store(segment_bytes=StoreSettings(directory=tmp_path).segment_bytes)
    for retention in ("forever", "transient", "compact"):
        await put(store, make_batch(b"x" * 1_000, topic=retention), retention=retention)
    assert taken_bytes(tmp_path) <= 16 << 20


async def test_reading_begins_at_the_batch_that_holds_the_offset(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    await put(store, make_batch(b"0", b"1", b"2"), make_batch(b"3"), make_batch(b"4", b"5"))
    assert [read_header(b).base_offset for b in store.read(ORDERS, 1, 10_000)] == [0, 3, 4]
    assert [read_header(b).base_offset for b in store.read(ORDERS, 3, 1)] == [3]
    size = len(store.read(ORDERS, 3, 1)[0])
    assert len(store.read(ORDERS, 3, size * 2)) == 1
    assert len(store.read(ORDERS, 3, size * 3)) == 2
    assert store.read(ORDERS, 6, 100) == []


@pytest.mark.parametrize(("queue", "offset"), [(ORDERS, -1), (ORDERS, 3), (QueueRef("x", 0), 1)])
async def test_reading_outside_the_range_is_refused(
    open_store: OpenStore, make_batch: MakeBatch, queue: QueueRef, offset: int
) -> None:
    store = open_store()
    await put(store, make_batch(b"0", b"1"))
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} of"):
        store.read(queue, offset, 100)


async def test_an_unknown_queue_is_empty(open_store: OpenStore) -> None:
    store = open_store()
    assert store.range(ORDERS) == (0, 0)
    assert store.read(ORDERS, 0, 100) == []


async def test_a_read_of_a_queue_finds_its_batches_between_those_of_others(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    for n in range(60):
        await put(store, make_batch(b"%d" % n * 40, queue=n % 2), make_batch(b"other", topic="t"))
    for queue in (0, 1):
        expected = [b"%d" % n * 40 for n in range(60) if n % 2 == queue]
        assert bodies(store, QueueRef("orders", queue)) == expected
        found = store.read(QueueRef("orders", queue), 0, 1 << 20)
        assert len(found) == 30
        assert store.read(QueueRef("orders", queue), 25, 1 << 20) == found[25:]


@pytest.mark.parametrize("damage", ["flip", "short", "long", "garbage", "empty"])
async def test_a_damaged_batch_is_refused_without_a_trace(
    open_store: OpenStore, make_batch: MakeBatch, damage: str
) -> None:
    store = open_store()
    batch = make_batch(b"body", producer=5)
    if damage == "flip":
        batch[-1] ^= 1
    elif damage == "short":
        del batch[-1]
    elif damage == "long":
        batch += b"x"
    else:
        batch = bytearray(b"garbage" * 30 if damage == "garbage" else b"")
    with pytest.raises(CorruptBatch):
        store.append(batch, retention="forever")
    assert store.durable().done()
    assert await put(store, make_batch(b"body", producer=5, sequence=9)) == [Appended(0, False)]


async def test_a_batch_of_a_newer_producer_is_refused_as_such(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    batch = make_batch()
    batch[4] += 2
    with pytest.raises(UnsupportedVersion, match="newer version"):
        open_store().append(batch, retention="forever")


async def test_more_records_than_a_batch_may_hold_are_refused(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    import google_crc32c

    batch = make_batch()
    struct.pack_into("<I", batch, 56, BATCH_RECORDS_MAX + 1)
    struct.pack_into("<I", batch, 48, google_crc32c.value(bytes(batch[52:])))
    with pytest.raises(InvalidArgument, match="at most 65536 records, not 65537"):
        open_store().append(batch, retention="forever")


async def test_a_producer_cannot_send_what_only_a_compaction_makes(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    batch = make_batch(b"a", b"b")
    header = read_header(batch)
    sparse = thinned(batch, header, *decode_placed(batch, header), [0])
    with pytest.raises(InvalidArgument, match="whole ones"):
        store.append(sparse, retention="forever")


async def test_retention_has_to_be_known_and_to_stay(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    with pytest.raises(ValueError, match="'weekly'"):
        store.append(make_batch(), retention="weekly")
    await put(store, make_batch())
    with pytest.raises(InvalidArgument, match="retention 'forever'"):
        store.append(make_batch(), retention="transient")


async def test_a_repeated_batch_is_recognised_before_and_after_it_is_durable(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    batch = make_batch(b"a", b"b", producer=5, sequence=100)
    assert store.append(batch, retention="forever") == (0, False)
    assert store.append(batch, retention="forever") == (0, True)
    waits = store.durable()
    assert not waits.done()
    await waits
    assert await put(store, make_batch(b"c", producer=5, sequence=102)) == [(2, False)]
    assert store.append(batch, retention="forever") == (0, True)
    assert bodies(store) == [b"a", b"b", b"c"]


async def test_a_missing_batch_is_noticed(open_store: OpenStore, make_batch: MakeBatch) -> None:
    store = open_store()
    await put(store, make_batch(b"a", producer=5, sequence=0))
    with pytest.raises(SequenceGap, match="1 is next from this producer to orders"):
        store.append(make_batch(b"c", producer=5, sequence=2), retention="forever")
    assert store.range(ORDERS) == (0, 1)


@pytest.mark.parametrize("error", [28, 122])
async def test_a_full_disk_takes_everything_back_and_resumes(
    open_store: OpenStore, make_batch: MakeBatch, files: Any, error: int
) -> None:
    store = open_store()
    await put(store, make_batch(b"kept", producer=5))
    files.write_error, files.write_some = OSError(error, "no space"), 200
    for queue in (0, 7):
        store.append(make_batch(b"lost", queue=queue, producer=5, sequence=1), retention="forever")
    store.append(make_batch(b"lost", producer=5, sequence=2), retention="forever")
    with pytest.raises(StoreFull, match="make room"):
        await store.durable()
    assert store.read_only is None
    assert store.range(ORDERS) == (0, 1)
    assert store.queues() == [(ORDERS, "forever")]
    assert bodies(store) == [b"kept"]
    files.write_error = None
    # The queue that got nothing may be kept elsewhere, so it was not remembered.
    await put(store, make_batch(b"new", queue=7, producer=5, sequence=40), retention="transient")
    assert await put(store, make_batch(b"again", producer=5, sequence=1)) == [(1, False)]
    await store.aclose()
    store = open_store()
    assert bodies(store) == [b"kept", b"again"]
    assert store.damage == []


async def test_after_a_failed_sync_nothing_is_accepted_and_reading_goes_on(
    open_store: OpenStore, make_batch: MakeBatch, files: Any
) -> None:
    store = open_store()
    await put(store, make_batch(b"kept"))
    files.sync_error = OSError(5, "Input/output error")
    store.append(make_batch(b"unknown"), retention="forever")
    with pytest.raises(StoreReadOnly, match="Input/output error"):
        await store.durable()
    files.sync_error = None
    assert "restart the broker" in str(store.read_only)
    with pytest.raises(StoreReadOnly, match="Input/output error"):
        store.append(make_batch(b"more"), retention="forever")
    assert bodies(store) == [b"kept"]
    await store.aclose()
    store = open_store()
    # The outcome was unknown; what recovery finds whole is there for good.
    assert bodies(store) in ([b"kept"], [b"kept", b"unknown"])
    await put(store, make_batch(b"new"))
    assert bodies(store)[-1] == b"new"


async def test_more_than_may_wait_for_the_disk_is_refused_without_a_trace(
    open_store: OpenStore, make_batch: MakeBatch, files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_store, "STAGED_BYTES_MAX", 1_000)
    store = open_store()
    batch = make_batch(bytes(600), producer=5)
    store.append(batch, retention="forever")
    with pytest.raises(StoreFull, match="wait for the disk"):
        store.append(make_batch(bytes(600), producer=5, sequence=1), retention="forever")
    await store.durable()
    assert await put(store, make_batch(bytes(600), producer=5, sequence=1)) == [(1, False)]


async def test_closing_twice_or_unopened_is_harmless_and_ends_appending(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    store.append(make_batch(b"staged"), retention="forever")
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreReadOnly, match="the store is closed"):
        store.append(make_batch(), retention="forever")
    assert bodies(open_store()) == [b"staged"]


async def test_on_a_timer_messages_are_visible_at_once_and_kept_by_a_close(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store(flush="interval", flush_interval_ms=3_600_000)
    await put(store, make_batch(b"0"))
    assert bodies(store) == [b"0"]
    await store.aclose()
    assert bodies(open_store()) == [b"0"]


async def test_many_tasks_that_append_and_wait_all_find_their_messages(
    open_store: OpenStore, make_batch: MakeBatch, files: Any
) -> None:
    store = open_store()
    chosen = random.Random(7)

    async def client(number: int) -> None:
        for n in range(20):
            files.sync_us = chosen.choice([0, 5_000])
            body = b"%d-%d" % (number, n)
            batch = make_batch(body, producer=number + 1, sequence=n, queue=number % 3)
            offset = store.append(batch, retention="forever").base_offset
            await store.durable()
            (found,) = store.read(QueueRef("orders", number % 3), offset, 1)
            assert decode_records(found)[0].body == body

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(client(number))
    assert sum(store.range(QueueRef("orders", queue))[1] for queue in range(3)) == 200


async def test_a_broken_listener_does_not_stop_the_store(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def broken(queues: Collection[QueueRef]) -> None:
        raise RuntimeError("listener")

    store.on_visible = broken
    for _ in range(2):
        await put(store, make_batch())
    assert len(told) == 2
    assert store.range(ORDERS) == (0, 2)
