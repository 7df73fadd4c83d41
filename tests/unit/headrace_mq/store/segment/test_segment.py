"""One file of a log: its header and marks to the byte, and what a failed creation leaves."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.store.segment.segment import (
    MARK_BYTES,
    RESERVED_FIRST_BYTES,
    RESERVED_STEP_BYTES,
    SEGMENT_HEADER_BYTES,
    SMALL_WRITE_BYTES,
    ZEROS_AHEAD_BYTES,
    Segment,
    SegmentPlan,
    SyncFailed,
    WriteMark,
    decode_mark,
    encode_mark,
    reserved_bytes,
    segment_name,
)

FILE_BYTES = 64 * 1024
BASE = 12_345


def plan(directory: Path, **changes: Any) -> SegmentPlan:
    return SegmentPlan(
        directory=directory, log="forever", base=BASE, file_bytes=FILE_BYTES, epoch=3, now_ms=1_000
    )._replace(**changes)


@pytest.fixture
def segment(tmp_path: Path, files: Any) -> Iterator[Segment]:
    made = Segment.create(files, plan(tmp_path))
    yield made
    made.close()


def reopened(segment: Segment, files: Any, log: str = "forever") -> Segment:
    return Segment.open(files, segment.path, log=log, file_bytes=FILE_BYTES)


def change(path: Path, at: int, data: bytes, *, seal: bool = False) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    if seal:
        block = bytes(content[:12] + content[16:SEGMENT_HEADER_BYTES])
        struct.pack_into("<I", content, 12, google_crc32c.value(block))
    path.write_bytes(content)


def test_names_have_twenty_digits() -> None:
    assert segment_name(0) == "00000000000000000000.log"
    assert segment_name(2**63 - 1) == "09223372036854775807.log"


def test_the_header_is_that_of_the_format_document(segment: Segment) -> None:
    header = segment.path.read_bytes()[:SEGMENT_HEADER_BYTES]
    fields = struct.unpack_from("<8sHHIqqqI16sI", header)
    crc = google_crc32c.value(header[:12] + header[16:])
    assert fields == (
        b"HRSEGMNT", 1, 4_096, crc, BASE, 1_000, FILE_BYTES, 3, b"forever".ljust(16, b"\0"), 0,
    )  # fmt: skip
    assert not any(header[64:])
    assert segment.path.stat().st_size == FILE_BYTES


def test_a_small_write_brings_zeros_for_the_next_ones_and_nothing_brings_more(
    tmp_path: Path, files: Any
) -> None:
    segment = Segment.create(files, plan(tmp_path, file_bytes=1 << 20))
    written: list[int] = []
    files.write = lambda fd, at, parts: (
        written.append(sum(map(len, parts))) or type(files).write(files, fd, at, parts)
    )
    first = BASE + 100
    for position in (first, first + 100, first + 200):
        segment.write(position, [bytes([1]) * 50, bytes([2]) * 50])
    assert written == [100 + ZEROS_AHEAD_BYTES, 100, 100]
    assert segment.read(first, 400) == (bytes([1]) * 50 + bytes([2]) * 50) * 3 + bytes(100)
    assert segment.next_data(first + 100 + ZEROS_AHEAD_BYTES + 8_192) is None

    behind = first + 300 + ZEROS_AHEAD_BYTES
    segment.write(behind, [bytes([3]) * (SMALL_WRITE_BYTES + 1)])
    assert written[3:] == [SMALL_WRITE_BYTES + 1], "large"
    segment.write(segment.limit - 10, [bytes([4]) * 8])
    assert written[4:] == [10], "to the end of the file"
    segment.cut(behind)
    segment.write(behind, [b"x"])
    assert written[5:] == [1 + ZEROS_AHEAD_BYTES], "what was cut off is written anew"
    segment.close()


def test_written_batches_are_read_after_reopening(segment: Segment, files: Any) -> None:
    segment.write(BASE + 100, [b"ab", b"cd"])
    segment.sync()
    again = reopened(segment, files)
    assert again.header_damage is None
    assert (again.base, again.capacity) == (BASE, FILE_BYTES - SEGMENT_HEADER_BYTES)
    assert again.limit == again.held_end == BASE + again.capacity
    assert again.read(BASE + 99, 6) == b"\0abcd\0"
    again.close()


def test_a_cut_leaves_zeros(segment: Segment) -> None:
    segment.write(BASE, [b"a" * 1_000])
    segment.cut(BASE + 10)
    assert segment.held_end == BASE + 10
    segment.reserve()
    assert segment.held_end == segment.limit
    assert segment.read(BASE, 20) == b"a" * 10 + bytes(10)


@given(needed=st.integers(0, 1 << 40), most=st.integers(1, 1 << 41))
def test_a_reservation_is_little_more_than_what_is_needed(needed: int, most: int) -> None:
    size = reserved_bytes(needed, most)
    assert min(needed, most) <= size <= most
    assert size <= max(RESERVED_FIRST_BYTES, 2 * needed), "at most twice what is needed"
    assert size < needed + max(RESERVED_FIRST_BYTES + 1, RESERVED_STEP_BYTES)


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_a_file_grows_in_steps_as_it_is_written(tmp_path: Path, files: Any) -> None:
    full = 3 * RESERVED_FIRST_BYTES
    segment = Segment.create(files, plan(tmp_path, file_bytes=full))
    assert segment.file_bytes == segment.path.stat().st_size == RESERVED_FIRST_BYTES
    assert segment.limit == BASE + full - SEGMENT_HEADER_BYTES

    position = BASE
    sizes = []
    while position + SMALL_WRITE_BYTES <= segment.limit:
        segment.write(position, [bytes([7]) * SMALL_WRITE_BYTES])
        position += SMALL_WRITE_BYTES
        sizes.append(segment.path.stat().st_size)
        assert segment.held_end >= position
    assert sorted(set(sizes)) == [*sizes[:1], 2 * RESERVED_FIRST_BYTES, full]
    assert sizes == sorted(sizes)
    assert segment.file_bytes == full
    assert RESERVED_FIRST_BYTES < full <= disk_bytes(segment.path)
    segment.close()

    again = reopened(segment, files)
    assert again.file_bytes == full
    again.cut(BASE + 100)
    again.reserve()
    assert again.file_bytes == again.path.stat().st_size == RESERVED_FIRST_BYTES, "given back"
    again.close()


def test_a_batch_beyond_the_next_step_fits(tmp_path: Path, files: Any) -> None:
    segment = Segment.create(files, plan(tmp_path, file_bytes=8 * RESERVED_FIRST_BYTES))
    segment.write(BASE, [bytes([7]) * (2 * RESERVED_FIRST_BYTES + 1)])
    assert segment.path.stat().st_size == 4 * RESERVED_FIRST_BYTES
    segment.close()


def test_a_step_without_space_leaves_what_was_there(tmp_path: Path, files: Any) -> None:
    segment = Segment.create(files, plan(tmp_path, file_bytes=4 * RESERVED_FIRST_BYTES))
    segment.write(BASE, [b"kept"])
    files.allocate_error = OSError(28, "No space left")
    with pytest.raises(OSError, match="No space left"):
        segment.write(BASE + 4, [bytes([7]) * RESERVED_FIRST_BYTES])
    segment.cut(BASE + 4)
    assert segment.path.stat().st_size == SEGMENT_HEADER_BYTES + 4
    with pytest.raises(OSError, match="No space left"):
        segment.write(BASE + 4, [b"small"])
    files.allocate_error = None
    segment.write(BASE + 4, [b"small"])
    assert segment.read(BASE, 9) == b"keptsmall"
    assert segment.path.stat().st_size == RESERVED_FIRST_BYTES
    segment.close()


def test_a_file_that_was_reserved_whole_is_opened_and_not_grown(tmp_path: Path, files: Any) -> None:
    full = 4 * RESERVED_FIRST_BYTES
    segment = Segment.create(files, plan(tmp_path, file_bytes=full))
    with segment.path.open("r+b") as file:
        file.truncate(full)
    segment.close()
    again = reopened(segment, files)
    files.allocate_error = OSError(28, "No space left")
    again.write(BASE + 2 * RESERVED_FIRST_BYTES, [b"x"])
    assert again.file_bytes == full
    again.close()


def test_a_removed_file_fails_the_next_sync(segment: Segment) -> None:
    segment.write(BASE, [b"x" * 100])
    segment.sync()
    segment.path.unlink()
    segment.write(BASE + 100, [b"y" * 100])
    with pytest.raises(SyncFailed, match="was removed while the broker ran"):
        segment.sync()


def test_every_flipped_bit_of_the_header_is_noticed(segment: Segment, files: Any) -> None:
    good = segment.path.read_bytes()
    for at in [*range(64), 100, SEGMENT_HEADER_BYTES - 1]:
        for bit in range(8):
            change(segment.path, at, bytes([good[at] ^ 1 << bit]))
            again = reopened(segment, files)
            assert again.header_damage is not None
            assert again.base == BASE
            again.close()
        change(segment.path, at, good[at : at + 1])


def test_a_newer_format_is_refused_as_such(segment: Segment, files: Any) -> None:
    change(segment.path, 8, b"\3\0", seal=True)
    with pytest.raises(FormatTooNew, match="format 3"):
        reopened(segment, files)


def test_a_segment_of_another_log_is_refused(segment: Segment, files: Any) -> None:
    with pytest.raises(DataCorrupt, match="move the file back"):
        reopened(segment, files, log="transient")


def test_a_renamed_segment_is_refused(segment: Segment, files: Any) -> None:
    segment.path.rename(segment.path.with_name(segment_name(0)))
    segment.path = segment.path.with_name(segment_name(0))
    with pytest.raises(DataCorrupt, match=r"00000000000000012345\.log of the log 'forever'"):
        reopened(segment, files)


def test_a_file_shorter_than_its_header_counts_by_its_name(segment: Segment, files: Any) -> None:
    segment.path.write_bytes(b"HRSEGMNT")
    again = reopened(segment, files)
    assert "no segment header" in str(again.header_damage)
    assert again.held_end == BASE
    again.close()


@pytest.mark.parametrize("fault", ["allocate_error", "write_error"])
def test_a_creation_without_space_leaves_nothing(tmp_path: Path, files: Any, fault: str) -> None:
    setattr(files, fault, OSError(28, "No space left"))
    with pytest.raises(OSError, match="No space left"):
        Segment.create(files, plan(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", ["sync_error", "directory_sync_error"])
def test_a_creation_that_cannot_be_synced_is_no_matter_of_space(
    tmp_path: Path, files: Any, fault: str
) -> None:
    setattr(files, fault, OSError(28, "No space left"))
    with pytest.raises(SyncFailed, match="No space left"):
        Segment.create(files, plan(tmp_path))


def test_a_creation_that_lacks_a_descriptor_for_its_folder_leaves_nothing_and_may_come_again(
    tmp_path: Path, files: Any
) -> None:
    files.directory_sync_error = OSError(24, "Too many open files")
    with pytest.raises(OSError, match="Too many open files"):
        Segment.create(files, plan(tmp_path))
    assert list(tmp_path.iterdir()) == []
    files.directory_sync_error = None
    Segment.create(files, plan(tmp_path)).close()


def test_a_failed_sync_says_so(segment: Segment, files: Any) -> None:
    files.sync_error = OSError(5, "Input/output error")
    with pytest.raises(SyncFailed, match="Input/output error"):
        segment.sync()


@given(position=st.integers(0, 2**63 - 1), synced=st.integers(0, 2**63 - 1))
def test_marks_keep_their_numbers_and_notice_every_flipped_bit(position: int, synced: int) -> None:
    mark = encode_mark(WriteMark(position, synced))
    assert len(mark) == MARK_BYTES
    assert decode_mark(b"xx" + mark, 2) == (position, synced)
    for bit in range(MARK_BYTES * 8):
        bad = bytearray(mark)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataCorrupt):
            decode_mark(bytes(bad), 0)


def test_the_mark_is_that_of_the_format_document() -> None:
    expected = "4852473101002000e2a1f0dd000000000010000000000000000f000000000000"
    crc = encode_mark(WriteMark(4_096, 3_840))[8:12].hex()
    assert encode_mark(WriteMark(4_096, 3_840)).hex() == expected.replace("e2a1f0dd", crc)


def test_a_mark_that_is_cut_off_is_none() -> None:
    with pytest.raises(DataCorrupt, match="no group mark"):
        decode_mark(encode_mark(WriteMark(0, 0))[:-1], 0)


def test_a_newer_mark_is_refused_as_such() -> None:
    mark = bytearray(encode_mark(WriteMark(0, 0)))
    mark[4] = 2
    struct.pack_into("<I", mark, 8, google_crc32c.value(bytes(mark[:8] + mark[12:])))
    with pytest.raises(FormatTooNew, match="format 2"):
        decode_mark(bytes(mark), 0)


def test_bytes_in_the_middle_are_written_over_and_nothing_behind_them(
    segment: Segment, files: Any
) -> None:
    segment.write(BASE, [b"a" * 100])
    before = segment.path.read_bytes()
    again = reopened(segment, files)
    again.mend(BASE + 10, b"bb")
    again.sync()
    again.close()
    at = SEGMENT_HEADER_BYTES + 10
    assert segment.path.read_bytes() == before[:at] + b"bb" + before[at + 2 :]
