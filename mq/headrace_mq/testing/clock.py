"""
Clocks for tests: one that is moved by hand, one that follows a simulated loop.

Used by tests, and by all code that takes a `Clock`.
"""

from headrace_mq.testing.simulated_loop import SimulatedLoop

__all__ = ["ManualClock", "SimulatedClock"]

# 2024-01-01 UTC: a time like any other.
EPOCH_MS = 1_704_067_200_000


class ManualClock:
    """Stands still until it is moved.

    Args:
        now_ms: milliseconds since 1970 UTC at the beginning.
    """

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0
        self._boots = 1

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since the beginning, or since the last `reboot`."""
        return self._monotonic_ms

    def boot_id(self) -> str:
        """Names the beginning, or the last `reboot`."""
        return f"boot-{self._boots}"

    def advance(self, milliseconds: int) -> None:
        """Lets time pass. Raises ValueError for less than nothing: use `set` to go back."""
        if milliseconds < 0:
            raise ValueError("time does not go back; `set` sets the wall clock back")
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds

    def set(self, now_ms: int) -> None:
        """Sets the wall clock, forth or back; the monotonic one goes on."""
        self._now_ms = now_ms

    def reboot(self, now_ms: int) -> None:
        """Boots the machine with a wall clock that may say anything; the monotonic one begins again."""
        self._now_ms, self._monotonic_ms = now_ms, 0
        self._boots += 1


class SimulatedClock:
    """The clock of one simulated machine.

    Args:
        loop: whose time passes.

    Attributes:
        ahead_ms: how far the wall clock is ahead of the simulation's time.
    """

    def __init__(self, loop: SimulatedLoop, ahead_ms: int = 0) -> None:
        self._loop = loop
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return EPOCH_MS + self.ahead_ms + int(self._loop.time() * 1_000)

    def monotonic_ms(self) -> int:
        """Milliseconds since the simulation began."""
        return int(self._loop.time() * 1_000)

    def boot_id(self) -> str:
        """Names the simulation: its machines are not booted again."""
        return "simulation"
