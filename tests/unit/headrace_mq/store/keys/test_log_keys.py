"""Keys are collected behind the messages, in bounded steps, and written when they are durable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.store.keys.key_file import digest_of
from headrace_mq.store.keys.log_keys import LogKeys
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.message_store import MessageStore

OpenStore = Callable[..., MessageStore]


async def put(store: MessageStore, first: int, count: int, size: int = 300) -> None:
    for n in range(first, first + count):
        columns = Columns([f"key-{n}"], [], [], [b"x" * size], [])
        batch = encode_batch(QueueRef("orders", n % 2), columns, born_first_ms=0)
        store.append(batch, retention="forever")
    await store.durable()


def log_of(store: MessageStore) -> CommitLog:
    return store._logs["forever"]


def looked(log: CommitLog, key: str, position: int = 0, **times: int) -> list[int] | None:
    """What all blocks and drafts say of a key; None where a part is unknown."""
    found: list[int] = []
    while position < log.end:
        positions, position = log.keys.lookup(
            position, digest_of("orders", key), end=log.end,
            **{"from_ms": 0, "to_ms": 1 << 60} | times,
        )  # fmt: skip
        if positions is None:
            return None
        found += positions
    return found


def run(log: CommitLog, step_bytes: int = 1_000) -> None:
    while log.keys.step(log.end, step_bytes) or log.keys.due(log.synced) is not None:
        log.keys.write_due(log.synced)


def shrink(store: MessageStore, block_bytes: int = 4_000, keys_max: int = 1_000) -> LogKeys:
    keys = log_of(store).keys
    keys._block_bytes, keys._keys_max = block_bytes, keys_max
    return keys


async def test_a_step_reads_about_as_much_as_it_may(open_store: OpenStore, files: Any) -> None:
    store = open_store()
    await put(store, 0, 50)
    log = log_of(store)
    steps = 0
    while log.keys.step(log.end, 2_000):
        steps += 1
    assert log.end / 2_000 / 2 < steps <= log.end / 2_000
    found = looked(log, "key-30")
    assert found is not None
    assert len(found) == 1
    # Nothing is left to read, and nothing is read for nothing.
    reads = files.reads
    assert not log.keys.step(log.end, 2_000)
    assert files.reads == reads


async def test_keys_not_read_yet_are_unknown_and_keys_being_written_are_known(
    open_store: OpenStore,
) -> None:
    store = open_store()
    keys = shrink(store)
    await put(store, 0, 5)
    log = log_of(store)
    assert looked(log, "key-0") is None
    keys.step(log.end, 1 << 20)
    assert len(looked(log, "key-0") or []) == 1
    await put(store, 5, 20)
    keys.step(log.end, 1 << 20)
    draft = keys.due(log.synced)
    assert draft is not None
    written = keys.write(draft)
    assert len(looked(log, "key-20") or []) == 1
    keys.publish(written)
    assert len(looked(log, "key-20") or []) == 1
    assert keys.due(log.synced) is None


async def test_a_block_waits_until_its_range_is_durable(open_store: OpenStore) -> None:
    store = open_store()
    keys = shrink(store)
    await put(store, 0, 30)
    log = log_of(store)
    keys.step(log.end, 1 << 20)
    draft = keys.due(log.end)
    assert draft is not None
    assert keys.due(draft.end - 1) is None
    # One waits, and no more is collected: memory is bounded however slow the disk is.
    await put(store, 30, 30)
    assert not keys.step(log.end, 1 << 20)
    assert keys.due(draft.end - 1) is None


@pytest.mark.parametrize("bound", [{"block_bytes": 4_000}, {"keys_max": 10}])
async def test_blocks_are_cut_by_bytes_and_by_keys_and_at_a_segments_end(
    open_store: OpenStore, bound: dict[str, int]
) -> None:
    store = open_store()
    shrink(store, **bound)
    await put(store, 0, 200)
    await put(store, 200, 200)
    log = log_of(store)
    run(log)
    assert len(log.segments) > 1
    files = list(log.keys.files())
    assert files[0].end == log.segments[1].base
    for block in files[0].blocks[:-1]:
        if "keys_max" in bound:
            assert block.entries == 10
        else:
            assert 4_000 <= block.end - block.start < 5_500


async def test_a_start_takes_the_blocks_and_reads_only_behind_them(
    open_store: OpenStore, files: Any
) -> None:
    store = open_store()
    shrink(store)
    await put(store, 0, 300)
    run(log_of(store))
    await store.aclose()
    store = open_store()
    log = log_of(store)
    assert len(log.segments) > 1
    begun = [file.end for file in log.keys.files()]
    assert begun[:-1] == [segment.base for segment in log.segments[1:]]
    assert 0 <= log.end - begun[-1] < 6_000
    assert log.keys.lookup(
        0, digest_of("orders", "key-3"), from_ms=0, to_ms=1 << 60, end=log.end
    ).positions
    run(log)
    assert len(looked(log, "key-299") or []) == 1


async def test_a_damaged_page_costs_its_block_and_those_behind_it_until_they_are_made_again(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    shrink(store)
    await put(store, 0, 300)
    log = log_of(store)
    run(log)
    path = min((tmp_path / "store/forever").glob("*.keys"))
    good = path.read_bytes()
    first, second = next(iter(log.keys.files())).blocks[:2]
    pages = slice(second.at + 96, second.at + second.size - second.directory_bytes)
    path.write_bytes(good[: pages.start] + bytes(pages.stop - pages.start) + good[pages.stop :])
    for n in range(300):
        looked(log, f"key-{n}")
    assert next(iter(log.keys.files())).blocks == [first]
    assert looked(log, "key-299") is None
    run(log)
    assert path.read_bytes() == good
    assert len(looked(log, "key-299") or []) == 1


async def test_a_disk_that_refuses_a_block_is_asked_again_later(
    open_store: OpenStore, files: Any
) -> None:
    store = open_store()
    keys = shrink(store)
    await put(store, 0, 30)
    log = log_of(store)
    files.write_error = OSError(28, "No space left on device")
    store.index_keys(1 << 20)
    await store._writer.settled()
    assert keys.due(log.synced) is None
    assert len(looked(log, "key-1") or []) == 1
    files.write_error = None
    steps = 0
    while keys.due(log.synced) is None:
        assert not keys.step(log.end, 1_000)
        steps += 1
    assert 10 < steps < 1_000
    keys.write_due(log.synced)
    assert len(next(keys.files()).blocks) == 1


async def test_a_segment_that_is_deleted_takes_its_keys_along(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    keys = shrink(store)
    await put(store, 0, 200)
    await put(store, 200, 200)
    log = log_of(store)
    # One block of the first segment is being written, another one has begun.
    keys.step(log.end, 1 << 20)
    draft = keys.due(log.synced)
    assert draft is not None
    written = keys.write(draft)
    assert store.delete_segments("forever", log.segments[1].base) == 1
    keys.publish(written)
    assert keys.due(log.synced) is None
    assert not list((tmp_path / "store/forever").glob("00000000000000000000.*"))
    run(log)
    assert [file.path.name for file in keys.files()] == [
        path.name for path in sorted((tmp_path / "store/forever").glob("*.keys"))
    ]
    assert len(looked(log, "key-399", log.segments[0].base) or []) == 1


async def test_times_leave_blocks_out(open_store: OpenStore, clock: Any, files: Any) -> None:
    store = open_store()
    shrink(store)
    began = clock.ms
    for n in range(0, 60, 20):
        clock.ms = began + n * 1_000
        await put(store, n, 20)
    log = log_of(store)
    run(log)
    reads = files.reads
    assert looked(log, "key-5", from_ms=began + 90_000) == []
    assert looked(log, "key-5", to_ms=began) == []
    # What is still a draft needs no reading either.
    assert files.reads == reads
