"""
Turns: items of one key one after another, items of many keys at once, as many as there is room for.

Used by loops that take items in order and work on each. It knows nothing of either.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

__all__ = ["Turns"]

T = TypeVar("T")


class Turns(Generic[T]):
    """Handles items in tasks of its own, from entering its block to leaving it.

    The block ends when all items are handled; an error of `handle`, or of the block, cancels what is
    under way and is raised as an `ExceptionGroup`.

    Args:
        handle: what an item means.
        in_flight_max: items that are being handled or wait for their turn; `put` waits for room.
        name: of its tasks.
    """

    def __init__(
        self, handle: Callable[[T], Awaitable[None]], *, in_flight_max: int, name: str
    ) -> None:
        self._handle = handle
        self._name = name
        self._room = asyncio.Semaphore(in_flight_max)
        # The waiting items of each key of which one is being handled.
        self._waiting: dict[str, deque[T]] = {}
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._tasks.__aexit__(kind, error, trace)

    def __contains__(self, key: str) -> bool:
        """Whether an item of the key is being handled."""
        return key in self._waiting

    async def put(self, key: str, item: T) -> None:
        """Gives an item its place behind those of its key; waits while there is no room."""
        await self._room.acquire()
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(item)
            return
        waiting = self._waiting[key] = deque([item])
        self._tasks.create_task(self._take_turns(key, waiting), name=f"{self._name}: {key}")

    async def _take_turns(self, key: str, waiting: deque[T]) -> None:
        while waiting:
            await self._handle(waiting.popleft())
            self._room.release()
        del self._waiting[key]
