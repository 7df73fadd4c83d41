from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace_mq.broker.schedule.wheel import HOUR_MS, MINUTE_MS, Entry, KeptBucket, Wheel

NOW = 1_700_000_000_000
DAY = 24 * HOUR_MS


def wheel_of(*due_ms: int) -> Wheel:
    wheel = Wheel()
    for number, at_ms in enumerate(due_ms):
        wheel.add(Entry(at_ms, number, number))
    return wheel


def numbers(entries: Iterable[Entry]) -> list[int]:
    return [entry.number for entry in entries]


def test_entries_come_when_they_are_due_by_time_then_by_number() -> None:
    wheel = wheel_of(NOW + 5, NOW + 3, NOW + 5, NOW + 6)
    assert wheel.take(NOW + 2, 10) == []
    assert numbers(wheel.take(NOW + 5, 2)) == [1, 0]
    assert numbers(wheel.take(NOW + 5, 2)) == [2]
    assert len(wheel) == 1


def test_overdue_entries_come_at_once() -> None:
    assert numbers(wheel_of(0, NOW - DAY).take(NOW, 10)) == [0, 1]


def test_an_hour_is_poured_in_bounded_shares_before_it_begins() -> None:
    wheel = wheel_of(*(NOW + HOUR_MS + n * 1_000 for n in range(3_000)))
    shares = 0
    while wheel.advance(NOW, 500):
        shares += 1
    assert shares >= 5
    assert numbers(wheel.take(NOW + 3 * HOUR_MS, 5_000)) == list(range(3_000))


def test_the_wheel_asks_to_be_woken_early_and_then_exactly() -> None:
    wheel = wheel_of(NOW + DAY)
    woken, turns = NOW, 0
    while not (taken := wheel.take(woken, 1)):
        wheel.advance(woken, 100)
        later = wheel.wake_ms()
        assert later is not None
        assert later > woken
        woken, turns = later, turns + 1
    assert (numbers(taken), woken) == ([0], NOW + DAY)
    assert turns <= 4


def test_an_entry_is_removed_with_and_without_its_due_time() -> None:
    wheel = wheel_of(NOW + 10, NOW + DAY, NOW + 2 * DAY)
    wheel.advance(NOW, 100)
    assert wheel.remove(0, NOW + 10) == Entry(NOW + 10, 0, 0)
    assert wheel.remove(2) == Entry(NOW + 2 * DAY, 2, 2)
    assert wheel.remove(2) is None
    assert wheel.remove(1, NOW) is None
    assert numbers(wheel.take(NOW + 3 * DAY, 10)) == [1]


def test_a_clock_that_ran_ahead_and_back_does_not_fill_the_near_tier_for_ever() -> None:
    wheel = Wheel()
    wheel.advance(NOW + 300 * DAY, 10)
    wheel.advance(NOW, 10)
    for number in range(10):
        wheel.add(Entry(NOW + DAY, number, number))
    assert [(bucket.tier, len(bucket.due)) for bucket in wheel.kept()] == [(HOUR_MS, 80)]


def test_a_bucket_whose_columns_differ_is_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Wheel.restored([KeptBucket(MINUTE_MS, 1, b"12345678", b"", b"")])


def test_a_bucket_that_stands_twice_is_refused() -> None:
    one = wheel_of(NOW).kept()
    with pytest.raises(ValueError, match="twice"):
        Wheel.restored([*one, *one])


DUE = st.one_of(
    st.integers(NOW - 10, NOW + 100),
    st.integers(NOW, NOW + 3 * MINUTE_MS),
    st.integers(NOW, NOW + 3 * HOUR_MS),
    st.integers(0, NOW + 400 * DAY),
)


class AgainstADict(RuleBasedStateMachine):
    """The wheel does what a dict of entries does, however it pours and however the time jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.wheel = Wheel()
        self.model: dict[int, Entry] = {}
        self.next = 0
        self.now = NOW

    @rule(due_ms=DUE)
    def add(self, due_ms: int) -> None:
        entry = Entry(due_ms, self.next, self.next)
        self.next += 1
        self.wheel.add(entry)
        self.model[entry.number] = entry

    @rule(by_ms=st.integers(-HOUR_MS, 2 * HOUR_MS))
    def pass_time(self, by_ms: int) -> None:
        self.now += by_ms

    @rule(limit=st.integers(1, 5))
    def advance(self, limit: int) -> None:
        self.wheel.advance(self.now, limit)

    @rule(limit=st.integers(1, 5))
    def take(self, limit: int) -> None:
        due = sorted(entry for entry in self.model.values() if entry.due_ms <= self.now)[:limit]
        assert self.wheel.take(self.now, limit) == due
        for entry in due:
            del self.model[entry.number]

    @precondition(lambda self: self.next)
    @rule(pick=st.integers(0, 1_000), knows=st.booleans())
    def remove(self, pick: int, *, knows: bool) -> None:
        number = pick % self.next
        expected = self.model.pop(number, None)
        due_ms = expected.due_ms if expected is not None and knows else None
        assert self.wheel.remove(number, due_ms) == expected

    @precondition(lambda self: self.model)
    @rule(pick=st.integers(0, 1_000))
    def move(self, pick: int) -> None:
        entry = sorted(self.model.values())[pick % len(self.model)]
        moved = entry._replace(place=self.next)
        self.next += 1
        assert self.wheel.move(moved)
        self.model[entry.number] = moved

    @rule()
    def restore(self) -> None:
        kept = msgspec.json.decode(msgspec.json.encode(self.wheel.kept()), type=list[KeptBucket])
        self.wheel = Wheel.restored(kept)

    @invariant()
    def tells_what_the_model_tells(self) -> None:
        held = self.model.values()
        assert len(self.wheel) == len(held)
        assert self.wheel.next_due_ms() == min((e.due_ms for e in held), default=None)
        assert self.wheel.lowest_place() == min((e.place for e in held), default=None)
        below = self.wheel.placed_below(self.next // 2, 1_000)
        assert sorted(below) == sorted(e for e in held if e.place < self.next // 2)
        woken = self.wheel.wake_ms()
        assert (woken is None) == (not held)
        assert woken is None or woken <= min(e.due_ms for e in held)


TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = hypothesis_settings(max_examples=60, stateful_step_count=30)


@given(st.lists(st.integers(0, 10**13), max_size=30), st.integers(1, 7))
def test_every_entry_is_taken_once_in_shares_of_any_size(due_ms: list[int], share: int) -> None:
    wheel = wheel_of(*due_ms)
    taken: list[Entry] = []
    while some := wheel.take(10**13, share):
        taken += some
    assert taken == sorted(Entry(at_ms, n, n) for n, at_ms in enumerate(due_ms))
