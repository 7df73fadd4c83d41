"""The store's parts together: what a restart keeps, and what it makes of damaged files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace_mq.errors import (
    DataCorrupt,
    FormatTooNew,
    MessageQueueError,
    SequenceGap,
    StoreFull,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    decode_records,
    read_header,
)
from headrace_mq.store.checkpoint import write_checkpoint
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


async def test_everything_survives_a_close_and_a_kill(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    expected: dict[QueueRef, list[bytes]] = {}
    for n in range(60):
        queue, body = QueueRef("orders", n % 3), b"%d" % n * 800
        retention = "forever" if n % 3 else "transient"
        await put(store, make_batch(body, queue=n % 3), retention=retention)
        expected.setdefault(queue, []).append(body)
        if n == 30:
            # As after a kill: the files as they are, nothing of the old process.
            store._release()
            store = open_store()
        elif n == 45:
            await store.aclose()
            store = open_store()
    for queue, sent in expected.items():
        assert bodies(store, queue) == sent
    assert store.damage == []
    assert len(list((store._directory / "forever").iterdir())) > 1
    assert sorted(store.queues()) == [
        (QueueRef("orders", 0), "transient"),
        (QueueRef("orders", 1), "forever"),
        (QueueRef("orders", 2), "forever"),
    ]


async def test_a_second_broker_is_refused_until_the_first_is_gone(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    with pytest.raises(MessageQueueError, match="another broker uses"):
        open_store()
    await store.aclose()
    open_store()


async def test_a_directory_that_cannot_be_used_is_named(
    open_store: OpenStore, tmp_path: Path
) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(MessageQueueError, match=f"the store in {tmp_path}/store cannot be opened"):
        open_store()


async def test_missing_parents_of_the_directory_are_made(
    open_store: OpenStore, tmp_path: Path, make_batch: MakeBatch
) -> None:
    store = open_store(directory=tmp_path / "a/b/c")
    await put(store, make_batch())
    assert (tmp_path / "a/b/c/forever").is_dir()


@pytest.mark.parametrize("clean", [True, False])
async def test_repeated_batches_are_recognised_after_a_restart(
    open_store: OpenStore, make_batch: MakeBatch, clean: bool
) -> None:
    store = open_store()
    first = (1 << 32) - 3
    batches = [
        make_batch(b"a", b"b", producer=5, sequence=(first + 2 * n) % (1 << 32)) for n in range(8)
    ]
    await put(store, *batches)
    if clean:
        await store.aclose()
    else:
        store._release()
    store = open_store()
    results = [store.append(batch, retention="forever") for batch in batches]
    # The last five are remembered with their place.
    assert results == [(-1, True)] * 3 + [(2 * n, True) for n in range(3, 8)]
    following = (first + 16) % (1 << 32)
    assert await put(store, make_batch(b"c", producer=5, sequence=following)) == [(16, False)]
    with pytest.raises(SequenceGap):
        store.append(make_batch(b"e", producer=5, sequence=following + 2), retention="forever")


async def test_a_refused_group_never_comes_back_after_a_kill(
    open_store: OpenStore, make_batch: MakeBatch, files: Any
) -> None:
    store = open_store()
    await put(store, make_batch(b"kept"))
    files.write_error, files.write_some = OSError(28, "no space"), 1 << 20
    store.append(make_batch(b"lost" * 100), retention="forever")
    store.append(make_batch(b"lost", queue=1), retention="forever")
    with pytest.raises(StoreFull):
        await store.durable()
    files.write_error = None
    await put(store, make_batch(b"new"))
    store._release()
    store = open_store()
    assert bodies(store) == [b"kept", b"new"]
    assert store.queues() == [(ORDERS, "forever")]
    assert store.damage == []


async def test_a_batch_damaged_on_disk_is_left_out_and_reported(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store(tail_cache_bytes=0)
    await put(store, *[make_batch(b"%d" % n * 50) for n in range(4)])
    place = store._queues.get(ORDERS).index.find(1, 1)[0]  # type: ignore[union-attr]  # it was just written
    segment = store._logs["forever"].segments[0]
    data = bytearray(segment.read(place.position, place.length))
    data[-3] ^= 4
    segment.write(place.position, [bytes(data)])
    assert bodies(store) == [b"%d" % n * 50 for n in (0, 2, 3)]
    assert bodies(store, offset=1) == [b"2" * 50, b"3" * 50]
    (damage,) = store.damage
    assert (damage.log, damage.position, damage.length) == ("forever", *place.place)
    assert store.range(ORDERS) == (0, 4)


async def test_a_queue_whose_rest_is_damaged_reads_as_empty_until_more_comes(
    open_store: OpenStore, make_batch: MakeBatch, files: Any
) -> None:
    store = open_store(tail_cache_bytes=0)
    await put(store, make_batch(b"0"), make_batch(b"1"))
    files.read_error = OSError(5, "Input/output error")
    assert store.read(ORDERS, 0, 10_000) == []
    files.read_error = None
    assert store.range(ORDERS) == (2, 2)
    await put(store, make_batch(b"2"))
    assert bodies(store) == [b"2"]


@pytest.mark.parametrize("clean", [True, False])
async def test_offsets_of_a_damaged_last_batch_are_never_given_again(
    open_store: OpenStore, make_batch: MakeBatch, clean: bool, tmp_path: Path
) -> None:
    store = open_store()
    await put(store, make_batch(b"0", producer=3), make_batch(b"other", queue=1))
    await put(store, make_batch(b"1", b"2", producer=3, sequence=1))
    position = store._queues.get(ORDERS).index.find(1, 1)[0].position  # type: ignore[union-attr]  # see above
    if clean:
        await store.aclose()
    else:
        await put(store, make_batch(b"behind", queue=1))
        store._release()
    path = next((tmp_path / "store/forever").iterdir())
    content = bytearray(path.read_bytes())
    content[4_096 + position + 125] ^= 1
    path.write_bytes(content)
    store = open_store()
    assert [damage.position for damage in store.damage] == [position]
    assert store.range(ORDERS) == (0, 3)
    assert await put(store, make_batch(b"3", producer=3, sequence=3)) == [(3, False)]
    assert bodies(store) == [b"0", b"3"]


async def test_a_missing_segment_stops_the_start_after_a_clean_end(
    open_store: OpenStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    store = open_store()
    await put(store, make_batch(b"0"))
    await store.aclose()
    for path in (tmp_path / "store/forever").iterdir():
        path.unlink()
    with pytest.raises(DataCorrupt, match="a segment file is missing; put it back"):
        open_store()


async def test_a_damaged_checkpoint_is_reported_and_the_log_counts(
    open_store: OpenStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    store = open_store()
    await put(store, make_batch(b"0"))
    await store.aclose()
    path = tmp_path / "store/store.checkpoint"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    store = open_store()
    assert bodies(store) == [b"0"]
    assert [damage.log for damage in store.damage] == ["store.checkpoint"]


async def test_a_checkpoint_of_something_else_is_reported(
    open_store: OpenStore, files: Any, tmp_path: Path
) -> None:
    await open_store().aclose()
    payload = msgspec.msgpack.encode({"something": "else"})
    write_checkpoint(files, tmp_path / "store/store.checkpoint", payload)
    assert len(open_store().damage) == 1


async def test_files_of_a_newer_version_stop_the_start(
    open_store: OpenStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    store = open_store()
    await put(store, make_batch(b"0"))
    await store.aclose()
    for path in [*(tmp_path / "store/forever").iterdir(), tmp_path / "store/store.checkpoint"]:
        content = path.read_bytes()
        path.write_bytes(content[:8] + b"\x63\0" + content[10:])
        with pytest.raises(FormatTooNew, match="format 99"):
            open_store()
        path.write_bytes(content)
    open_store()


async def test_a_failed_checkpoint_does_not_fail_the_close(
    open_store: OpenStore, make_batch: MakeBatch, files: Any
) -> None:
    store = open_store()
    await put(store, make_batch(b"0"))
    files.write_error = OSError(28, "no space")
    await store.aclose()
    files.write_error = None
    assert bodies(open_store()) == [b"0"]


async def test_a_topic_of_the_longest_name_is_kept(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    topic = "t" * 127
    await put(store, make_batch(b"x", topic=topic, queue=(1 << 32) - 1))
    store._release()
    assert bodies(open_store(), QueueRef(topic, (1 << 32) - 1)) == [b"x"]
