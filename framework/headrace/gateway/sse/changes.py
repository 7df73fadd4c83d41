"""
Tells open streams when the rows of a projection may have changed.

A projection's rows change in one transaction with its offsets, so its offsets are read again and again,
once for all streams of a projection, and only while there is a stream. That also sees what other
processes fold.

Used by `stream`; reads the database of read models.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from headrace._runtime.log import get_logger
from headrace.gateway.problems import DATABASE_AWAY
from headrace.transports.base import QueueId

__all__ = ["Changes", "Follower", "Offsets"]

log = get_logger(__name__)

_Mark = tuple[int, dict[QueueId, int]]
_NO_MARK: Final[_Mark] = (0, {})


class Offsets(Protocol):
    """How far the projections have come."""

    async def generation(self, name: str) -> int:
        """Returns the number of a projection's live table."""
        ...

    async def offsets(self, name: str, generation: int) -> dict[QueueId, int]:
        """Returns the offsets of a generation, by queue."""
        ...


class Follower:
    """One stream of one projection."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Ends the wait that is under way, or the next one."""
        self._woken.set()

    async def changed(self, within_ms: int) -> bool:
        """Waits; returns whether the follower was woken in time."""
        try:
            async with asyncio.timeout(within_ms / 1_000):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class _Watched:
    """A projection that has followers, and the task that looks at it."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.followers: set[Follower] = set()


class Changes:
    """The followers of all projections.

    Args:
        read_models: where the offsets are.
        look_ms: how often a projection with followers is looked at, in milliseconds.
    """

    def __init__(self, read_models: Offsets, *, look_ms: int) -> None:
        self._read_models = read_models
        self._look_seconds = look_ms / 1_000
        self._watched: dict[str, _Watched] = {}
        self.stopped = False

    @property
    def followers(self) -> int:
        """How many streams there are."""
        return sum(len(each.followers) for each in self._watched.values())

    @contextmanager
    def follow(self, name: str) -> Iterator[Follower]:
        """Gives a follower of a projection; it is woken at every change that comes after.

        Read the rows after this call: it can wake you for a change that you have seen, but never miss
        one.
        """
        watched = self._watched.get(name)
        if watched is None:
            task = asyncio.create_task(self._look(name), name=f"gateway: changes of {name}")
            watched = self._watched[name] = _Watched(task)
        follower = Follower()
        watched.followers.add(follower)
        try:
            yield follower
        finally:
            watched.followers.discard(follower)
            if not watched.followers and self._watched.get(name) is watched:
                del self._watched[name]
                watched.task.cancel()

    def stop(self) -> None:
        """Wakes every follower for the last time; `stopped` is true from now on."""
        self.stopped = True
        for watched in self._watched.values():
            for follower in watched.followers:
                follower.wake()

    async def _look(self, name: str) -> None:
        seen, away = _NO_MARK, False
        while True:
            try:
                generation = await self._read_models.generation(name)
                mark = generation, await self._read_models.offsets(name, generation)
            except DATABASE_AWAY as error:
                if not away:
                    log.warning("changes are not seen", projection=name, error=str(error))
                away = True
            else:
                away = False
                if mark != seen:
                    seen = mark
                    for follower in self._watched[name].followers:
                        follower.wake()
            await asyncio.sleep(self._look_seconds)
