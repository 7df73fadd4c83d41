"""A stream goes on by shares, loses nothing unsaid, and reads what its offsets say."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.progress import (
    advance,
    begin,
    between,
    epochs_after,
    epochs_of,
    from_json,
    missing,
    to_json,
)

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


def test_epochs_stand_in_a_checkpoint_next_to_offsets_and_old_ones_have_none() -> None:
    kept = to_json({A: 3, B: 1}, {A: 7})
    assert kept == {"orders": {"0": 3, "1": 1}, "%epochs%orders": {"0": 7}}
    assert (from_json(kept), epochs_of(kept)) == ({A: 3, B: 1}, {A: 7})
    assert epochs_of({"orders": {"0": 3}}) == {}


def test_a_queue_keeps_its_epoch_while_nothing_of_it_is_read() -> None:
    now = [replace(held(0, 9), epoch=5), replace(held(0, 9, 1), epoch=5)]
    assert epochs_after(now, {A: 3, B: 9}, {A: 9, B: 9}, {A: 2, B: 2}) == {A: 5, B: 2}
    assert epochs_after([held(0, 9)], {A: 3}, {A: 9}, {A: 2}) == {A: 2}
    # It ends where it ended before, and other messages stand there.
    now = [replace(held(0, 9), epoch=5, changed_from=4)]
    assert epochs_after(now, {A: 9}, {A: 9}, {A: 2}) == {A: 5}


def test_a_loss_of_what_was_read_says_that_the_result_is_to_be_built_again() -> None:
    now = [replace(held(0, 12), changed_from=4)]
    places, [loss] = begin(now, {A: 9})
    assert places == {A: 4}
    assert "brokers lost its messages from 4 on" in loss.sentence
    assert "build it again" in loss.sentence
    assert begin(now, {A: 4}) == ({A: 4}, [])
    assert missing(now, {A: 9}, {A: 12}) == [loss]


@given(
    at=st.integers(0, 20), grown=st.integers(0, 20), changed=st.integers(0, 20),
    most=st.none() | st.integers(1, 9),
)  # fmt: skip
def test_after_a_loss_all_messages_from_the_changed_one_on_are_read(
    at: int, grown: int, changed: int, most: int | None
) -> None:
    now = [replace(held(0, changed + grown), epoch=5, changed_from=changed)]
    before, read = {A: at}, list(range(min(at, changed)))
    start, epochs = dict(before), {A: 2}
    for _ in range(50):
        known = now if epochs[A] < 5 else [replace(now[0], changed_from=-1)]
        goals = advance(known, start, most)
        after = epochs_after(known, start, goals, epochs)
        if (goals, after) == (start, epochs):
            break
        for piece in between(known, start, goals):
            read += range(piece.start, piece.end)
        start, epochs = goals, after
    if at <= changed or grown:
        assert read == list(range(changed + grown))


def test_a_batch_that_was_planned_before_a_loss_reads_none_of_what_follows_it() -> None:
    now = [replace(held(0, 30), changed_from=12)]
    assert [one.at for one in missing(now, {A: 10}, {A: 20}, now)] == [20]
    [piece] = between(now, {A: 10}, {A: 20}, now)
    assert (piece.start, piece.end) == (10, 12)
    assert between(now, {A: 15}, {A: 20}, now) == []
    # The end was planned after the loss.
    same = [replace(now[0], changed_from=-1)]
    [piece] = between(now, {A: 20}, {A: 16}, same)
    assert (piece.start, piece.end) == (12, 16)
