"""
How much of what fetches brought may be handed over, so that an application never has too much unfinished.

    fetched ──▶ buffered ── as far as the limits allow ──▶ handed over ──▶ finished
                    ▲                                                         │
                    └──────────── makes room for more of it ◀─────────────────┘

One fetch may bring many times what the limits say; the rest of it waits.

Sits between: `assigned_queues`, which hold what is buffered, and the window of a queue. Pure.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from headrace_mq.client.fetch.process_queue import ProcessQueue, WindowLimits
from headrace_mq.client.fetch.record_columns import RecordColumns
from headrace_mq.message import Record

__all__ = ["Allowance", "divided"]

# An application that waits for records beyond the limits is not woken for each that it finished, but for
# this share of the limit: one of 1,000 gets 125 more at a time.
HANDED_SHARE: Final = 8


class Allowance:
    """What may be handed over of a queue.

    Args:
        limits: of what is handed over and unfinished: a count, and a span.
    """

    def __init__(self, limits: WindowLimits) -> None:
        self._count_max = limits.count_max
        self._span_max = limits.span_max
        self._worth = max(1, min(limits.count_max, limits.span_max) // HANDED_SHARE)

    def room(
        self, window: ProcessQueue, ready: Sequence[Record], columns: Sequence[RecordColumns]
    ) -> int:
        """How many of the buffered records may be handed over now.

        Args:
            window: what is handed over or buffered, and not finished.
            ready: what of it is buffered as records, in offset order.
            columns: what of it is buffered as columns; one of both is empty.
        """
        within = buffered = _count(ready, columns)
        end = window.lowest_unfinished + self._span_max
        if window.end > end:
            within = bisect_left(ready, end, key=attrgetter("offset")) + sum(
                max(0, min(len(run), end - run.offset)) for run in columns
            )
        return max(0, min(within, self._count_max - (len(window) - buffered)))

    def is_worth_waking(
        self, window: ProcessQueue, ready: Sequence[Record], columns: Sequence[RecordColumns]
    ) -> bool:
        """Whether so much may be handed over again that the application that waits for it should look."""
        buffered = _count(ready, columns)
        out, worth = len(window) - buffered, min(self._worth, buffered)
        # Without any handed over nothing else would be finished, and nobody woken.
        return not out or (
            out <= self._count_max - worth and self.room(window, ready, columns) >= worth
        )


def divided(
    runs: list[RecordColumns], count: int
) -> tuple[list[RecordColumns], list[RecordColumns]]:
    """The first so many records of some runs, and the others."""
    for number, run in enumerate(runs):
        if len(run) > count:
            at = run.offset + count
            first = [run.before(at)] if count else []
            return runs[:number] + first, [run.behind(at), *runs[number + 1 :]]
        count -= len(run)
    return runs, []


def _count(ready: Sequence[Record], columns: Sequence[RecordColumns]) -> int:
    return len(ready) + sum(map(len, columns))
