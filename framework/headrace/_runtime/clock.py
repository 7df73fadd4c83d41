"""The only place of the framework that asks for the time."""

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

__all__ = ["Clock", "MovedClock", "SteadyClock", "SystemClock", "Timer"]


class Clock(Protocol):
    """Tells the time; tests pass one that they move by hand."""

    def now(self) -> datetime:
        """The time of day, with the UTC zone."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from some start; never goes back."""
        ...


class Timer(Protocol):
    """A call at a later time."""

    def cancel(self) -> None:
        """Calls nothing any more."""
        ...


class MovedClock(Clock, Protocol):
    """A clock that a test moves, and on which an application waits; `headrace.testing` has one."""

    @property
    def sleepers(self) -> int:
        """How many are in `wait`."""
        ...

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> Timer:
        """Calls a function when so much time has passed on this clock."""
        ...

    async def wait(self, seconds: float) -> None:
        """Waits until so much time has passed on this clock."""
        ...

    def attended(self, quiet: Callable[[], Awaitable[None]]) -> AbstractContextManager[None]:
        """Awaits `quiet` wherever the clock stops, until the block ends."""
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
