"""
Cancels attempts that take too long, with one timer for all of them.

A timer for each record would cost more than everything else that is done for it. So an attempt is
cancelled up to a sixteenth of the limit later than it might be.

Sits between: `attempts` and the event loop's clock.
"""

import asyncio

__all__ = ["Watchdog"]

# Looks within one limit.
_LOOKS = 16


class Watchdog:
    """The attempts under way of one run.

    Args:
        limit_ms: how long an attempt may take.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_s = limit_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._since: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, task: asyncio.Task[object]) -> None:
        """An attempt begins in a task, which has no other one under way."""
        self._since[task] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s / _LOOKS, self._look)

    def release(self, task: asyncio.Task[object]) -> bool:
        """The attempt has ended; True: because it was cancelled here for taking too long."""
        self._since.pop(task, None)
        if task not in self._expired:
            return False
        self._expired.discard(task)
        # Only what came from here: a task that somebody else cancelled too stays cancelled.
        task.uncancel()
        return True

    def _look(self) -> None:
        self._timer = None
        oldest = self._loop.time() - self._limit_s
        for task in [task for task, since in self._since.items() if since <= oldest]:
            del self._since[task]
            self._expired.add(task)
            task.cancel()
        if self._since:
            self._timer = self._loop.call_later(self._limit_s / _LOOKS, self._look)
