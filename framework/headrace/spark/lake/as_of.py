"""
The rows of one key as of many times, from one pass over its events. Pure.

    times, sorted    t1    t2    t3    t4
    begin           └────── nothing ──────┘
    an event at r, t2 <= r < t3
                    └nothing┘     └─ row ─┘

Times with the same row are one span; an event that was recorded at `r` is folded for the times after
it, and cuts the span that `r` lies in. Events that are recorded in order therefore cost one fold each,
and those that are not are right all the same. Used by `features`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel

__all__ = ["RowsAsOf"]

R = TypeVar("R", bound=BaseModel)


class _Span(NamedTuple, Generic[R]):
    """Times from a place on, up to the next span, that have the same row."""

    begin: int
    row: R | None


class RowsAsOf(Generic[R]):
    """A row as it was at several times, each of which sees what was recorded strictly before it.

    Args:
        times: in any unit, that of events.
    """

    def __init__(self, times: Iterable[int]) -> None:
        self._times = sorted(set(times))
        self._spans: list[_Span[R]] = [_Span(0, None)]

    def take(self, recorded: int, fold: Callable[[R | None], R | None]) -> None:
        """Folds the next event into the rows of all times after it.

        Args:
            recorded: when the event was recorded.
            fold: makes the next row of the one before.
        """
        first = bisect_right(self._times, recorded)
        if first == len(self._times):
            return
        spans = self._spans
        place = bisect_right(spans, first, key=lambda span: span.begin) - 1
        if spans[place].begin < first:
            row = spans[place].row
            # A fold that changes the row it is given must not change it for earlier times.
            copied = None if row is None else row.model_copy()
            place += 1
            spans.insert(place, _Span(first, copied))
        for later in range(place, len(spans)):
            spans[later] = _Span(spans[later].begin, fold(spans[later].row))

    def rows(self) -> list[tuple[int, R | None]]:
        """Returns each time with its row; None: there was none."""
        ends = [span.begin for span in self._spans[1:]] + [len(self._times)]
        return [
            (time, span.row)
            for span, end in zip(self._spans, ends, strict=True)
            for time in self._times[span.begin : end]
        ]
