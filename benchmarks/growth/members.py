"""
Members of one group, all in this process, that share what one other process sends.

Sits between: an axis of growth, and the drivers of a system. It must never know which system that is.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.peers.system import Driver, Sharing

__all__ = ["Members", "members"]

# Drivers whose library blocks wait in threads, each in one of its own.
THREADS_MAX = 80
# Between two looks at who has which queues.
LOOK_S = 0.01


class Members:
    """Drivers that take what comes, until they are told to cease or one of them fails.

    Attributes:
        taken: messages taken and acknowledged so far, by all of them.
    """

    def __init__(self) -> None:
        self.taken = 0
        self._is_over = False
        self._failure: Exception | None = None
        self._changed = asyncio.Event()

    async def until(self, count: int) -> None:
        """Waits until so many were taken.

        Raises:
            Exception: what ended one of them.
        """
        while self.taken < count:
            self.check()
            self._changed.clear()
            await self._changed.wait()

    async def take(self, driver: Driver) -> None:
        """Lets a member take and acknowledge until it is over."""
        try:
            while not self._is_over:
                bodies = await driver.take()
                await driver.done()
                self.taken += len(bodies)
                if bodies:
                    self._changed.set()
        except Exception as failure:  # noqa: BLE001 - told to whoever waits
            self._failure = failure
            self._changed.set()

    def check(self) -> None:
        """Raises what ended one of them."""
        if self._failure is not None:
            raise self._failure

    def cease(self) -> None:
        """Lets each member end with what it takes just now: some libraries break where a call is cut off."""
        self._is_over = True


@asynccontextmanager
async def members(make: Callable[[], Driver], count: int, queues: int) -> AsyncIterator[Members]:
    """So many members of a group, each with its share of the queues where a system deals them out."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS_MAX))
    found = Members()
    async with AsyncExitStack() as stack:
        drivers = [make() for _ in range(count)]
        for driver in drivers:
            await driver.open()
            stack.push_async_callback(driver.aclose)
        for driver in drivers:
            await driver.join()
            stack.push_async_callback(driver.leave)
        taking = [asyncio.create_task(found.take(driver)) for driver in drivers]
        try:
            # Before, one of them has what others are to take.
            while any(
                isinstance(one, Sharing) and one.held() != queues // count for one in drivers
            ):
                found.check()
                await asyncio.sleep(LOOK_S)
            yield found
        finally:
            found.cease()
            await asyncio.gather(*taking)
