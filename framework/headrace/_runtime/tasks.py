"""
Background tasks with a name and an owner: a failure surfaces, and stopping has an order.

Used by components that run several things at once; uses asyncio.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace._runtime.log import get_logger

__all__ = ["FINISH_MS_MAX", "TaskSet", "finish"]

T = TypeVar("T")

log = get_logger(__name__)

# How long a cancelled task may take to end; after that it is abandoned, and the log says so.
STOP_MS_MAX = 5_000
# How long a stopped part may take to finish its work with a database: that takes milliseconds, and the
# application waits about five seconds for the part.
FINISH_MS_MAX = 3_000


class TaskSet:
    """The background tasks of one owner.

    The owner runs its own work through `watch`, which raises the first failure of any task of the
    set. Nothing fails unseen, and no task is forgotten by the event loop.

    Args:
        owner: names the component in logs and task names.

    Attributes:
        closing: whether the owner stops, so that nothing may be started any more.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # Ordered by start; a dict because a finished task leaves at once.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self.closing = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts work in the background; it leaves the set when it ends."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}: {name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def watch(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the owner's own work and returns its result.

        Raises:
            BaseException: the first failure of a task of the set; the work is then cancelled.
        """
        foreground = asyncio.get_running_loop().create_task(work, name=f"{self._owner}: work")
        failed = asyncio.get_running_loop().create_task(self._failed.wait())
        try:
            await asyncio.wait({foreground, failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failure is not None and not foreground.done():
                raise self._failure
            return foreground.result()
        finally:
            for task in (foreground, failed):
                task.cancel()
            await asyncio.wait({foreground, failed})
            if not foreground.cancelled():
                # Looked at, so that asyncio does not report it as never retrieved.
                foreground.exception()

    async def aclose(self) -> None:
        """Cancels what still runs, the last started first, each ended before the next."""
        self.closing = True
        for task in reversed(list(self._tasks)):
            task.cancel()
            _, late = await asyncio.wait({task}, timeout=STOP_MS_MAX / 1_000)
            if late:
                log.error("task does not stop", task=task.get_name(), waited_ms=STOP_MS_MAX)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            if self.closing:
                return
            error: BaseException | None = RuntimeError(
                f"{task.get_name()} was cancelled by someone who does not own it"
            )
        else:
            error = task.exception()
        if error is None:
            return
        self.fail(task.get_name(), error)

    def fail(self, name: str, error: BaseException) -> None:
        """Ends the owner's work with an error: of a task, or of what the event loop called."""
        log.error("background task failed", task=name, error=repr(error), exc_info=error)
        if self._failure is None:
            self._failure = error
            self._failed.set()


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Lets work come to its end, within FINISH_MS_MAX, although its owner is stopped meanwhile.

    For work with a database: a transaction that is cut off stays open until it is collected,
    and a connection that was just being made never ends its thread.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait({task}, timeout=FINISH_MS_MAX / 1_000)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
