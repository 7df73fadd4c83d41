"""The machine's clock."""

from datetime import UTC

from headrace._runtime.clock import SystemClock


def test_the_time_of_day_has_the_utc_zone():
    assert SystemClock().now().tzinfo is UTC


def test_monotonic_time_does_not_go_back():
    clock = SystemClock()
    times = [clock.monotonic_ms() for _ in range(100)]
    assert times == sorted(times)
