"""
Flow control: how much of what fetches brought is handed over, and when the next fetch is made.

    fetched ──▶ buffered ── as far as the limits allow ──▶ handed over ──▶ finished
       ▲            ▲                                                         │
       │            └──────────── makes room for more of it ◀─────────────────┘
       └── the next fetch ◀── a poll finds nothing, or it was held long enough ◀── held ◀── few records

`Allowance` (pure) keeps an application from having too many unfinished records: one fetch may bring many
times what the limits allow, and the rest waits in the buffer. `FetchDelay` holds the next fetch until the
application waits, so that one answer brings all that comes meanwhile. Without it an application that works
for a while between two polls would pay a round trip for each record. A poll that finds records starts no
fetch: the records of that fetch would only wait for the next poll.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from headrace_mq.client.fetch.process_queue import ProcessQueue, WindowLimits
from headrace_mq.client.fetch.record_columns import RecordColumns
from headrace_mq.message import Record

__all__ = ["Allowance", "FetchDelay", "divided"]

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
        # If none is handed over, none is finished, and the application waits for ever.
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


# An answer of as many records is worth its round trip: the next fetch follows at once.
FEW_RECORDS: Final = 100


class FetchDelay:
    """The fetches of one consumer that are put off.

    Args:
        wait_ms: how long at most. 0: not at all.
    """

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._loop = asyncio.get_running_loop()
        self._held: dict[asyncio.TimerHandle, Callable[[], None]] = {}

    def hold(self, records: int, fetch: Callable[[], None]) -> bool:
        """Puts the fetch after an answer off; False: it should be made now.

        Args:
            records: how many the answer brought.
            fetch: makes it; called once.
        """
        if not (self._wait_ms and 0 < records < FEW_RECORDS):
            return False

        def end() -> None:
            del self._held[timer]
            fetch()

        timer = self._loop.call_later(self._wait_ms / 1_000, end)
        self._held[timer] = fetch
        return True

    def end(self) -> None:
        """Makes every fetch that was put off: the application waits for records."""
        if not self._held:
            return
        held, self._held = self._held, {}
        for timer, fetch in held.items():
            timer.cancel()
            fetch()
