"""
Runs a handler over records: one after the other for each key, many keys at once.

A record that fails is handled again, in place, until it succeeds: its key waits, other keys go on.
Records of a queue that was revoked meanwhile are dropped, because their new owner gets them.

Sits between: `consumer`, which delivers records, and the application's handler.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

import structlog

from headrace_mq.errors import Closed
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

__all__ = ["Deliveries", "Handling"]

_log = structlog.get_logger(__name__)


class Deliveries(Protocol):
    """What is needed of a consumer."""

    async def poll(self) -> list[Record]:
        """Waits for records; raises Closed at the end."""
        ...

    def ack(self, record: Record) -> None:
        """Says that a record is done."""
        ...

    def holds(self, record: Record) -> bool:
        """Whether a record is still this consumer's to finish."""
        ...


class _Chain(NamedTuple):
    """What must be handled in order: a key of a queue, or one record without a key."""

    queue: QueueRef
    key: str
    offset: int


class Handling:
    """One run of a handler.

    Args:
        deliveries: where records come from.
        handler: handles one record; returning means it is done.
        settings: how many keys at a time, and the pauses between attempts.
    """

    def __init__(
        self,
        deliveries: Deliveries,
        handler: Callable[[Record], Awaitable[None]],
        settings: ConsumerSettings,
    ) -> None:
        self._deliveries = deliveries
        self._handler = handler
        self._settings = settings
        self._chains: dict[_Chain, deque[Record]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(settings.handlers_max)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Handles records until the consumer is closed, then finishes those being handled.

        Raises what `poll` raises, other than Closed, after cancelling the handlers.
        """
        try:
            while True:
                for record in await self._deliveries.poll():
                    await self._admit(record)
        except Closed:
            self._stopping.set()
        except BaseException:
            for worker in self._workers:
                worker.cancel()
            raise
        finally:
            await asyncio.gather(*self._workers, return_exceptions=True)

    async def _admit(self, record: Record) -> None:
        chain = _Chain(record.queue, record.key, 0 if record.key else record.offset)
        waiting = self._chains.get(chain)
        if waiting is not None:
            waiting.append(record)
            return
        await self._places.acquire()
        self._chains[chain] = deque([record])
        worker = asyncio.create_task(self._work(chain), name=f"handle {record.queue}")
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _work(self, chain: _Chain) -> None:
        waiting = self._chains[chain]
        try:
            while waiting and not self._stopping.is_set():
                await self._handle(waiting[0])
                waiting.popleft()
        finally:
            del self._chains[chain]
            self._places.release()

    async def _handle(self, record: Record) -> None:
        pause_ms = self._settings.retry_ms_min
        while self._deliveries.holds(record) and not self._stopping.is_set():
            try:
                await self._handler(record)
            except (Exception, asyncio.CancelledError):
                # A handler may let the cancellation of something of its own escape.
                if _is_cancelled():
                    raise
                _log.exception(
                    "handler failed, will try again",
                    topic=record.queue.topic, queue_id=record.queue.queue_id,
                    offset=record.offset, key=record.key, pause_ms=pause_ms,
                )  # fmt: skip
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, self._settings.retry_ms_max)
            else:
                self._deliveries.ack(record)
                return

    async def _pause(self, pause_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1_000):
                await self._stopping.wait()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
