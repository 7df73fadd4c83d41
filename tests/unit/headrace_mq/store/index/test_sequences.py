"""Repeated and missing batches of a producer, and forgetting the silent ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import SequenceGap
from headrace_mq.message import QueueRef
from headrace_mq.store.index.sequences import BATCHES_REMEMBERED, SentBatch, Sequences

KEY = (7, 0, QueueRef("orders", 0))
WRAP = 1 << 32


@pytest.fixture
def sequences() -> Sequences:
    return Sequences()


@given(start=st.integers(0, WRAP - 1), counts=st.lists(st.integers(1, 1_000), min_size=1))
def test_batches_in_order_are_new_across_the_wrap_and_repeats_are_found(
    start: int, counts: list[int]
) -> None:
    sequences = Sequences()
    first, offset = start, 0
    sent = []
    for count in counts:
        assert sequences.duplicate_of(KEY, first, count) is None
        sequences.record(KEY, SentBatch(first, count, offset))
        sent.append((first, count, offset))
        first, offset = (first + count) % WRAP, offset + count
    for number, (first, count, offset) in enumerate(reversed(sent)):
        expected = offset if number < BATCHES_REMEMBERED else -1
        assert sequences.duplicate_of(KEY, first, count) == expected


def test_an_unknown_producer_may_begin_anywhere(sequences: Sequences) -> None:
    assert sequences.duplicate_of(KEY, 4_000_000_000, 10) is None


def test_a_jump_is_a_gap(sequences: Sequences) -> None:
    sequences.record(KEY, SentBatch(0, 10, 0))
    with pytest.raises(SequenceGap, match="10 is next"):
        sequences.duplicate_of(KEY, 11, 1)


def test_a_batch_that_is_only_partly_new_is_refused(sequences: Sequences) -> None:
    sequences.record(KEY, SentBatch(0, 10, 0))
    with pytest.raises(SequenceGap, match="repeats 5 stored messages and adds 1"):
        sequences.duplicate_of(KEY, 5, 6)


def test_a_repeat_cut_differently_gets_its_own_offset(sequences: Sequences) -> None:
    sequences.record(KEY, SentBatch(0, 10, 100))
    assert sequences.duplicate_of(KEY, 4, 3) == 104


@pytest.mark.parametrize(
    "other",
    [
        (8, 0, QueueRef("orders", 0)),
        (7, 1, QueueRef("orders", 0)),
        (7, 0, QueueRef("orders", 1)),
    ],
)
def test_producers_epochs_and_queues_count_apart(sequences: Sequences, other: tuple) -> None:
    sequences.record(KEY, SentBatch(0, 10, 0))
    assert sequences.duplicate_of(other, 5, 1) is None


def test_undoing_in_reverse_order_restores_everything(sequences: Sequences) -> None:
    sequences.record(KEY, SentBatch(0, 10, 0))
    undos = [sequences.record(KEY, SentBatch(10 * n, 10, 10 * n)) for n in range(1, 9)]
    for undo in reversed(undos):
        sequences.undo(undo)
    assert sequences.duplicate_of(KEY, 0, 10) == 0
    assert sequences.duplicate_of(KEY, 10, 1) is None


def test_undoing_the_first_batch_forgets_the_producer(sequences: Sequences) -> None:
    sequences.undo(sequences.record(KEY, SentBatch(0, 10, 0)))
    assert len(sequences) == 0


def test_the_longest_silent_producer_is_forgotten_first() -> None:
    sequences = Sequences(producers_max=2)
    keys = [(n, 0, QueueRef("orders", 0)) for n in range(3)]
    for key in keys:
        sequences.record(key, SentBatch(0, 1, 0))
    sequences.record(keys[0], SentBatch(1, 1, 1))
    assert len(sequences) == 3
    sequences.forget_surplus()
    assert len(sequences) == 2
    assert sequences.duplicate_of(keys[1], 0, 1) is None
    assert sequences.duplicate_of(keys[0], 0, 1) == 0
