"""The only place of the queue that asks for the time."""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Tells the time; tests pass one that they move by hand."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump when the machine's clock is set."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from some start; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds from some start."""
        return time.monotonic_ns() // 1_000_000
