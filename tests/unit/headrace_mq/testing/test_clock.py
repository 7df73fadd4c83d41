"""Clocks that tests set."""

import random

import pytest

from headrace_mq.testing.clock import EPOCH_MS, ManualClock, SimulatedClock
from headrace_mq.testing.simulated_loop import SimulatedLoop, elapse


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(1_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 0)
    clock.advance(500)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_500, 500)
    clock.set(100)
    assert (clock.now_ms(), clock.monotonic_ms()) == (100, 500)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_a_simulated_clock_follows_its_loop_and_may_be_wrong() -> None:
    loop = SimulatedLoop(random.Random(0))
    clock = SimulatedClock(loop, ahead_ms=-7)
    loop.run_until_complete(elapse(1.5))
    assert clock.monotonic_ms() == 1_500
    assert clock.now_ms() == EPOCH_MS + 1_500 - 7
    clock.ahead_ms = 1_000
    assert clock.now_ms() == EPOCH_MS + 2_500
