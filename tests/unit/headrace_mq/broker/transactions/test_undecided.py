"""What is undecided, as the journal tells it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.broker.transactions import undecided as module
from headrace_mq.broker.transactions.journal import (
    BundleDecision,
    Checked,
    Decided,
    DecidedPart,
    Done,
    Event,
    Prepared,
)
from headrace_mq.broker.transactions.undecided import KeptTransactions, Transactions
from headrace_mq.protocol.transactions import Outcome


def prepared(number: int, count: int = 2, begun_at_ms: int = 1_000) -> Prepared:
    return Prepared(number, "g", "c", count, begun_at_ms)


def decided(number: int, commit: list[int], roll_back: list[int] | None = None) -> Decided:
    return Decided(1, [BundleDecision(number, commit, roll_back or [], [])], [])


def told(*events: Event) -> Transactions:
    state = Transactions(6_000)
    for event in events:
        state.apply(event)
    return state


def test_a_bundle_is_pending_until_all_of_it_is_decided() -> None:
    state = told(prepared(5, 3))
    assert state.undecided == 3
    state.apply(decided(5, [0], [2]))
    pending = state.find(5)
    assert pending is not None
    assert (pending.undecided, state.undecided) == ([1], 1)
    state.apply(decided(5, [1]))
    assert (state.find(5), state.undecided) == (None, 0)
    outcomes = state.outcomes(5)
    assert outcomes is not None
    assert list(outcomes) == [Outcome.COMMITTED, Outcome.COMMITTED, Outcome.ROLLED_BACK]


def test_the_outcomes_of_long_ago_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTCOMES_MAX", 4)
    state = told(*(prepared(n) for n in range(3)), *(decided(n, [0, 1]) for n in range(3)))
    assert state.outcomes(0) is None
    assert state.outcomes(1) is not None


def test_a_bundle_is_due_for_its_first_check_after_the_time_out_and_then_when_it_was_put_back() -> (
    None
):
    state = told(prepared(1, begun_at_ms=1_000), prepared(2, begun_at_ms=500))
    assert state.next_check_ms() == 6_500
    assert [p.number for p in state.due(6_999, 10)] == [2]
    (first,) = state.due(7_000, 10)
    assert state.due(99_999, 10) == []
    state.check_again(first, 8_000)
    assert state.next_check_ms() == 8_000
    state.apply(decided(1, [0, 1]))
    assert state.next_check_ms() is None


def test_checks_that_the_journal_tells_count_once() -> None:
    state = told(prepared(1), Checked(1, 3, 9_000), Checked(1, 2, 8_000))
    assert state.next_check_ms() == 9_000
    pending = state.find(1)
    assert pending is not None
    assert pending.checks == 3


def test_bundles_of_the_last_decisions_are_read_until_these_are_done() -> None:
    part = DecidedPart("t", 0, 0, 1, 0)
    whole = Decided(1, [BundleDecision(1, [0, 1], [], [])], [part])
    state = told(prepared(1), prepared(2), whole)
    assert (state.lowest_offset(), state.unfinished) == (1, whole)
    state.apply(Done())
    assert (state.lowest_offset(), state.unfinished) == (2, None)
    assert [p.number for p in state.numbered_below(9, 5)] == [2]
    assert state.numbered_below(2, 5) == []
    state.apply(decided(2, [0, 1]))
    assert state.lowest_offset() is None


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4)),
        max_size=8,
    ),
    st.integers(0, 20),
)
def test_a_state_that_was_kept_anywhere_comes_to_the_same_end(
    bundles: list[tuple[int, list[int]]], keep_at: int
) -> None:
    events: list[Event] = []
    for number, (count, places) in enumerate(bundles):
        events.append(prepared(number, count))
        chosen = sorted({place for place in places if place < count})
        if chosen:
            events.append(decided(number, chosen[:1], chosen[1:]))
        events.append(Checked(number, 1 + number, 7_000 + number))
    straight = told(*events)
    kept = msgspec.json.encode(told(*events[:keep_at]).kept())
    restored = Transactions(6_000)
    restored.restore(msgspec.json.decode(kept, type=KeptTransactions))
    for event in events[keep_at:]:
        restored.apply(event)
    assert restored.kept() == straight.kept()
    assert restored.undecided == straight.undecided == sum(len(p.undecided) for p in straight)
    assert restored.next_check_ms() == straight.next_check_ms()
