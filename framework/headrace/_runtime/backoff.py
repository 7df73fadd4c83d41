"""
Pauses that grow: what to do when the machine, the database or the network says no.

Used by loops that must not give up; uses the event loop's timer.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace._runtime.log import get_logger
from headrace.errors import HeadraceError, SubjectKeysAway

__all__ = ["Backoff"]

T = TypeVar("T")

log = get_logger(__name__)

# Doubling 30 times exceeds any sensible longest pause.
_DOUBLINGS_MAX = 30


class Backoff:
    """Exponential pauses with jitter.

    Args:
        ms_min: about how long the first pause is.
        ms_max: how long a pause is at most.
    """

    def __init__(self, *, ms_min: int, ms_max: int) -> None:
        self._ms_min = ms_min
        self._ms_max = max(ms_min, ms_max)

    def pause_ms(self, attempt: int) -> float:
        """How long to wait after a failed attempt, counted from 1.

        Between half of the full pause and all of it, so that many who failed together do not come
        back together.
        """
        doublings = min(attempt - 1, _DOUBLINGS_MAX)
        full = min(self._ms_min << doublings, self._ms_max)
        return full * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing

    async def pause(self, attempt: int) -> None:
        """Waits after a failed attempt, counted from 1."""
        await asyncio.sleep(self.pause_ms(attempt) / 1_000)

    async def persist(
        self,
        action: Callable[[], Awaitable[T]],
        *,
        what: str,
        unless: tuple[type[Exception], ...] = (HeadraceError,),
        final: Callable[[Exception], bool] | None = None,
        failed: Callable[[int, Exception], None] | None = None,
        pause: Callable[[int], Awaitable[None]] | None = None,
    ) -> T:
        """Runs the action until it succeeds, or is cancelled.

        Without a limit on purpose: the database and the broker come back, and until then nothing
        that depends on them is acknowledged. Every failure is logged.

        Args:
            action: makes one attempt.
            what: names the action in the log.
            unless: errors that another attempt cannot cure; raised at once, but for `SubjectKeysAway`.
            final: judges any other error; True: it is raised.
            failed: is called with the number of a failed attempt, from 1, and its error, in place of
                a line in the log.
            pause: waits after a failed attempt, counted from 1, and may raise to give up; None: `pause`
                of this class.
        """
        attempt = 0
        while True:
            try:
                return await action()
            except Exception as error:
                if isinstance(error, unless) and not isinstance(error, SubjectKeysAway):
                    raise
                if final is not None and final(error):
                    raise
                attempt += 1
                if failed is not None:
                    failed(attempt, error)
                else:
                    log.warning("will try again", what=what, attempt=attempt, error=repr(error))
            await (pause or self.pause)(attempt)
