"""
Hands buffered records to the application, and takes back what it finished.

Sits between: `shares`, which hold what was fetched, and the application: by `poll` and `ack`, or
through `handling`, which says when an attempt begins and ends.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from headrace_mq.client.shares import Shares
from headrace_mq.errors import Closed
from headrace_mq.message import QueueRef, Record

__all__ = ["Delivering"]

# Errors kept for `poll`; more than this say nothing new.
ERRORS_MAX = 16


class Delivering:
    """The application's side of one consumer.

    Args:
        shares: the consumer's queues.
        on_room: called when a queue can take records again.
    """

    def __init__(self, shares: Shares, *, on_room: Callable[[], None]) -> None:
        self._shares = shares
        self._on_room = on_room
        self._errors: deque[Exception] = deque(maxlen=ERRORS_MAX)
        self._news = asyncio.Event()
        self._open = False

    def open(self) -> None:
        """Records may be polled from now on."""
        self._open = True

    def close(self) -> None:
        """Ends every `poll`, now and later, with Closed."""
        self._open = False
        self._news.set()

    def wake(self) -> None:
        """There may be records to deliver."""
        self._news.set()

    def fail(self, error: Exception) -> None:
        """Lets `poll` raise an error, once."""
        self._errors.append(error)
        self._news.set()

    async def poll(self) -> list[Record]:
        """Waits for records and returns all that are there, in offset order per queue.

        Raises:
            Closed: the consumer is not open.
            Exception: what `fail` was given.
        """
        while True:
            if not self._open:
                raise Closed("the consumer is not open")
            if self._errors:
                raise self._errors.popleft()
            records = self._shares.deliver()
            if records:
                return records
            self._news.clear()
            await self._news.wait()

    def ack(self, queue: QueueRef, offset: int) -> None:
        """Finishes an offset; ignored where the queue was revoked."""
        if self._shares.finish(queue, offset):
            self._on_room()

    async def begin(self, record: Record) -> bool:
        """Whether the record is still this consumer's to handle."""
        return self._shares.holds(record.queue, record.offset)

    def end(self, record: Record, *, done: bool) -> None:
        """An attempt is over; `done` acknowledges the record."""
        if done:
            self.ack(record.queue, record.offset)
