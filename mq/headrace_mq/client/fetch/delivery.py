"""
Hands buffered records to the application, and takes back what it finished.

Used by `PullConsumer` and, through `trace.tracer`, by `Consumer`: an application calls `poll` and `ack`, or
`handlers.execution` says when an attempt begins and ends.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from headrace_mq.client.fetch.assigned_queues import AssignedQueues
from headrace_mq.client.fetch.record_columns import RecordColumns
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.errors import Closed
from headrace_mq.message import QueueRef, Record

__all__ = ["RecordDelivery"]

T = TypeVar("T")

# Errors kept for `poll`; more than this say nothing new.
ERRORS_MAX = 16


class RecordDelivery:
    """The application's side of one consumer.

    Args:
        shares: the consumer's queues.
        locks: on them; where they may be lost, nothing is delivered or begun.
        on_room: called when a queue can take records again, or be handed over.
        on_stale: called when the locks may be lost; suspends the shares.
    """

    def __init__(
        self,
        shares: AssignedQueues,
        locks: QueueLocks,
        *,
        on_room: Callable[[], None],
        on_stale: Callable[[], None],
    ) -> None:
        self._shares = shares
        self._locks = locks
        self._on_room = on_room
        self._on_stale = on_stale
        self._errors: deque[Exception] = deque(maxlen=ERRORS_MAX)
        self._news = asyncio.Event()
        self._known = asyncio.Event()
        self._open = False
        self._on_wait: Callable[[], None]

    def open(self, on_wait: Callable[[], None]) -> None:
        """Records may be polled from now on.

        Args:
            on_wait: called when the application waits for records, because there are none.
        """
        self._on_wait = on_wait
        self._open = True

    def close(self) -> None:
        """Ends every `poll`, now and later, with Closed."""
        self._open = False
        self.wake()

    def wake(self) -> None:
        """There may be records to deliver, or it is known again whose a queue is."""
        self._news.set()
        self._known.set()

    def fail(self, error: Exception) -> None:
        """Lets `poll` raise an error, once."""
        self._errors.append(error)
        self._news.set()

    @property
    def is_open(self) -> bool:
        """Whether records may be polled."""
        return self._open

    async def poll(self, records_max: int | None = None) -> list[Record]:
        """Waits for records and returns what is there, in offset order per queue.

        Args:
            records_max: at most so many; without it all.

        Raises:
            Closed: the consumer is not open; start it first.
            Exception: what `fail` was given.
        """
        return await self._poll(partial(self._shares.deliver, records_max))

    async def poll_columns(self) -> list[RecordColumns]:
        """Like `poll`, with records as columns."""
        return await self._poll(self._shares.deliver_columns)

    async def _poll(self, deliver: Callable[[], list[T]]) -> list[T]:
        while True:
            if not self._open:
                raise Closed("the consumer is not open; start it first")
            if self._errors:
                raise self._errors.popleft()
            self._look_at_locks()
            if delivered := deliver():
                return delivered
            self._news.clear()
            self._on_wait()
            await self._news.wait()

    def ack(self, queue: QueueRef, offset: int) -> None:
        """Finishes an offset; ignored where the queue was revoked."""
        if self._shares.finish(queue, offset):
            self._more_room()

    def ack_all(self, records: Iterable[Record]) -> None:
        """Finishes many records, quickest where those of a queue stand together."""
        for queue, run in groupby(records, key=attrgetter("queue")):
            if self._shares.finish_all(queue, [record.offset for record in run]):
                self._more_room()

    def ack_columns(self, columns: RecordColumns) -> None:
        """Finishes all records of a run."""
        if self._shares.finish_all(columns.queue, columns.offsets):
            self._more_room()

    async def begin(self, record: Record) -> bool:
        """Announces an attempt; waits while it is not known whose the record's queue is.

        Returns False where it belongs to another member now, or the consumer was closed meanwhile.
        """
        self._look_at_locks()
        while self._shares.is_suspended(record.queue):
            if not self._open:
                return False
            self._known.clear()
            await self._known.wait()
        return self._shares.begin(record.queue, record.offset)

    def end(self, record: Record, *, done: bool) -> None:
        """An attempt is over; `done` acknowledges the record, even if the queue was revoked."""
        if self._shares.end(record.queue, record.offset, done=done):
            self._more_room()

    def _more_room(self) -> None:
        # More of what is here may be delivered, or fetched.
        self._news.set()
        self._on_room()

    def _look_at_locks(self) -> None:
        if self._locks.stale:
            self._on_stale()
