"""The machine's clock."""

from datetime import UTC, timedelta

import pytest

from headrace._runtime.clock import SteadyClock, SystemClock
from headrace.testing.history import FakeClock


def test_the_time_of_day_has_the_utc_zone():
    assert SystemClock().now().tzinfo is UTC


def test_monotonic_time_does_not_go_back():
    clock = SystemClock()
    times = [clock.monotonic_ms() for _ in range(100)]
    assert times == sorted(times)


@pytest.mark.parametrize("step", [timedelta(days=-1), timedelta(days=1)])
def test_a_steady_clock_goes_on_when_the_time_of_day_is_set(step: timedelta):
    machine = FakeClock()
    clock = SteadyClock(machine)
    before = clock.now()
    machine._start += step
    machine.advance(5)
    assert clock.now() - before == timedelta(milliseconds=5)
    assert clock.monotonic_ms() == machine.monotonic_ms()
