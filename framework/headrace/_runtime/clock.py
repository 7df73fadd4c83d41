"""The only place of the framework that asks for the time."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "SteadyClock", "SystemClock"]


class Clock(Protocol):
    """Tells the time; tests pass one that they move by hand."""

    def now(self) -> datetime:
        """The time of day, with the UTC zone."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from some start; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """The time of day, with the UTC zone."""
        return datetime.now(UTC)

    def monotonic_ms(self) -> int:
        """Milliseconds from some start."""
        return time.monotonic_ns() // 1_000_000


class SteadyClock:
    """A clock that starts with the time of day and then counts: one that is set makes no difference.

    Args:
        clock: counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at = clock.now()
        self._started_ms = clock.monotonic_ms()

    def now(self) -> datetime:
        """The time of day at the start, and what has passed since."""
        return self._started_at + timedelta(milliseconds=self.monotonic_ms() - self._started_ms)

    def monotonic_ms(self) -> int:
        """Milliseconds from some start."""
        return self._clock.monotonic_ms()
