"""Every entry and every gap of a segment, without a hole between."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.protocol.batch import BatchHeader, assign
from headrace_mq.store.segment import (
    MARK_BYTES,
    Mark,
    Segment,
    SegmentPlan,
    encode_mark,
)
from headrace_mq.store.segment_walk import Gap, SegmentWalk

BASE = 1_000
MakeBatch = Callable[..., bytearray]


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    plan = SegmentPlan(
        directory=tmp_path, log="forever", base=BASE, file_bytes=65_536, epoch=1, now_ms=0
    )
    made = Segment.create(SystemFiles(), plan)
    yield made
    made.close()


@pytest.fixture
def write(segment: Segment, make_batch: MakeBatch) -> Callable[..., list[int]]:
    """Writes a mark and batches; returns where each stands and where the last one ends."""

    def written(*bodies: bytes) -> list[int]:
        segment.write(BASE, [encode_mark(Mark(BASE, BASE))])
        places = [BASE + MARK_BYTES]
        for offset, body in enumerate(bodies):
            batch = make_batch(body)
            assign(
                batch, base_offset=offset, position=places[-1], appended_at_ms=0, epoch=1
            )  # fmt: skip
            segment.write(places[-1], [bytes(batch)])
            places.append(places[-1] + len(batch))
        return places

    return written


def spoil(segment: Segment, position: int) -> None:
    (byte,) = segment.read(position, 1)
    segment.write(position, [bytes([byte ^ 1])])


def test_a_sound_segment_is_its_entries(segment: Segment, write: Callable[..., list[int]]) -> None:
    places = write(b"a", b"bb", b"ccc")
    walk = SegmentWalk(segment, places[-1])
    mark, *headers = walk.entries()
    assert mark == Mark(BASE, BASE)
    assert [one.position for one in headers if isinstance(one, BatchHeader)] == places[:-1]
    assert isinstance(headers[1], BatchHeader)
    assert walk.batch(headers[1]) == segment.read(places[1], places[2] - places[1])


def test_a_damaged_batch_is_a_gap_that_knows_its_header(
    segment: Segment, write: Callable[..., list[int]]
) -> None:
    places = write(b"a", b"b" * 100, b"c")
    spoil(segment, places[2] - 5)
    gaps = [one for one in SegmentWalk(segment, places[-1]).entries() if isinstance(one, Gap)]
    assert [(one.start, one.end, one.whole_follows) for one in gaps] == [
        (places[1], places[2], True)
    ]
    assert gaps[0].head is not None
    assert gaps[0].head.base_offset == 1


def test_what_is_behind_the_last_entry_is_one_gap(
    segment: Segment, write: Callable[..., list[int]]
) -> None:
    places = write(b"a")
    walk = SegmentWalk(segment, segment.limit)
    *_, gap = walk.entries()
    assert gap == Gap(places[-1], segment.limit, None, whole_follows=False)
    assert not walk.has_bytes(places[-1])
    segment.write(places[-1] + 9, [b"x"])
    assert SegmentWalk(segment, segment.limit).has_bytes(places[-1])


def test_a_sector_that_was_never_written_is_told_from_bytes(
    segment: Segment, write: Callable[..., list[int]]
) -> None:
    places = write(b"a", b"b" * 2_000, b"c")
    segment.write(places[1] + 600, [b"\x01" * 3])
    for zeros, expected in [(0, False), (1_100, True)]:
        segment.write(places[1] + 200, [b"\0" * zeros])
        walk = SegmentWalk(segment, places[-1])
        (gap,) = [one for one in walk.entries() if isinstance(one, Gap)]
        assert walk.has_unwritten_sector(gap) == expected


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(0, 2_999), max_size=4))
def test_entries_and_gaps_cover_every_byte_whatever_is_damaged(
    segment: Segment, write: Callable[..., list[int]], flips: list[int]
) -> None:
    segment.cut(BASE)
    segment.reserve()
    places = write(*[b"%d" % n * 300 for n in range(8)])
    for at in flips:
        spoil(segment, BASE + at % (places[-1] - BASE))
    position = BASE
    for entry in SegmentWalk(segment, places[-1]).entries():
        start = entry.start if isinstance(entry, Gap) else entry.position
        assert start == position
        if isinstance(entry, Gap):
            position = entry.end
        else:
            position += MARK_BYTES if isinstance(entry, Mark) else entry.length
    assert position == places[-1]
