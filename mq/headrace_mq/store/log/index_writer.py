"""
Writes the blocks of the indexes after the log, in a separate thread, one at a time; and what else no producer waits for.

Used by `message_store`, which calls it after commits; writes the indexes of offsets and of keys. A producer never
waits for it: a block that cannot be written stays in memory. Places that are repaired are written here as well.
"""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import StoreReadOnly
from headrace_mq.store.log.commit_log import CommitLog

__all__ = ["IndexWriter"]

_log = get_logger(__name__)


class _Blocks(Protocol):
    """The common interface of a log's two indexes: blocks that are due. Only the index knows their content."""

    def due(self, synced: int) -> Any | None: ...

    def put_off(self) -> None: ...

    def write(self, draft: Any) -> Any: ...

    def publish(self, written: Any) -> None: ...

    def write_due(self, synced: int) -> None: ...


class IndexWriter:
    """Writes the blocks that are due; used on the event loop only.

    Args:
        logs: with their indexes.
    """

    def __init__(self, logs: Collection[CommitLog]) -> None:
        self._indexes: list[tuple[CommitLog, _Blocks]] = []
        for log in logs:
            self._indexes += ((log, log.index), (log, log.keys))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-index")
        # What was given to the thread last: it does one after the other.
        self._job: Future[Any] | None = None
        self._others: set[asyncio.Future[None]] = set()
        self._running: asyncio.Future[Any] | None = None

    def step(self) -> None:
        """Starts to write the next due block, unless one is being written."""
        if self._running is not None:
            return
        for log, index in self._indexes:
            draft = index.due(log.synced)
            if draft is not None:
                self._job = self._thread.submit(index.write, draft)
                self._running = asyncio.wrap_future(self._job)
                self._running.add_done_callback(partial(self._end, log, index))
                return

    def _end(self, log: CommitLog, index: _Blocks, done: "asyncio.Future[Any]") -> None:
        self._running = None
        error = done.exception()
        if error is not None:
            index.put_off()
            _log.warning("an index cannot be written", log=log.name, error=str(error))
        else:
            index.publish(done.result())
        self.step()

    def run(self, job: Callable[[], None]) -> "asyncio.Future[None]":
        """Does other work of the disk in the thread; the future has its outcome. `wait` and `settled` wait for it, too.

        Raises:
            StoreReadOnly: the thread has ended, because the store is closed.
        """
        try:
            submitted = self._thread.submit(job)
        except RuntimeError as error:
            raise StoreReadOnly("the store is closed") from error
        self._job = submitted
        running = asyncio.wrap_future(submitted)
        self._others.add(running)
        running.add_done_callback(self._others.discard)
        return running

    def wait(self) -> None:
        """Blocks until the thread is not writing; this takes milliseconds, or a sync where a place is repaired."""
        if self._job is not None:
            self._job.exception()

    async def settled(self) -> None:
        """Returns when nothing is being written."""
        while waiting := [*self._others, *([] if self._running is None else [self._running])]:
            await asyncio.wait(waiting)

    async def aclose(self) -> None:
        """Writes all blocks that are due."""
        await self.settled()
        for log, index in self._indexes:
            index.write_due(log.synced)

    def stop(self) -> None:
        """Ends the thread after its current write, so that files can be closed."""
        self._thread.shutdown()
