"""
The time a handler may take, at no cost to one that never waits.

Most handlers find their aggregate in memory and return without a suspension; a timer for each would
cost more than many of them. Used where handlers of commands or events run; uses asyncio's timeouts.
"""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

__all__ = ["HANDLER_MS_MAX", "Deadline"]

# How long a handler may run, without the time for loading. After that it has failed, because the
# aggregate's other commands or events wait for it.
HANDLER_MS_MAX = 60_000


class Deadline:
    """Ends the run of one handler; counts from its first suspension, except while it is paused."""

    __slots__ = ("_paused", "_timeout")

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self._paused = False

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work to its end; raises TimeoutError when it takes too long."""
        try:
            awaited = work.send(None)
        except StopIteration:
            return
        self._timeout = asyncio.timeout_at(None if self._paused else _from_now())
        async with self._timeout:
            await _go_on(work, awaited)

    def pause(self) -> None:
        """Stands still until `resume`."""
        self._paused = True
        if self._timeout is not None:
            self._timeout.reschedule(None)

    def resume(self) -> None:
        """Restarts the count."""
        self._paused = False
        if self._timeout is not None:
            self._timeout.reschedule(_from_now())

    def expired(self) -> bool:
        """Whether the work was ended because it took too long."""
        return self._timeout is not None and self._timeout.expired()


def _from_now() -> float:
    return asyncio.get_running_loop().time() + HANDLER_MS_MAX / 1_000


@types.coroutine
def _go_on(work: Coroutine[Any, Any, None], awaited: object) -> Generator[Any, Any, None]:
    """Awaits the rest of a coroutine that has been begun and waits for `awaited`."""
    step: Callable[[], object]
    while True:
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - all of it is the coroutine's to handle
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            awaited = step()
        except StopIteration:
            return
