"""
Fetches that wait until the application does, so that one answer brings what comes meanwhile.

    answer of few records ──▶ held ──▶ a poll finds nothing, or it was held long enough ──▶ the next fetch

An application that works for a while between two polls would else have a round trip for each record.
A poll that finds something makes no fetch: what that brought while the application works would wait
for the poll after it, and every record from then on as long.
Sits between: `fetcher`, which fetches, and `Consumer.poll`. Must never know what is fetched.
"""

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["FetchDelay"]

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
