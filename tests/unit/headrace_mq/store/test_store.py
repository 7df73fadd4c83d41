"""The store's parts together: what a restart keeps, and what it makes of damaged files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import pytest

from headrace_mq.errors import (
    DataCorrupt,
    FormatTooNew,
    MessageQueueError,
    OffsetOutOfRange,
    SequenceGap,
    StoreFull,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    Columns,
    decode_records,
    encode_batch,
    read_header,
)
from headrace_mq.store.message_store import Appended, MessageStore
from headrace_mq.store.segment.checkpoint import write_checkpoint

ORDERS = QueueRef("orders", 0)
GOLDEN = Path(__file__).parents[3] / "golden/store/v1"
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
    store = open_store()
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
    store = open_store()
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
        age(path, b"\x63\0")
        with pytest.raises(FormatTooNew, match="format 99"):
            open_store()
        # One flipped bit of the number is no newer version.
        path.write_bytes(content[:8] + b"\3\0" + content[10:])
        store = open_store()
        assert len(store.damage) == 1
        assert bodies(store) == [b"0"]
        store._release()
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


def age(path: Path, version: bytes) -> None:
    """Gives a file another format number, as the version that has it would write it."""
    content = path.read_bytes()
    content = content[:8] + version + content[10:]
    covered = content[:4_096] if path.suffix == ".log" else content
    crc = google_crc32c.value(covered[:12] + covered[16:])
    path.write_bytes(content[:12] + int(crc).to_bytes(4, "little") + content[16:])


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """The files that the first version of every format wrote, from their hexadecimal digits."""
    directory = tmp_path / "store"
    for path in GOLDEN.rglob("*.hex"):
        copy = directory / path.relative_to(GOLDEN).with_suffix("")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(bytes.fromhex(path.read_text()))
    return directory


async def test_files_of_format_1_are_read(open_store: OpenStore, golden: Any) -> None:
    index = next(golden.glob("forever/*.index")).read_bytes()
    store = open_store()
    for queue in (0, 1):
        expected = [b"%d" % n * 700 for n in range(queue, 8, 2)]
        assert bodies(store, QueueRef("orders", queue)) == expected
    assert store.damage == []
    assert store.offset_at(ORDERS, 1_700_000_003_000) == 1
    assert [segment.sealed for segment in store.segments("forever")] == [True, False]
    # Nothing about it had to be changed, and a producer of that time is remembered.
    assert next(golden.glob("forever/*.index")).read_bytes() == index
    again = encode_batch(
        ORDERS,
        Columns(["k2"], [], [], [b"2" * 700], []),
        born_first_ms=1_600_000_000_000,
        producer_id=5,
        first_sequence=1,
    )
    assert store.append(again, retention="forever") == (1, True)


async def test_an_index_of_a_future_format_is_rebuilt_and_a_segment_is_refused(
    open_store: OpenStore, golden: Any
) -> None:
    index = next(golden.glob("forever/*.index"))
    content = index.read_bytes()
    age(index, b"\x02\0")
    store = open_store()
    assert len(bodies(store)) == 4
    await store.aclose()
    assert index.read_bytes() == content
    age(min(golden.glob("forever/*.log")), b"\x03\0")
    with pytest.raises(FormatTooNew, match="segment format 3"):
        open_store()


async def filled(open_store: OpenStore, make_batch: MakeBatch, clock: Any) -> MessageStore:
    store = open_store()
    for n in range(60):
        clock.ms += 10
        await put(store, make_batch(bytes([n]) * 4_000, queue=n // 30, producer=1, sequence=n % 30))
    return store


async def test_deleted_segments_are_gone_and_ends_of_queues_stay(
    open_store: OpenStore, make_batch: MakeBatch, clock: Any, tmp_path: Path
) -> None:
    store = await filled(open_store, make_batch, clock)
    held = store.segments("forever")
    assert store.delete_segments("forever", held[0].end - 1) == 0
    assert store.delete_segments("forever", held[-1].end) == len(held) - 1
    assert store.range(ORDERS) == (30, 30)
    first = held[-2].next_offsets[QueueRef("orders", 1)]
    assert store.range(QueueRef("orders", 1)) == (first, 30)
    names = {path.name for path in (tmp_path / "store/forever").glob("*")}
    assert names == {held[-1].name}
    store._release()
    store = open_store()
    assert store.range(ORDERS) == (30, 30)
    assert store.range(QueueRef("orders", 1)) == (first, 30)
    assert (await put(store, make_batch(b"next")))[0].base_offset == 30
    with pytest.raises(OffsetOutOfRange):
        store.read(ORDERS, 0, 1)


@pytest.mark.parametrize("removed", range(5))
async def test_a_deletion_that_was_interrupted_is_finished_by_the_next_start(
    open_store: OpenStore, make_batch: MakeBatch, clock: Any, tmp_path: Path, files: Any,
    removed: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    store = await filled(open_store, make_batch, clock)
    held = store.segments("forever")
    left = [removed]
    remove = files.remove

    def fail(path: Path) -> None:
        if left[0] == 0:
            raise OSError(5, "Input/output error")
        left[0] -= 1
        remove(path)

    with monkeypatch.context() as broken:
        broken.setattr(files, "remove", fail)
        assert store.delete_segments("forever", held[2].end) == 3
    ranges = [store.range(QueueRef("orders", queue)) for queue in (0, 1)]
    store._release()
    store = open_store()
    assert [store.range(QueueRef("orders", queue)) for queue in (0, 1)] == ranges
    assert store.segments("forever")[0].base == held[3].base
    names = {path.name.partition(".")[0] for path in (tmp_path / "store/forever").glob("*")}
    assert names == {segment.name.partition(".")[0] for segment in held[3:]}


async def test_nothing_is_deleted_that_cannot_be_noted(
    open_store: OpenStore, make_batch: MakeBatch, clock: Any, files: Any
) -> None:
    store = await filled(open_store, make_batch, clock)
    held = store.segments("forever")
    files.write_error = OSError(28, "no space")
    with pytest.raises(StoreFull, match="nothing was deleted"):
        store.delete_segments("forever", held[-1].end)
    files.write_error = None
    assert store.segments("forever") == held
    assert len(bodies(store)) == 30
    with pytest.raises(ValueError, match="'weekly' is unknown"):
        store.delete_segments("weekly", 1)


async def test_a_missing_first_segment_is_not_taken_for_a_deleted_one(
    open_store: OpenStore, make_batch: MakeBatch, clock: Any, tmp_path: Path
) -> None:
    store = await filled(open_store, make_batch, clock)
    await store.aclose()
    min((tmp_path / "store/forever").glob("*.log")).unlink()
    with pytest.raises(DataCorrupt, match="were never deleted: a segment file is missing"):
        open_store()


async def test_times_before_and_behind_all_messages_have_an_answer(
    open_store: OpenStore, make_batch: MakeBatch, clock: Any
) -> None:
    store = await filled(open_store, make_batch, clock)
    assert store.offset_at(ORDERS, 0) == 0
    assert store.offset_at(ORDERS, clock.ms + 1) == 30
    assert store.offset_at(QueueRef("nobody", 0), 0) == 0
    times = [store.stored_at(ORDERS, offset) for offset in range(31)]
    assert times[30] is None
    assert [store.offset_at(ORDERS, at) <= n for n, at in enumerate(times[:30])] == [True] * 30
    assert times[:30] == sorted(times[:30])
    assert store.stored_at(QueueRef("nobody", 0), 0) is None


async def test_ends_of_emptied_queues_outlive_one_damaged_checkpoint(
    open_store: OpenStore, make_batch: MakeBatch, tmp_path: Path
) -> None:
    store = open_store()
    for n in range(40):
        store.append(make_batch(b"x" * 2_000, queue=0 if n < 5 else 1), retention="transient")
        await store.durable()
    assert store.delete_segments("transient", store.segments("transient")[1].base) == 1
    assert store.range(ORDERS) == (5, 5)
    store._release()
    for name in ("store.checkpoint", "store.checkpoint.copy"):
        path = tmp_path / "store" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        store = open_store()
        assert store.range(ORDERS) == (5, 5)
        assert [one.log for one in store.damage] == ([name] if name == "store.checkpoint" else [])
        store._release()
        path.write_bytes(content)
