"""Walking a segment by its heads alone: what bad bytes hide, and what they do not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import assign
from headrace_mq.store.log_walk import ZEROS_MAX_BYTES, LogWalk
from headrace_mq.store.segment import Segment, SegmentPlan

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
