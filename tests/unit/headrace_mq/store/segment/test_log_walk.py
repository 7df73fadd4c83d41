"""Walking a segment: every entry and every gap, what bad bytes hide, and what they do not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, assign
from headrace_mq.store.segment.log_walk import ZEROS_MAX_BYTES, Gap, LogWalk
from headrace_mq.store.segment.segment import (
    MARK_BYTES,
    Segment,
    SegmentPlan,
    WriteMark,
    encode_mark,
)

MakeBatch = Callable[..., bytearray]


@pytest.fixture
async def segment(open_store: Any, make_batch: MakeBatch) -> Segment:
    store = open_store()
    for n in range(5):
        store.append(make_batch(b"%d" % n * 300, queue=n % 2), retention="forever")
        await store.durable()
    found: Segment = store._logs["forever"].segments[0]
    return found


async def test_heads_come_in_log_order_and_end_with_the_log(segment: Segment) -> None:
    heads = list(LogWalk(segment, segment.held_end).heads(segment.base))
    assert [head.queue for head in heads] == [QueueRef("orders", n % 2) for n in range(5)]
    assert [head.base_offset for head in heads] == [0, 0, 1, 1, 2]
    assert list(LogWalk(segment, heads[3].position).heads(heads[1].position)) == heads[1:3]


@pytest.mark.parametrize(("byte", "found"), [(20, [0, 1, 3, 4]), (200, [0, 1, 2, 3, 4])])
async def test_a_damaged_head_hides_its_batch_and_a_damaged_body_does_not(
    segment: Segment, byte: int, found: list[int], tmp_path: Path
) -> None:
    heads = list(LogWalk(segment, segment.held_end).heads(segment.base))
    at = heads[2].position + byte
    segment.write(at, [bytes([segment.read(at, 1)[0] ^ 1])])
    assert list(LogWalk(segment, segment.held_end).heads(segment.base)) == [
        heads[number] for number in found
    ]


class ReadCounter:
    """A segment that notes up to where it was read."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.base = segment.base
        self.read_to = 0

    def read(self, position: int, length: int) -> bytes:
        found = self._segment.read(position, length)
        self.read_to = max(self.read_to, position + len(found))
        return found

    def next_data(self, position: int) -> int:
        # As a file system answers that does not know what was never written.
        return position


@pytest.mark.parametrize(("durable", "found"), [(0, False), (1 << 40, True), (None, True)])
def test_as_many_zeros_as_no_batch_holds_end_a_search_where_nothing_was_durable(
    tmp_path: Path, make_batch: MakeBatch, durable: int | None, found: bool
) -> None:
    far = 2 * ZEROS_MAX_BYTES
    plan = SegmentPlan(tmp_path, "forever", base=0, file_bytes=1, epoch=1, now_ms=0)
    segment = Segment.create(SystemFiles(), plan)
    batch = make_batch(b"far away")
    assign(batch, base_offset=0, position=far, appended_at_ms=0, epoch=1)
    segment.write(far, [bytes(batch)])
    seen = ReadCounter(segment)
    walk = LogWalk(seen, segment.held_end)  # type: ignore[arg-type]  # what a walk needs of it
    assert walk.following(1, durable=durable) == (far if found else None)
    assert found == (seen.read_to == segment.held_end)
    segment.close()


@pytest.mark.parametrize("window_bytes", [1, 100, 1 << 20])
async def test_batches_are_read_whole_in_steps_and_damage_is_passed_over(
    segment: Segment, window_bytes: int
) -> None:
    heads = list(LogWalk(segment, segment.held_end).heads(segment.base))
    end = heads[-1].position + heads[-1].length
    for number, byte in ((1, 200), (3, 20)):
        at = heads[number].position + byte
        segment.write(at, [bytes([segment.read(at, 1)[0] ^ 1])])
    for step in (1, 50, 333, 10_000):
        walk = LogWalk(segment, end, window_bytes=window_bytes)
        found, position = [], segment.base
        while position < end:
            for header in walk.batches(position, min(position + step, end)):
                assert walk.batch(header) == segment.read(header.position, header.length)
                found.append(header)
            assert walk.position > position
            position = walk.position
        assert found == [heads[0], heads[2], heads[4]]


# --- entries and gaps ----------------------------------------------------------------------------


BASE = 1_000


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Segment]:
    plan = SegmentPlan(
        directory=tmp_path, log="forever", base=BASE, file_bytes=65_536, epoch=1, now_ms=0
    )
    created = Segment.create(SystemFiles(), plan)
    yield created
    created.close()


@pytest.fixture
def write(made: Segment, make_batch: MakeBatch) -> Callable[..., list[int]]:
    """Writes a mark and batches; returns where each stands and where the last one ends."""

    def written(*bodies: bytes) -> list[int]:
        made.write(BASE, [encode_mark(WriteMark(BASE, BASE))])
        places = [BASE + MARK_BYTES]
        for offset, body in enumerate(bodies):
            batch = make_batch(body)
            assign(
                batch, base_offset=offset, position=places[-1], appended_at_ms=0, epoch=1
            )  # fmt: skip
            made.write(places[-1], [bytes(batch)])
            places.append(places[-1] + len(batch))
        return places

    return written


def spoil(made: Segment, position: int) -> None:
    (byte,) = made.read(position, 1)
    made.write(position, [bytes([byte ^ 1])])


def test_a_sound_segment_is_its_entries(made: Segment, write: Callable[..., list[int]]) -> None:
    places = write(b"a", b"bb", b"ccc")
    walk = LogWalk(made, places[-1])
    mark, *headers = walk.entries()
    assert mark == WriteMark(BASE, BASE)
    assert [one.position for one in headers if isinstance(one, BatchHeader)] == places[:-1]
    assert isinstance(headers[1], BatchHeader)
    assert walk.batch(headers[1]) == made.read(places[1], places[2] - places[1])


def test_a_damaged_batch_is_a_gap_that_knows_its_header(
    made: Segment, write: Callable[..., list[int]]
) -> None:
    places = write(b"a", b"b" * 100, b"c")
    spoil(made, places[2] - 5)
    gaps = [one for one in LogWalk(made, places[-1]).entries() if isinstance(one, Gap)]
    assert [(one.start, one.end, one.whole_follows) for one in gaps] == [
        (places[1], places[2], True)
    ]
    assert gaps[0].head is not None
    assert gaps[0].head.base_offset == 1


def test_bytes_after_the_last_entry_are_one_gap(
    made: Segment, write: Callable[..., list[int]]
) -> None:
    places = write(b"a")
    walk = LogWalk(made, made.limit)
    *_, gap = walk.entries()
    assert gap == Gap(places[-1], made.limit, None, whole_follows=False)
    assert not walk.has_bytes(places[-1])
    made.write(places[-1] + 9, [b"x"])
    assert LogWalk(made, made.limit).has_bytes(places[-1])


def test_a_sector_that_was_never_written_is_distinguished_from_bytes(
    made: Segment, write: Callable[..., list[int]]
) -> None:
    places = write(b"a", b"b" * 2_000, b"c")
    made.write(places[1] + 600, [b"\x01" * 3])
    for zeros, expected in [(0, False), (1_100, True)]:
        made.write(places[1] + 200, [b"\0" * zeros])
        walk = LogWalk(made, places[-1])
        (gap,) = [one for one in walk.entries() if isinstance(one, Gap)]
        assert walk.has_unwritten_sector(gap.start, gap.end) == expected


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(0, 2_999), max_size=4))
def test_entries_and_gaps_cover_every_byte_of_a_damaged_segment(
    made: Segment, write: Callable[..., list[int]], flips: list[int]
) -> None:
    made.cut(BASE)
    made.reserve()
    places = write(*[b"%d" % n * 300 for n in range(8)])
    for at in flips:
        spoil(made, BASE + at % (places[-1] - BASE))
    position = BASE
    for entry in LogWalk(made, places[-1]).entries():
        start = entry.start if isinstance(entry, Gap) else entry.position
        assert start == position
        if isinstance(entry, Gap):
            position = entry.end
        else:
            position += MARK_BYTES if isinstance(entry, WriteMark) else entry.length
    assert position == places[-1]
