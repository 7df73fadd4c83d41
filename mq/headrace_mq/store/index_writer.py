"""
When the blocks of the indexes are written: behind, in a thread of their own, one at a time.

Sits between: `message_store`, which says when something was committed, and the logs' indexes.
Produce never waits for it: a block that cannot be written stays in memory.
"""

import asyncio
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import structlog

from headrace_mq.store.commit_log import CommitLog
from headrace_mq.store.log_index import Written

__all__ = ["IndexWriter"]

_log = structlog.get_logger(__name__)


class IndexWriter:
    """Writes what is due; used on the event loop only.

    Args:
        logs: whose indexes.
    """

    def __init__(self, logs: Collection[CommitLog]) -> None:
        self._logs = logs
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-index")
        self._job: Future[Written] | None = None
        self._running: asyncio.Future[Written] | None = None

    def step(self) -> None:
        """Starts writing the next block that is due, if none is being written."""
        if self._running is not None:
            return
        for log in self._logs:
            frozen = log.index.due(log.synced)
            if frozen is not None:
                self._job = self._thread.submit(log.index.write, frozen)
                self._running = asyncio.wrap_future(self._job)
                self._running.add_done_callback(partial(self._end, log))
                return

    def _end(self, log: CommitLog, done: "asyncio.Future[Written]") -> None:
        self._running = None
        error = done.exception()
        if error is not None:
            log.index.put_off()
            _log.warning("an index cannot be written", log=log.name, error=str(error))
        else:
            log.index.publish(done.result())
        self.step()

    def wait(self) -> None:
        """Returns when the thread is not writing; it takes milliseconds."""
        if self._job is not None:
            self._job.exception()

    async def settled(self) -> None:
        """Returns when no block is being written."""
        while self._running is not None:
            await asyncio.wait([self._running])

    async def aclose(self) -> None:
        """Writes everything that is due."""
        await self.settled()
        for log in self._logs:
            log.index.write_due(log.synced)

    def stop(self) -> None:
        """Ends the thread after what it is writing, so that files can be closed."""
        self._thread.shutdown()
