"""
Blocking calls in threads of their own: each has a bound, and none keeps the process alive.

    await calls.call("read a:9464", read, bound_s=10.0)  ─▶  its result, or TimeoutError

Used by the watcher for processes and receivers, and by what asks processes for their settings. A thread cannot be stopped, so
one that hangs is left alone. The next call of its name is refused until it has ended, or waits for it: there is at most one thread
of each name.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["BoundedCalls"]

T = TypeVar("T")


class BoundedCalls:
    """Runs blocking calls, one of each name at a time."""

    def __init__(self) -> None:
        self._latest: dict[str, Future[Any]] = {}

    async def call(self, name: str, action: Callable[[], T], *, bound_s: float) -> T:
        """Runs a call; raises what it raises.

        Args:
            name: tells it from others; an earlier one of the same name must have ended.
            action: blocks.
            bound_s: how long it may take, in seconds.

        Raises:
            TimeoutError: it takes longer, or an earlier one of this name has not ended.
        """
        earlier = self._latest.get(name)
        if earlier is not None and not earlier.done():
            raise TimeoutError("no answer; an earlier attempt still waits for one")
        return await _outcome(self._begin(name, action), bound_s)

    async def share(self, name: str, action: Callable[[], T], *, bound_s: float) -> T:
        """Runs a call, or waits for an earlier one of its name that has not ended; raises what it raises.

        Args:
            name: tells it from others; all calls of a name ask for the same.
            action: blocks.
            bound_s: how long to wait, in seconds.

        Raises:
            TimeoutError: it takes longer.
        """
        earlier = self._latest.get(name)
        if earlier is None or earlier.done():
            earlier = self._begin(name, action)
        return await _outcome(earlier, bound_s)

    def _begin(self, name: str, action: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self._latest[name] = future
        # The pools of Python wait for their threads at the end of the process; these may hang.
        threading.Thread(
            target=_run, args=(future, action), name=f"alarms: {name}", daemon=True
        ).start()
        return future


async def _outcome(future: Future[T], bound_s: float) -> T:
    waiting = asyncio.wrap_future(future)
    try:
        done, _ = await asyncio.wait({waiting}, timeout=bound_s)
        if not done:
            raise TimeoutError(f"no answer within {bound_s:g} s")
        return waiting.result()
    finally:
        waiting.cancel()


def _run(future: Future[T], action: Callable[[], T]) -> None:
    try:
        result = action()
    except BaseException as error:  # noqa: BLE001 - goes to what awaits it
        future.set_exception(error)
    else:
        future.set_result(result)
