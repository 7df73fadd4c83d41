"""
Counts durations by their length, for hot paths: one search among some twenty bounds for each. PURE.

Used by the parts of a broker or an application that measure how long something takes, and by `exposition`, which
writes the counts.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

__all__ = ["BOUNDS_S", "Counts", "Histogram"]

# Upper bounds in seconds, three for each power of ten: from a tenth of a millisecond, what the fastest disks take, to
# half a minute, when clients give up.
BOUNDS_S: Final = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip


class Counts(NamedTuple):
    """What a histogram has counted.

    Attributes:
        counts: by bound, not added up; the last one is of what was longer than every bound.
        seconds: all durations together.
    """

    counts: tuple[int, ...]
    seconds: float

    @property
    def total(self) -> int:
        """How many durations were counted."""
        return sum(self.counts)


class Histogram:
    """Durations since the start, by their length."""

    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._seconds = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Counts a duration, so many times."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += times
        self._seconds += seconds * times

    def read(self) -> Counts:
        """Returns what was counted so far."""
        return Counts(tuple(self._counts), self._seconds)
