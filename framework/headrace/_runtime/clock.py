"""The only place of the framework that asks for the time."""

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


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
