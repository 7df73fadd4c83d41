"""Blocks beside a segment are believed to the byte, in order, or cut off."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import DataCorrupt
from headrace_mq.store.segment.block_file import BlockFile, Content, Kind
from headrace_mq.store.segment.segment import Segment, SegmentPlan


def decoded(directory: bytes) -> bytes:
    if directory == b"nonsense":
        raise DataCorrupt("it says nothing")
    return directory


KIND = Kind(".test", b"HRTESTED", b"HRTB", 1, decoded)
Make = Callable[..., BlockFile[bytes]]


@pytest.fixture
def make(tmp_path: Path, files: Any) -> Make:
    plan = SegmentPlan(tmp_path, "forever", base=100, file_bytes=8_192, epoch=1, now_ms=0)
    segment = Segment.create(files, plan)
    return lambda kind=KIND: BlockFile(files, segment, "forever", kind)


def content(start: int, end: int, directory: bytes = b"directory") -> Content:
    return Content(start, end, [b"page", b"another"], directory, 0, 1, 2, -1, -1)


def filled(make: Make) -> BlockFile[bytes]:
    file = make()
    for start in (100, 200, 300):
        file.accept(file.append(content(start, start + 100)))
    return file


def loaded(file: BlockFile[bytes], limit: int = 1_000) -> list[bytes]:
    found = []
    for block, directory in file.load(limit):
        file.accept(block)
        found.append(directory)
    return found


def test_blocks_come_back_in_order(make: Make) -> None:
    written = filled(make)
    file = make()
    assert loaded(file) == [b"directory"] * 3
    assert file.blocks == written.blocks
    assert (file.end, file.next_at) == (400, written.next_at)


@pytest.mark.parametrize(("limit", "count"), [(400, 3), (399, 2), (200, 1), (150, 0)])
def test_no_block_claims_more_than_the_log_holds(make: Make, limit: int, count: int) -> None:
    filled(make)
    file = make()
    assert len(loaded(file, limit)) == count
    # What was not believed is cut off, so the next block follows.
    file.accept(file.append(content(file.end, 1_000)))
    assert len(loaded(make())) == count + 1


def test_a_block_that_leaves_a_hole_or_does_not_decode_ends_the_file(make: Make) -> None:
    file = filled(make)
    file.accept(file.append(content(450, 500)))
    assert len(loaded(make())) == 3
    file = make()
    loaded(file)
    file.accept(file.append(content(400, 500, b"nonsense")))
    assert len(loaded(make())) == 3


def test_every_cut_and_every_flipped_bit_leaves_the_blocks_before_it(make: Make) -> None:
    path = filled(make).path
    ends = [64, *(block.at + block.size for block in filled(make).blocks)]
    good = path.read_bytes()
    # Pages are checked by whoever reads them.
    pages = {at for start in ends[:-1] for at in range(start + 96, start + 96 + 11)}
    for at in range(len(good)):
        whole = max(0, sum(end <= at for end in ends) - 1)
        path.write_bytes(good[:at])
        assert len(loaded(make())) == whole
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        assert len(loaded(make())) == (3 if at in pages else whole)


def test_a_block_file_of_another_kind_or_version_is_rebuilt(make: Make) -> None:
    filled(make)
    for kind in (KIND._replace(version=2), KIND._replace(magic=b"HROTHERS")):
        file = make(kind)
        assert loaded(file) == []
        file.accept(file.append(content(100, 200)))
        assert loaded(make(kind)) == [b"directory"]
        filled(make)


def test_a_failed_write_is_overwritten_by_the_next_one(make: Make, files: Any) -> None:
    file = filled(make)
    files.write_error, files.write_some = OSError(28, "No space left on device"), 20
    with pytest.raises(OSError, match="No space"):
        file.append(content(400, 500))
    files.write_error = None
    file.accept(file.append(content(400, 500)))
    assert len(loaded(make())) == 4


def test_a_file_that_was_never_written_cannot_be_read(make: Make) -> None:
    file = make()
    assert loaded(file) == []
    assert not file.path.exists()
    with pytest.raises(DataCorrupt, match="no file"):
        file.read(0, 1)
    file.cut("a test")
    file.replace(0, b"x")
    assert not file.path.exists()
