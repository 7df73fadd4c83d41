"""A clock that your test moves by hand, in place of the real one."""

from datetime import UTC, datetime, timedelta

__all__ = ["FakeClock"]

_START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until a test advances it.

    Args:
        start: the time of day to begin with; UTC.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._passed_ms = 0

    def now(self) -> datetime:
        """The time of day, with the UTC zone."""
        return self._start + timedelta(milliseconds=self._passed_ms)

    def monotonic_ms(self) -> int:
        """Milliseconds since the start."""
        return self._passed_ms

    def advance(self, ms: int) -> None:
        """Lets time pass.

        Args:
            ms: how much, in milliseconds; not negative.
        """
        if ms < 0:
            raise ValueError(f"time does not go back: {ms} ms")
        self._passed_ms += ms
