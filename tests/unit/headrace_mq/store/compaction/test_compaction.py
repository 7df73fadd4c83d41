"""What a reader of a compacted log sees: the newest record of each key, in order, at its offset."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import FormatTooNew
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import (
    Columns,
    check_head,
    decode_records,
    encode_batch,
    read_header,
)
from headrace_mq.protocol.sparse import removed_before
from headrace_mq.settings import StoreSettings
from headrace_mq.store.check.inspection import check
from headrace_mq.store.check.repair import repair
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.log.lookup import LookupQuery
from headrace_mq.store.message_store import Appended, MessageStore

STATE, FILLER = QueueRef("state", 0), QueueRef("filler", 0)
GOLDEN = Path(__file__).parents[4] / "golden/store/v2"
LARGE = b"x" * 3_000


class Keeper:
    """A store of small segments, and how a test writes to it and reads it."""

    def __init__(self, directory: Path, files: Any, clock: Any) -> None:
        self.settings: dict[str, Any] = {
            "directory": directory, "compact_segment_bytes": 64 << 10, "compact_lag_ms": 0,
            "compact_bytes_per_s": 0, "tombstone_ms": 1_000,
        }  # fmt: skip
        self.files, self.clock = files, clock
        self.store: MessageStore

    def open(self, **settings: Any) -> MessageStore:
        self.settings |= settings
        self.store = MessageStore(
            StoreSettings(**self.settings), clock=self.clock, files=self.files
        )
        self.store.open()
        return self.store

    async def reopen(self, **settings: Any) -> MessageStore:
        await self.store.aclose()
        return self.open(**settings)

    async def put(
        self, *values: tuple[str, bytes], queue: QueueRef = STATE, producer: int = 0, first: int = 0
    ) -> Appended:
        columns = Columns([key for key, _ in values], [], [], [body for _, body in values], [])
        batch = encode_batch(
            queue, columns, born_first_ms=1, producer_id=producer, first_sequence=first
        )
        appended = self.store.append(batch, retention="compact")
        await self.store.durable()
        return appended

    async def seal(self, queue: QueueRef = FILLER) -> None:
        """Fills the newest segment until there is another one behind it."""
        count = max(1, len(self.store.segments("compact")))
        while len(self.store.segments("compact")) < count + 1:
            await self.put(("filler", LARGE), queue=queue)
        while not all(one.indexed for one in self.store.segments("compact")[:-1]):
            await asyncio.sleep(0)

    async def compact(self, floors: dict[QueueRef, int] | None = None) -> None:
        assert await self.store.compaction.run(floors or {}, force=True)
        assert self.store.compaction.figures.trouble == ""

    def records(self, queue: QueueRef = STATE) -> list[Record]:
        """Reads a queue from its beginning as a consumer does."""
        found: list[Record] = []
        at, end = self.store.range(queue)
        assert at == 0
        while at < end:
            for batch in self.store.read(queue, at, 10_000):
                check_head(batch)
                found += [record for record in decode_records(batch) if record.offset >= at]
                at = max(at, read_header(batch).next_offset)
        return found

    def seen(self, queue: QueueRef = STATE) -> list[tuple[int, str, bytes]]:
        return [(one.offset, one.key, one.body) for one in self.records(queue)]


@pytest.fixture
async def keeper(tmp_path: Path, files: Any, clock: Any) -> AsyncIterator[Keeper]:
    made = Keeper(tmp_path / "store", files, clock)
    made.open()
    yield made
    await made.store.aclose()


async def test_a_reader_from_the_beginning_sees_the_last_message_of_each_key(
    keeper: Keeper,
) -> None:
    await keeper.put(("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"))
    await keeper.put(("b", b"5"))
    await keeper.seal()
    assert keeper.store.raw.compacted("compact").end == 0
    await keeper.compact()
    assert keeper.store.raw.compacted("compact").clean > 0
    expected = [(2, "a", b"3"), (3, "c", b"4"), (4, "b", b"5")]
    assert keeper.seen() == expected
    await keeper.reopen()
    assert keeper.seen() == expected
    assert keeper.store.damage == []


async def test_later_records_supersede_across_segments_and_the_newest_segment_stays(
    keeper: Keeper,
) -> None:
    await keeper.put(("a", b"1"))
    await keeper.seal()
    await keeper.put(("a", b"2"))
    await keeper.seal()
    await keeper.put(("a", b"3"))
    await keeper.put(("a", b"4"))
    await keeper.compact()
    assert keeper.seen() == [(1, "a", b"2"), (2, "a", b"3"), (3, "a", b"4")]


async def test_young_messages_are_left_alone(keeper: Keeper, clock: Any) -> None:
    await keeper.reopen(compact_lag_ms=500)
    await keeper.put(("a", b"1"), ("a", b"2"))
    await keeper.seal()
    clock.ms += 499
    assert not await keeper.store.compaction.run({}, force=True)
    clock.ms += 1
    await keeper.compact()
    assert keeper.seen() == [(1, "a", b"2")]


async def test_a_message_without_a_body_deletes_its_key_and_stays_for_a_time_itself(
    keeper: Keeper, clock: Any
) -> None:
    await keeper.put(("a", b"1"), ("b", b"2"), ("a", b""))
    await keeper.seal()
    await keeper.compact()
    tombstone = [(1, "b", b"2"), (2, "a", b"")]
    assert keeper.seen() == tombstone
    clock.ms += 999
    await keeper.store.compaction.run({})
    assert keeper.seen() == tombstone
    clock.ms += 1
    assert await keeper.store.compaction.run({})
    assert keeper.seen() == [(1, "b", b"2")]
    await keeper.reopen()
    assert keeper.seen() == [(1, "b", b"2")]
    assert not await keeper.store.compaction.run({})


async def test_a_log_says_which_tombstones_it_has_removed(keeper: Keeper, clock: Any) -> None:
    await keeper.put(("a", b"1"), ("b", b"2"), ("a", b""), ("c", b""))
    await keeper.seal()
    await keeper.compact()
    before = keeper.store.raw.compacted("compact")
    assert (before.forgotten, before.version) == (0, 1)
    clock.ms += 1_000
    assert not await keeper.store.compaction.run({}, bounds=Bounds(tombstones=0))
    assert await keeper.store.compaction.run({}, bounds=Bounds(tombstones=before.clean))
    after = keeper.store.raw.compacted("compact")
    assert (after.forgotten, after.version) == (before.clean, 3)
    await keeper.reopen()
    assert keeper.store.raw.compacted("compact") == after


async def test_a_clock_that_is_set_takes_no_message_without_a_body_sooner(
    keeper: Keeper, clock: Any
) -> None:
    ahead_ms = 0
    keeper.store.compaction.steady_ms = lambda: clock.ms - ahead_ms
    await keeper.put(("a", b"1"), ("b", b"2"), ("a", b""))
    await keeper.seal()
    await keeper.compact()
    ahead_ms = 365 * 86_400_000
    clock.ms += ahead_ms + 999
    assert not await keeper.store.compaction.run({})
    assert keeper.seen() == [(1, "b", b"2"), (2, "a", b"")]
    clock.ms += 1
    assert await keeper.store.compaction.run({})
    assert keeper.seen() == [(1, "b", b"2")]


async def test_a_queue_keeps_its_end_when_all_its_messages_are_gone(
    keeper: Keeper, clock: Any
) -> None:
    await keeper.put(("a", b"1"), ("a", b""))
    await keeper.seal()
    await keeper.compact()
    clock.ms += 1_000
    await keeper.compact()
    assert keeper.seen() == []
    for checkpoint in keeper.settings["directory"].glob("store.checkpoint*"):
        checkpoint.unlink()
    await keeper.reopen()
    assert keeper.store.range(STATE) == (0, 2)
    assert (await keeper.put(("a", b"3"))).base_offset == 2


async def test_a_retry_of_a_message_that_is_gone_is_still_recognised(keeper: Keeper) -> None:
    for number in range(4):
        await keeper.put(("a", b"%d" % number), producer=7, first=number)
    await keeper.seal()
    await keeper.compact()
    assert keeper.seen() == [(3, "a", b"3")]
    await keeper.reopen()
    for number in range(4):
        again = await keeper.put(("a", b"%d" % number), producer=7, first=number)
        assert again == (number, True)
    assert not (await keeper.put(("a", b"4"), producer=7, first=4)).duplicate


async def test_readers_learn_that_a_gap_is_no_loss(keeper: Keeper) -> None:
    for body in (b"1", b"2", b"3"):
        await keeper.put(("a", body))
    await keeper.put(("b", b"4"))
    await keeper.seal()
    await keeper.compact()
    first, *_ = keeper.store.read(STATE, 0, 1)
    assert read_header(first).base_offset == removed_before(first) == 2


async def test_a_segment_gets_smaller_and_small_ones_become_one(keeper: Keeper, clock: Any) -> None:
    for _ in range(5):
        await keeper.seal()
    await keeper.compact()
    before = keeper.store.segments("compact")
    assert sum(one.bytes for one in before[:-1]) < 5 * 16_384
    clock.ms += 1_000
    await keeper.compact()
    compacted, _ = keeper.store.segments("compact")
    assert (compacted.base, compacted.end) == (0, before[-1].base)
    assert len(keeper.seen(FILLER)) <= 25
    names = {path.name for path in (keeper.settings["directory"] / "compact").iterdir()}
    assert {name.partition(".")[0] for name in names} == {
        f"{base:020d}" for base in (0, before[-1].base)
    }


async def test_readers_in_the_middle_go_on_while_it_runs(keeper: Keeper) -> None:
    chosen = random.Random(1)
    newest: dict[str, bytes] = {}
    for _ in range(120):
        values = [(f"key {chosen.randrange(30)}", chosen.randbytes(300)) for _ in range(8)]
        await keeper.put(*values)
        newest.update(values)
    await keeper.seal()
    running = asyncio.create_task(keeper.store.compaction.run({}, force=True))
    readers: list[tuple[int, dict[str, bytes]]] = [(0, {})]
    end = keeper.store.range(STATE)[1]
    while not running.done() or any(at < end for at, _ in readers):
        for number, (at, found) in enumerate(readers):
            if at >= end:
                continue
            for batch in keeper.store.read(STATE, at, 1):
                found.update(
                    (record.key, record.body)
                    for record in decode_records(batch)
                    if record.offset >= at
                )
                readers[number] = (read_header(batch).next_offset, found)
        if len(readers) < 40 and not running.done():
            readers.append((0, {}))
        await asyncio.sleep(0)
    assert await running
    assert all(found == newest for _, found in readers)


async def test_keys_and_times_find_what_is_left(keeper: Keeper, clock: Any) -> None:
    await keeper.put(("a", b"1"), ("b", b"2"))
    clock.ms += 10
    middle = clock.ms
    await keeper.put(("a", b"3"))
    await keeper.seal()

    def bodies(key: str) -> list[bytes]:
        found = keeper.store.find(LookupQuery("state", key))
        assert found.cursor is None
        records = [one for batch in found.batches for one in decode_records(batch)]
        return [one.body for one in records if one.key == key]

    await keeper.compact()
    for _ in range(2):
        assert (bodies("a"), bodies("b")) == ([b"3"], [b"2"])
        assert keeper.store.offset_at(STATE, middle) == 2
        while keeper.store.index_keys(1 << 20):
            await asyncio.sleep(0)


async def test_a_search_that_goes_on_after_a_compaction_misses_nothing(keeper: Keeper) -> None:
    for number in range(40):
        await keeper.put((f"other {number % 3}", LARGE))
        await keeper.put((f"wanted {number}", b"%d" % number))
    await keeper.seal()
    found, cursor = set[bytes](), None
    for step in range(200):
        if step == 1:
            await keeper.compact()
        answer = keeper.store.find(LookupQuery("state", "wanted 20"), cursor, messages_max=1)
        found |= {one.body for b in answer.batches for one in decode_records(b)}
        cursor = answer.cursor
        if cursor is None:
            break
    assert b"20" in found


async def test_keys_that_do_not_fit_into_memory_are_compacted_in_parts(keeper: Keeper) -> None:
    await keeper.reopen(compact_memory_bytes=64 << 10)
    for first in range(0, 3_000, 50):
        numbers = range(first, first + 50)
        await keeper.put(*((f"k{number % 1_200}", b"%d" % number) for number in numbers))
    await keeper.seal()
    for _ in range(20):
        await keeper.store.compaction.run({}, force=True)
        assert keeper.store.compaction.figures.trouble == ""
    sealed_to = keeper.store.segments("compact")[-1].base
    below = [one for one in keeper.records() if one.offset < 3_000]
    assert sealed_to > 0
    assert len(below) < 2_000
    state = {one.key: one.body for one in below}
    assert state == {f"k{n % 1_200}": b"%d" % n for n in range(1_800, 3_000)}


async def test_messages_of_a_deleted_queue_go(keeper: Keeper) -> None:
    await keeper.put(("a", b"old life"), ("b", b"old life"))
    await keeper.put(("a", b"new life"))
    await keeper.seal()
    await keeper.compact({STATE: 2})
    assert keeper.seen() == [(2, "a", b"new life")]


async def test_damage_stops_it_there_and_says_so(keeper: Keeper) -> None:
    await keeper.put(("a", b"1"), ("a", b"2"))
    await keeper.seal()
    segment = keeper.settings["directory"] / "compact" / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[4096 + 32 + 130] ^= 1
    segment.write_bytes(content)
    await keeper.store.compaction.run({}, force=True)
    assert "damaged at log position" in keeper.store.compaction.figures.trouble
    assert [path.suffix for path in segment.parent.glob("*.new*")] == []


async def test_a_full_disk_stops_it_and_the_next_one_goes_on(keeper: Keeper, files: Any) -> None:
    await keeper.put(("a", b"1"), ("a", b"2"))
    await keeper.seal()
    files.write_error = OSError(28, "No space left on device")
    await keeper.store.compaction.run({}, force=True)
    assert "No space" in keeper.store.compaction.figures.trouble
    assert keeper.seen() == [(0, "a", b"1"), (1, "a", b"2")]
    files.write_error = None
    await keeper.compact()
    assert keeper.seen() == [(1, "a", b"2")]
    assert keeper.store.read_only is None


async def test_readers_keep_the_old_segment_if_the_directory_cannot_be_synced(
    keeper: Keeper, files: Any
) -> None:
    await keeper.put(("a", b"1"), ("a", b"2"))
    await keeper.seal()
    files.directory_sync_error = OSError(5, "Input/output error")
    await keeper.store.compaction.run({}, force=True)
    assert "Input/output error" in keeper.store.compaction.figures.trouble
    assert keeper.seen() == [(0, "a", b"1"), (1, "a", b"2")]
    files.directory_sync_error = None
    assert not await keeper.store.compaction.run({}, force=True)
    await keeper.reopen()
    assert keeper.seen()[-1] == (1, "a", b"2")


async def test_a_closing_store_interrupts_it(keeper: Keeper) -> None:
    await keeper.reopen(compact_bytes_per_s=1)
    await keeper.put(("a", b"1"), ("a", b"2"))
    await keeper.seal()
    running = asyncio.create_task(keeper.store.compaction.run({}, force=True))
    await asyncio.sleep(0)
    await keeper.reopen(compact_bytes_per_s=0)
    await running
    await keeper.compact()
    assert keeper.seen() == [(1, "a", b"2")]


async def test_figures_say_what_waits_and_what_was_done(keeper: Keeper, clock: Any) -> None:
    await keeper.put(("a", b"1"), ("a", b"2"))
    await keeper.seal()
    before = keeper.store.compaction.figures
    assert (before.clean_bytes, before.runs, before.last_run_ms) == (0, 0, 0)
    assert before.dirty_bytes > 50_000
    assert await keeper.store.compaction.run({})
    after = keeper.store.compaction.figures
    assert after.dirty_bytes == 0
    assert 0 < after.clean_bytes < 10_000
    assert (after.runs, after.last_run_ms, after.kept) == (1, clock.ms, 2)
    assert after.removed > 10
    assert after.freed_bytes > 50_000
    assert not await keeper.store.compaction.run({})


async def test_a_check_finds_a_compacted_store_clean_and_what_a_crash_left_unfinished(
    keeper: Keeper, clock: Any
) -> None:
    for _ in range(3):
        await keeper.seal()
    directory = keeper.settings["directory"]
    names = sorted(path.name for path in (directory / "compact").glob("*.log"))
    kept = {name: (directory / "compact" / name).read_bytes() for name in names[1:3]}
    await keeper.compact()
    clock.ms += 1_000
    await keeper.compact()
    await keeper.store.aclose()
    assert check(directory, metadata={}).status == "clean"
    # As a crash leaves it between the two renames and the removal.
    for name, content in kept.items():
        (directory / "compact" / name).write_bytes(content)
    (directory / "compact" / f"{0:020d}.log.new").write_bytes(b"half")
    (directory / "compact" / f"{0:020d}.log.new.index").write_bytes(b"half")
    report = check(directory, metadata={})
    assert report.status == "clean"
    assert [one.kind for one in report.findings] == ["unfinished"] * 4
    assert repair(directory, metadata={}, apply=True).steps == []
    keeper.open()
    assert keeper.store.damage == []
    assert sorted(path.name for path in (directory / "compact").glob("*.log")) == [
        names[0], names[3],
    ]  # fmt: skip


async def test_a_compacted_segment_may_be_the_last_one(keeper: Keeper) -> None:
    await keeper.put(("a", b"1"), ("a", b"2"))
    await keeper.seal()
    await keeper.compact()
    await keeper.store.aclose()
    directory = keeper.settings["directory"]
    *_, last = sorted((directory / "compact").glob("*.log"))
    last.unlink()
    for path in [*directory.glob("store.checkpoint*"), *(directory / "compact").glob("*.index")]:
        path.unlink()
    assert check(directory, metadata={}).status == "clean"
    keeper.open()
    assert keeper.seen() == [(1, "a", b"2")]
    assert (await keeper.put(("a", b"3"))).base_offset == 2
    assert keeper.seen() == [(1, "a", b"2"), (2, "a", b"3")]


@pytest.fixture
def golden(keeper: Keeper, tmp_path: Path) -> Callable[[], MessageStore]:
    """Opens the files that the first version of this format wrote."""

    def open_golden() -> MessageStore:
        for path in GOLDEN.rglob("*.hex"):
            copy = tmp_path / "golden" / path.relative_to(GOLDEN).with_suffix("")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(bytes.fromhex(path.read_text()))
        return keeper.open(directory=tmp_path / "golden")

    return open_golden


async def test_a_compacted_segment_of_format_2_is_read(
    keeper: Keeper, golden: Callable[[], MessageStore]
) -> None:
    await keeper.store.aclose()
    store = golden()
    assert keeper.seen() == [(1, "b", b"two"), (3, "a", b"four"), (4, "c", b"")]
    assert store.damage == []
    (segment,) = store.segments("compact")
    assert segment.compacted is not None
    assert (segment.compacted.tombstones, segment.compacted.rounds) == (1, 1)
    again = await keeper.put(("a", b"one"), ("b", b"two"), producer=9)
    assert again == (0, True)


async def test_a_compacted_segment_of_a_newer_format_is_refused_as_such(
    keeper: Keeper, golden: Callable[[], MessageStore], tmp_path: Path
) -> None:
    import google_crc32c

    await keeper.store.aclose()
    await golden().aclose()
    (path,) = (tmp_path / "golden/compact").glob("*.log")
    page = bytearray(path.read_bytes())
    page[8] = 3
    page[12:16] = int(google_crc32c.value(bytes(page[:12] + page[16:4096]))).to_bytes(4, "little")
    path.write_bytes(page)
    store = MessageStore(StoreSettings(directory=tmp_path / "golden"))
    with pytest.raises(FormatTooNew, match="segment format 3"):
        store.open()
