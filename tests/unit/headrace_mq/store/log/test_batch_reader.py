"""Reading without waiting: what memory holds, what the disk has to bring, and how much is held."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records
from headrace_mq.store.log import batch_reader
from headrace_mq.store.message_store import MessageStore

Told = asyncio.Queue[set[QueueRef]]
A, B = QueueRef("orders", 0), QueueRef("orders", 1)


@pytest.fixture
async def store(open_store: Callable[..., MessageStore]) -> MessageStore:
    return open_store()


@pytest.fixture
def told(store: MessageStore) -> Told:
    """The queues that readers are told of."""
    queues: Told = asyncio.Queue()
    store.on_visible = lambda some: queues.put_nowait(set(some))
    return queues


async def put(store: MessageStore, *batches: bytearray) -> None:
    for batch in batches:
        store.append(batch, retention="forever")
    await store.durable()


def bodies(batches: list[Any] | None) -> list[bytes]:
    assert batches is not None
    return [record.body for batch in batches for record in decode_records(batch)]


async def test_batches_not_in_memory_are_read_in_a_thread_and_then_reported(
    store: MessageStore, told: Told, make_batch: Any, files: Any
) -> None:
    await put(store, make_batch(b"a"), make_batch(b"b"))
    await told.get()
    files.cold = 0
    files.gate.clear()
    assert store.read_now(A, 0, 1 << 20) is None
    assert store.read_now(A, 0, 1 << 20) is None, "asked for again while it is under way"
    await asyncio.to_thread(files.waiting.wait, 20)
    # The loop goes on meanwhile, and so does reading what is there.
    store.append(make_batch(b"c", queue=1), retention="forever")
    assert store.read_now(A, 2, 1) == []
    files.gate.set()
    arrived = [await told.get(), await told.get()]
    assert {A} in arrived
    assert store.read_figures.disk_bytes_held > 0
    files.reads = 0
    assert bodies(store.read_now(A, 0, 1 << 20)) == [b"a", b"b"]
    assert files.reads == 0
    assert store.read_figures.disk_reads == 1
    assert store.read_figures.disk_bytes_held == 0


async def test_batches_in_memory_are_served_up_to_the_first_one_on_disk(
    store: MessageStore, told: Told, make_batch: Any, files: Any
) -> None:
    await put(store, make_batch(b"a"), make_batch(b"x" * 10_000, queue=1), make_batch(b"b"))
    await told.get()
    files.cold = 8_000
    assert bodies(store.read_now(A, 0, 1 << 20)) == [b"a"]
    assert store.read_figures.disk_reads == 0
    assert store.read_now(A, 1, 1 << 20) is None
    assert await told.get() == {A}
    assert bodies(store.read_now(A, 1, 1 << 20)) == [b"b"]


async def test_reads_wait_and_log_it_once_if_the_system_cannot_say_what_memory_holds(
    store: MessageStore, make_batch: Any, files: Any
) -> None:
    # So far apart that they are not read in one go.
    await put(store, make_batch(b"a"), make_batch(b"x" * 10_000, queue=1), make_batch(b"b"))
    files.cannot_tell = OSError(errno.EOPNOTSUPP, "Operation not supported")
    with capture_logs() as logs:
        for _ in range(2):
            assert bodies(store.read_now(A, 0, 1 << 20)) == [b"a", b"b"]
    assert [entry["log_level"] for entry in logs] == ["warning"]


async def test_a_sector_that_cannot_be_read_costs_the_batch_it_is_in(
    store: MessageStore, told: Told, make_batch: Any, files: Any
) -> None:
    await put(store, make_batch(b"a"), make_batch(b"b"), make_batch(b"c"))
    await told.get()
    files.cold = 0
    second = 4_096 + 32 + len(make_batch(b"a"))
    files.bad_byte = second + 60
    assert store.read_now(A, 0, 1 << 20) is None
    assert await told.get() == {A}
    assert bodies(store.read_now(A, 0, 1 << 20)) == [b"a", b"c"]
    assert [damage.position for damage in store.damage] == [second - 4_096]


async def test_batches_appended_during_a_read_come_with_the_next_read(
    store: MessageStore, told: Told, make_batch: Any, files: Any
) -> None:
    await put(store, make_batch(b"a"))
    await told.get()
    files.cold = 0
    assert store.read_now(A, 0, 1 << 20) is None
    await put(store, make_batch(b"b"))
    while store.read_figures.disk_bytes_held == 0:
        await told.get()
    assert bodies(store.read_now(A, 0, 1 << 20)) == [b"a"]
    assert store.read_now(A, 1, 1 << 20) is None


async def test_held_bytes_stay_below_the_limit_and_postponed_readers_get_a_call(
    store: MessageStore, told: Told, make_batch: Any, files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, make_batch(b"a" * 6_000), make_batch(b"b" * 6_000, queue=1))
    await told.get()
    monkeypatch.setattr(batch_reader, "HELD_BYTES_MAX", 10_000)
    files.cold = 0
    assert store.read_now(A, 0, 1) is None
    assert store.read_now(B, 0, 1) is None
    assert store.read_figures.disk_reads == 1
    assert await told.get() == {A, B}
    assert store.read_now(B, 0, 1) is None
    assert store.read_figures.disk_bytes_held == 0, "what nobody came for made room"
    assert await told.get() == {B}
    assert bodies(store.read_now(B, 0, 1)) == [b"b" * 6_000]


async def test_deleting_segments_waits_for_their_readers(
    store: MessageStore, make_batch: Any, files: Any
) -> None:
    for _ in range(3):
        await put(store, make_batch(b"x" * 50_000))
    files.cold = 0
    assert store.read_now(A, 0, 1) is None
    assert store.delete_segments("forever", store.segments("forever")[0].end) == 1
    assert not store._reader._jobs or all(job.done() for job in store._reader._jobs.values())
    assert store.damage == []


async def test_a_store_may_close_while_a_thread_reads(
    store: MessageStore, make_batch: Any, files: Any
) -> None:
    await put(store, make_batch(b"a"))
    files.cold = 0
    assert store.read_now(A, 0, 1) is None
    await store.aclose()
    assert store.damage == []
