"""Which commands need no look into the store: those that nobody can have handled before."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._runtime.clock import SystemClock
from headrace._runtime.ids import derived_id, new_id
from headrace.aggregates.known_commands import KnownCommands
from headrace.testing.history import FakeClock

REMEMBERED_MAX = 65_536
NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def made_at(ms: int, number: int = 0) -> str:
    """The id of a command that was made so long after the clock's start."""
    text = f"{int(NOW.timestamp() * 1_000) + ms:012x}"
    return f"{text[:8]}-{text[8:]}-7000-8000-{number:012x}"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def known(clock) -> KnownCommands:
    return KnownCommands(clock, remembered_max=REMEMBERED_MAX)


@given(st.integers(min_value=-1_000_000, max_value=1_000_000))
def test_what_was_made_before_may_be_stored_and_what_was_made_later_may_not(ms):
    known = KnownCommands(FakeClock(NOW), remembered_max=REMEMBERED_MAX)
    assert known.may_be_stored("a", made_at(ms)) is (ms <= 0)


@pytest.mark.parametrize("command_id", ["", "c-1", "~" * 36, "z" * 40, derived_id("a", "b")])
def test_an_id_that_does_not_tell_when_it_was_made_may_be_stored(known, command_id):
    assert known.may_be_stored("a", command_id)


def test_an_id_of_this_machine_that_is_made_now_is_new():
    known = KnownCommands(SystemClock(), remembered_max=REMEMBERED_MAX)
    later = time.time_ns() // 1_000_000 + 2
    while time.time_ns() // 1_000_000 < later:
        pass
    assert not known.may_be_stored("a", new_id())


def test_a_command_that_was_handled_here_is_known_for_its_own_aggregate(known):
    known.add("a", made_at(5))
    assert known.may_be_stored("a", made_at(5))
    assert not known.may_be_stored("b", made_at(5))
    assert not known.may_be_stored("a", made_at(6))


def test_others_may_have_stored_what_was_made_until_the_queue_came_back(known, clock):
    clock.advance(100)
    known.begin_again()
    assert known.may_be_stored("a", made_at(100))
    assert not known.may_be_stored("a", made_at(101))


def test_what_is_forgotten_may_be_stored_and_no_more_is_kept_than_the_limit(clock):
    known = KnownCommands(clock, remembered_max=10)
    ids = []
    for ms in range(1, 101):
        clock.advance(1)
        ids.append(made_at(ms))
        known.add("a", ids[-1])
        assert len(known) <= 10
        # Whatever was handled here is either remembered or too old to be new.
        assert all(known.may_be_stored("a", each) for each in ids)
        assert not known.may_be_stored("a", made_at(ms + 1))
