"""The only place of the queue that asks for the time."""

import time
from functools import cache
from pathlib import Path
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

    def boot_id(self) -> str:
        """Names the start that `monotonic_ms` counts from; empty where that cannot be told."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds from some start."""
        return time.monotonic_ns() // 1_000_000

    def boot_id(self) -> str:
        """The kernel's name for this boot of the machine; empty where it tells none."""
        return _boot_id()


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
