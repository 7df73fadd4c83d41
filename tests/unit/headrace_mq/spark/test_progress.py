"""A stream goes on by shares, loses nothing unsaid, and reads what its offsets say."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.progress import advance, begin, between, from_json, missing, to_json

A, B = QueueRef("orders", 0), QueueRef("orders", 1)


def held(first: int, end: int, queue_id: int = 0) -> QueueRange:
    return QueueRange("orders", queue_id, first, end)


@st.composite
def situation(draw: st.DrawFn) -> tuple[list[QueueRange], dict[QueueRef, int]]:
    ranges, start = [], {}
    for queue_id in range(draw(st.integers(1, 5))):
        end = draw(st.integers(0, 400))
        ranges.append(held(0, end, queue_id))
        if draw(st.booleans()):
            start[QueueRef("orders", queue_id)] = draw(st.integers(0, end))
    return ranges, start


@example(([held(0, 1), held(0, 1, 1), held(0, 4, 2)], {}), 3)
@given(situation(), st.one_of(st.none(), st.integers(1, 500)))
def test_micro_batches_cover_every_record_once_within_their_limit(
    now: tuple[list[QueueRange], dict[QueueRef, int]], records_max: int | None
) -> None:
    ranges, at = now
    waiting = {
        (one.queue_id, offset)
        for one in ranges
        for offset in range(at.get(QueueRef("orders", one.queue_id), 0), one.end)
    }
    read: list[tuple[int, int]] = []
    while (goal := advance(ranges, at, records_max)) != at:
        slices = between(ranges, at, goal)
        records = [(s.queue.queue_id, offset) for s in slices for offset in range(s.start, s.end)]
        assert records
        assert records_max is None or len(records) <= max(records_max, len(ranges))
        assert missing(ranges, at, goal) == []
        read += records
        at = goal
    assert len(read) == len(waiting)
    assert set(read) == waiting


def test_shares_are_in_proportion_and_at_least_one_record() -> None:
    ranges = [held(0, 1_000), held(0, 100, 1), held(0, 1, 2)]
    goal = advance(ranges, {}, 110)
    assert goal == {A: 98, B: 10, QueueRef("orders", 2): 1}


def test_a_new_queue_joins_with_its_first_record() -> None:
    start = {A: 5}
    assert advance([held(0, 5), held(0, 0, 1)], start, None) == start
    goal = advance([held(0, 5), held(0, 3, 1)], start, None)
    assert goal == {A: 5, B: 3}
    [piece] = between([held(0, 5), held(0, 3, 1)], start, goal)
    assert (piece.queue, piece.start, piece.end) == (B, 0, 3)


def test_offsets_survive_a_checkpoint_in_one_spelling() -> None:
    offsets = {QueueRef("b", 10): 1, QueueRef("b", 9): 2, QueueRef("a", 0): 3}
    kept = to_json(offsets)
    assert list(kept) == ["a", "b"]
    assert list(kept["b"]) == ["9", "10"]
    assert from_json(kept) == offsets


def test_deleted_records_are_a_loss_and_the_first_held_comes_next() -> None:
    places, [loss] = begin([held(7, 20)], {A: 3})
    assert places == {A: 7}
    assert loss.sentence == "offset 3 of orders/0 was deleted; the first one held is 7"
    assert advance([held(7, 20)], {A: 3}, 5) == {A: 12}
    [piece] = between([held(7, 20)], {A: 3}, {A: 12})
    assert (piece.start, piece.end) == (7, 12)


def test_a_recreated_queue_is_a_loss_and_is_read_from_its_first_record() -> None:
    ranges = [held(0, 4)]
    places, [loss] = begin(ranges, {A: 9})
    assert places == {A: 0}
    assert "offset 9 of orders/0 was reached before, but the queue ends at 4" in loss.sentence
    goal = advance(ranges, {A: 9}, None)
    assert goal == {A: 4}
    [piece] = between(ranges, {A: 9}, goal)
    assert (piece.start, piece.end) == (0, 4)


@pytest.mark.parametrize(
    ("ranges", "start", "end", "lost_at"),
    [
        ([held(5, 20)], 3, 9, 3),
        ([held(0, 6)], 3, 9, 9),
        ([held(0, 6)], 9, 3, 9),
        ([], 3, 9, 9),
    ],
)
def test_a_batch_that_is_not_held_is_missing(
    ranges: list[QueueRange], start: int, end: int, lost_at: int
) -> None:
    [loss] = missing(ranges, {A: start}, {A: end})
    assert loss.at == lost_at


def test_deleted_queues_are_not_read() -> None:
    assert between([], {A: 3}, {A: 9}) == []
    [piece] = between([held(5, 6)], {A: 3}, {A: 9})
    assert (piece.start, piece.end) == (5, 6)
    assert between([held(0, 6)], {A: 6}, {A: 6}) == []
