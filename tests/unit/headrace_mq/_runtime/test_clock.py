"""The clock of the queue."""

import time

from headrace_mq._runtime.clock import SystemClock


def test_the_time_of_day_is_in_milliseconds_since_1970():
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_the_monotonic_time_never_goes_back():
    clock = SystemClock()
    times = [clock.monotonic_ms() for _ in range(1_000)]
    assert times == sorted(times)
