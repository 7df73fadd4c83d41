"""
The ends of many waits, for the price of one timer.

A timer of its own for each of thousands of waits, almost none of which ever ends by it, would cost
more than what is waited for. Used where many futures are awaited; uses the event loop's timer.
"""

import asyncio
from typing import Any

__all__ = ["Deadlines"]


class Deadlines:
    """Fails futures that are not done in time."""

    def __init__(self) -> None:
        self._ends: dict[asyncio.Future[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, waiting: asyncio.Future[Any], end: float) -> None:
        """Fails a future with TimeoutError once its event loop's time has come to `end`.

        The caller must `discard` it in the end, also when it failed or was cancelled.
        """
        self._ends[waiting] = end
        if self._timer is None or end < self._looks_at:
            self._look_at(end, waiting.get_loop())

    def discard(self, waiting: asyncio.Future[Any]) -> None:
        """Forgets a future."""
        self._ends.pop(waiting, None)

    def _look_at(self, moment: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = moment
        self._timer = loop.call_at(moment, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        # The loop may be early by its clock's resolution.
        now = max(loop.time(), self._looks_at)
        ended = [waiting for waiting, end in self._ends.items() if end <= now]
        # After a pause of the loop several are over at once: their order is still that of their ends.
        for waiting in sorted(ended, key=self._ends.__getitem__):
            del self._ends[waiting]
            if not waiting.done():
                waiting.set_exception(TimeoutError())
                # Looked at, so that asyncio does not report it when the one who waited has gone.
                waiting.exception()
        # Those that ended meanwhile are gone: looks are as rare as the waits are long.
        if self._ends:
            self._look_at(min(self._ends.values()), loop)

    def close(self) -> None:
        """Ends nothing any more."""
        self._ends.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
