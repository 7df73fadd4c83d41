"""What a start makes of damaged, torn and foreign files."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import FORMAT_VERSION, BatchHeader, Columns, assign, encode_batch
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.index.segment_index import Directory
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.log.recovery import Verdict, check_batch, judge, recover
from headrace_mq.store.segment.log_walk import Damage
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES, WriteMark, encode_mark

SEGMENT_BYTES = 64 * 1024
QUEUE = QueueRef("orders", 0)


class Listed:
    """A ledger that lists what it is told; believes every header that it is asked about."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.missed: list[int] = []

    def accept(self, log: str, header: BatchHeader) -> str | None:
        if header.base_offset in self.offsets:
            return "it came twice"
        self.offsets.append(header.base_offset)
        return None

    def adopt(self, log: str, segment: int, directory: Directory) -> str | None:
        raise AssertionError("nothing was noted, so there is no index")

    def miss(self, log: str, header: BatchHeader) -> bool:
        self.missed.append(header.base_offset)
        return True


class Written(NamedTuple):
    """Where one batch of a written log is."""

    position: int
    length: int
    group: int


class LogWriter:
    """Writes groups of batches as the flusher does, with file contents open to tampering."""

    def __init__(self, directory: Path) -> None:
        self.files = SystemFiles()
        self.directory = directory
        self.log = self._opened()
        self.batches: list[Written] = []

    def _opened(self) -> CommitLog:
        log = CommitLog(self.files, self.directory, segment_bytes=SEGMENT_BYTES, epoch=1)
        log.open()
        return log

    def group(self, *bodies: bytes, synced: int | None = None) -> None:
        """Writes one group; `synced` is what its mark says, its own place if left out."""
        log = self.log
        start = position = log.tail
        parts = [encode_mark(WriteMark(start, start if synced is None else synced))]
        position += len(parts[0])
        placed = []
        for body in bodies:
            batch = encode_batch(QUEUE, Columns([], [], [], [body], []), born_first_ms=0)
            assign(
                batch,
                base_offset=len(self.batches) + len(placed),
                position=position,
                appended_at_ms=0,
                epoch=1,
            )
            placed.append(Written(position, len(batch), start))
            parts.append(bytes(batch))
            position += len(batch)
        if position > log.tail_limit:
            assert start == log.end
            log.adopt(log.make_segment(log.plan_segment(position - start, now_ms=0)))
        assert log.active is not None
        log.active.write(start, parts)
        log.end = log.tail = position
        self.batches += placed

    def place(self, position: int) -> tuple[Path, int]:
        """The file and the byte in it of a log position."""
        segment = next(s for s in reversed(self.log.segments) if s.base <= position)
        return segment.path, SEGMENT_HEADER_BYTES + position - segment.base

    def overwrite(self, position: int, data: bytes) -> None:
        path, at = self.place(position)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def flip(self, position: int) -> None:
        path, at = self.place(position)
        self.overwrite(position, bytes([path.read_bytes()[at] ^ 1]))

    def recover(self, *, synced: int = 0) -> tuple[Listed, list[Damage], CommitLog]:
        """Recovers from what the files hold, as a new process would."""
        self.log.close()
        self.log = self._opened()
        ledger = Listed()
        damage = recover(self.log, ledger, synced=synced)
        return ledger, damage, self.log


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    made = LogWriter(tmp_path / "forever")
    yield made
    made.log.close()


@pytest.fixture
def new_writer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], LogWriter]:
    return lambda: LogWriter(tmp_path_factory.mktemp("log") / "forever")


@given(
    position=st.integers(0, 100),
    following=st.none() | st.integers(101, 200),
    synced=st.integers(0, 200),
    unwritten=st.booleans(),
)
def test_only_bytes_that_were_never_durable_can_be_a_torn_write(
    position: int, following: int | None, synced: int, unwritten: bool
) -> None:
    verdict = judge(position, following, synced=synced, unwritten=unwritten)
    if position < synced:
        assert verdict is Verdict.DAMAGED
    else:
        assert (verdict is Verdict.TORN) == (following is None or unwritten)


def test_an_empty_log_begins_at_zero(writer: LogWriter) -> None:
    ledger, damage, log = writer.recover()
    assert (ledger.offsets, damage, log.end, log.tail_limit) == ([], [], 0, 0)


def test_everything_whole_is_accepted_over_many_segments(writer: LogWriter) -> None:
    for _ in range(30):
        writer.group(bytes(3_000), b"x", bytes(2_000))
    assert len(writer.log.segments) > 2
    end = writer.log.end
    ledger, damage, log = writer.recover()
    assert ledger.offsets == list(range(90))
    assert damage == []
    assert log.end == log.synced == log.tail == end


def test_a_batch_larger_than_the_reading_window_is_recovered(writer: LogWriter) -> None:
    writer.group(b"small")
    writer.group(bytes(5 << 20))
    writer.group(b"small")
    ledger, damage, _ = writer.recover()
    assert (ledger.offsets, damage) == ([0, 1, 2], [])


def test_a_torn_tail_is_cut_and_leaves_zeros(writer: LogWriter) -> None:
    writer.group(b"kept")
    end = writer.log.end
    writer.group(b"torn" * 100)
    last = writer.batches[-1]
    writer.overwrite(last.position + 200, bytes(last.length - 200))
    path, at = writer.place(end)
    ledger, damage, log = writer.recover()
    assert (ledger.offsets, damage) == ([0], [])
    # The mark of the torn group is whole and stays; it stands for nothing.
    assert log.end == last.position
    assert not any(path.read_bytes()[at + last.position - end :])


def test_a_torn_group_is_cut_from_its_first_unwritten_sector(writer: LogWriter) -> None:
    writer.group(b"kept")
    writer.group(bytes([1]) * 2_000, b"a", b"b")
    torn = writer.batches[1]
    _, at = writer.place(torn.position)
    skip = 512 - at % 512
    writer.overwrite(torn.position + skip, bytes(512))
    ledger, damage, log = writer.recover()
    assert (ledger.offsets, damage) == ([0], [])
    assert log.end == torn.position


def test_flipped_bits_in_the_last_group_cost_one_batch(writer: LogWriter) -> None:
    writer.group(b"kept")
    writer.group(b"bad", b"kept", b"kept")
    writer.flip(writer.batches[1].position + 120)
    ledger, (damage,), _ = writer.recover()
    assert ledger.offsets == [0, 2, 3]
    assert ledger.missed == [1]
    bad = writer.batches[1]
    assert damage == Damage(
        "forever", bad.position, bad.length, "a batch fails its checksum", QUEUE, 1, 1
    )


def test_zeros_below_what_was_synced_are_damage_and_no_torn_write(writer: LogWriter) -> None:
    for _ in range(5):
        writer.group(bytes([1]) * 3_000)
    bad = writer.batches[2]
    writer.overwrite(bad.position, bytes(bad.length))
    ledger, (damage,), _ = writer.recover()
    assert ledger.offsets == [0, 1, 3, 4]
    assert (damage.position, damage.length) == (bad.position, bad.length)
    assert damage.queue is None


def test_zeros_behind_what_was_synced_cut_all_unsynced_groups(writer: LogWriter) -> None:
    writer.group(b"kept")
    synced = writer.log.end
    for _ in range(4):
        writer.group(bytes([1]) * 3_000, synced=synced)
    bad = writer.batches[2]
    writer.overwrite(bad.position, bytes(bad.length))
    ledger, damage, log = writer.recover()
    assert (ledger.offsets, damage) == ([0, 1], [])
    assert log.end == bad.position


def test_a_clean_end_protects_the_last_group(writer: LogWriter) -> None:
    writer.group(b"kept")
    writer.group(bytes([1]) * 3_000, b"kept")
    bad, end = writer.batches[1], writer.log.end
    writer.overwrite(bad.position, bytes(bad.length))
    ledger, (damage,), log = writer.recover(synced=end)
    assert ledger.offsets == [0, 2]
    assert (damage.position, damage.length) == (bad.position, bad.length)
    assert log.end == end


def test_a_damaged_last_batch_is_never_overwritten_after_a_clean_end(writer: LogWriter) -> None:
    writer.group(b"kept")
    writer.group(b"bad")
    bad, end = writer.batches[1], writer.log.end
    writer.flip(bad.position + 116)
    ledger, (damage,), log = writer.recover(synced=end)
    assert (ledger.offsets, ledger.missed) == ([0], [1])
    assert (damage.position, damage.length) == (bad.position, bad.length)
    assert log.end == log.tail == end


def test_a_bad_batch_in_an_old_segment_costs_itself_alone(writer: LogWriter) -> None:
    for _ in range(40):
        writer.group(bytes(5_000))
    bad = writer.batches[3]
    assert bad.position < writer.log.segments[1].base
    writer.flip(bad.position + 3_000)
    ledger, (damage,), _ = writer.recover()
    assert ledger.offsets == [n for n in range(40) if n != 3]
    assert (damage.position, damage.length) == (bad.position, bad.length)


def test_a_damaged_head_costs_its_batch_alone(writer: LogWriter) -> None:
    writer.group(b"a", b"bad", b"c")
    writer.group(b"d")
    bad = writer.batches[1]
    for at in (0, 4, 9, 13, 20, 30):
        writer.flip(bad.position + at)
        ledger, (damage,), _ = writer.recover()
        assert ledger.offsets == [0, 2, 3]
        assert (damage.position, damage.length, damage.queue) == (bad.position, bad.length, None)
        writer.flip(bad.position + at)
    assert writer.recover()[0].offsets == [0, 1, 2, 3]


def test_a_damaged_mark_costs_no_batch(writer: LogWriter) -> None:
    for _ in range(3):
        writer.group(b"a", b"b")
    mark = writer.batches[2].group
    writer.flip(mark + 20)
    ledger, (damage,), _ = writer.recover()
    assert ledger.offsets == list(range(6))
    assert (damage.position, damage.length) == (mark, 32)


def test_a_missing_segment_in_the_middle_costs_itself_alone(writer: LogWriter) -> None:
    for _ in range(60):
        writer.group(bytes(4_000))
    _, middle, *rest = writer.log.segments
    lost = [n for n, b in enumerate(writer.batches) if middle.base <= b.position < rest[0].base]
    middle.path.unlink()
    ledger, (damage,), _ = writer.recover()
    assert ledger.offsets == [n for n in range(60) if n not in lost]
    assert (damage.position, damage.length) == (middle.base, rest[0].base - middle.base)


def test_a_missing_last_segment_stops_the_start(writer: LogWriter) -> None:
    for _ in range(20):
        writer.group(bytes(4_000))
    end = writer.log.end
    writer.log.segments[-1].path.unlink()
    with pytest.raises(DataCorrupt, match="a segment file is missing; put it back"):
        writer.recover(synced=end)


def test_no_segment_at_all_stops_the_start_if_there_was_one(writer: LogWriter) -> None:
    with pytest.raises(DataCorrupt, match="end at 0"):
        writer.recover(synced=100)


def test_a_shortened_old_segment_costs_what_it_held(writer: LogWriter) -> None:
    for _ in range(20):
        writer.group(bytes(4_000))
    first, second, *_ = writer.log.segments
    cut = writer.batches[5].position + 100
    first.cut(cut)
    ledger, (damage,), _ = writer.recover()
    kept = [
        n
        for n, b in enumerate(writer.batches)
        if b.position < cut - 100 or b.position >= second.base
    ]
    assert ledger.offsets == kept
    assert (damage.position, damage.length) == (cut - 100, second.base - cut + 100)


def test_a_damaged_segment_header_costs_nothing_and_is_reported(writer: LogWriter) -> None:
    writer.group(b"a", b"b")
    path, _ = writer.place(0)
    path.write_bytes(b"garbage!" + path.read_bytes()[8:])
    writer.group(b"c")
    ledger, (damage,), _ = writer.recover()
    assert ledger.offsets == [0, 1, 2]
    assert "no segment header" in damage.reason


def test_a_last_segment_of_garbage_is_left_alone(writer: LogWriter) -> None:
    writer.group(b"a")
    path, _ = writer.place(0)
    garbage = b"garbage " * 8_192
    path.write_bytes(garbage)
    with pytest.raises(DataCorrupt, match="holds nothing that can be read"):
        writer.recover()
    assert path.read_bytes() == garbage


def test_a_batch_of_a_newer_format_stops_the_start(writer: LogWriter) -> None:
    writer.group(b"a", b"newer", b"c")
    newer = writer.batches[1].position
    path, at = writer.place(newer)
    head = bytearray(path.read_bytes()[at : at + 52])
    head[4] = FORMAT_VERSION + 1
    struct.pack_into("<I", head, 12, google_crc32c.value(bytes(head[:12] + head[16:])))
    writer.overwrite(newer, bytes(head))
    with pytest.raises(FormatTooNew, match=f"format {FORMAT_VERSION + 1}"):
        writer.recover()


def test_a_batch_that_the_ledger_contradicts_is_reported(writer: LogWriter) -> None:
    writer.group(b"a")
    # Two batches claim offset 1.
    writer.group(b"b")
    again = writer.batches.pop()
    writer.group(b"c")
    ledger, (damage,), _ = writer.recover()
    assert ledger.offsets == [0, 1]
    assert damage.reason == "it came twice"
    assert damage.position > again.position


def test_copies_of_batches_inside_a_damaged_batch_are_not_taken_for_batches(
    writer: LogWriter,
) -> None:
    writer.group(b"a")
    path, at = writer.place(writer.batches[0].position)
    copy = path.read_bytes()[at : at + writer.batches[0].length]
    writer.group(copy * 5, b"b")
    writer.flip(writer.batches[1].position + 130)
    ledger, (damage,), _ = writer.recover()
    assert ledger.offsets == [0, 2]
    assert damage.length == writer.batches[1].length


def test_disk_blocks_that_cannot_be_reserved_do_not_stop_the_start(
    tmp_path: Path, files: Any, writer: LogWriter
) -> None:
    writer.group(b"a")
    writer.log.close()
    files.allocate_error = OSError(28, "No space left on device")
    log = CommitLog(files, tmp_path / "forever", segment_bytes=SEGMENT_BYTES, epoch=1)
    log.open()
    ledger = Listed()
    assert recover(log, ledger, synced=0) == []
    assert ledger.offsets == [0]
    log.close()


def test_writing_goes_on_behind_what_was_recovered(writer: LogWriter) -> None:
    writer.group(b"a")
    writer.group(b"torn" * 50)
    last = writer.batches.pop()
    writer.overwrite(last.position + 50, bytes(last.length - 50))
    writer.recover()
    writer.group(b"b")
    ledger, damage, _ = writer.recover()
    assert (ledger.offsets, damage) == ([0, 1], [])


@pytest.mark.parametrize("cut", [0, 100, 112])
def test_a_stored_batch_is_checked_as_a_whole(writer: LogWriter, cut: int) -> None:
    writer.group(b"body")
    place = writer.batches[0]
    path, at = writer.place(place.position)
    batch = path.read_bytes()[at : at + place.length]
    entry = IndexEntry(place.position, place.length, 0, 1, 0)
    check_batch(batch, QUEUE, entry)
    with pytest.raises(DataCorrupt):
        check_batch(batch[:cut], QUEUE, entry)
    with pytest.raises(DataCorrupt, match="another batch"):
        check_batch(batch, QUEUE, entry._replace(position=entry.position + 1))
    with pytest.raises(DataCorrupt, match="another batch"):
        check_batch(batch, QUEUE, entry._replace(base=7))
    with pytest.raises(DataCorrupt, match="another batch"):
        check_batch(batch, QueueRef("orders", 1), entry)
    with pytest.raises(DataCorrupt, match="is damaged"):
        check_batch(batch[:-1] + b"?", QUEUE, entry)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(
        st.lists(st.integers(0, 3_000), min_size=1, max_size=3), min_size=1, max_size=12
    ),
    flips=st.lists(st.floats(0, 1, exclude_max=True), max_size=4),
)
def test_flipped_bits_cost_the_batches_they_hit_and_no_others(
    new_writer: Callable[[], LogWriter], sizes: list[list[int]], flips: list[float]
) -> None:
    writer = new_writer()
    for group in sizes:
        writer.group(*(bytes([1]) * size for size in group))
    end = writer.log.end
    hit = {int(flip * end) for flip in flips}
    for position in hit:
        writer.flip(position)
    ledger, _, log = writer.recover(synced=end)
    sound = [
        n
        for n, b in enumerate(writer.batches)
        if not hit & set(range(b.position, b.position + b.length))
    ]
    assert ledger.offsets == sound
    assert log.end == end
    log.close()


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.integers(0, 3_000), min_size=1, max_size=6),
    sectors=st.sets(st.integers(0, 40)),
)
def test_after_a_power_cut_a_group_is_a_prefix_of_what_was_written(
    new_writer: Callable[[], LogWriter], sizes: list[int], sectors: set[int]
) -> None:
    writer = new_writer()
    writer.group(b"synced")
    synced = writer.log.end
    writer.group(*(bytes([1]) * size for size in sizes))
    _, at = writer.place(synced)
    for sector in sectors:
        begin = max(at, (at // 512 + sector) * 512)
        begin_position = synced + begin - at
        length = min(512 - begin % 512, writer.log.end - begin_position)
        if length > 0:
            writer.overwrite(begin_position, bytes(length))
    ledger, damage, log = writer.recover()
    assert ledger.offsets == list(range(len(ledger.offsets)))
    assert len(ledger.offsets) >= 1
    assert damage == []
    log.close()
