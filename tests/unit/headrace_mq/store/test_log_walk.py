"""Walking a segment by its heads alone: what bad bytes hide, and what they do not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.store.log_walk import LogWalk
from headrace_mq.store.segment import Segment

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
