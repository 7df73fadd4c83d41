"""
Runs a handler over records: in order where order matters, many at once where it does not.

What must be handled in order is a *chain*: a key of a queue, a whole queue, or a single record, as
the settings say. A chain handles one record, or one batch, after the other; chains run at the same
time.

Used by `Consumer`: its `run` and `run_batches` are those of `HandlerRuns`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from itertools import islice
from typing import NamedTuple

from headrace_mq.client.handlers.attempts import Attempts, BatchHandler, RecordSource
from headrace_mq.client.handlers.failures import EndlessRetryPolicy, FailurePolicy
from headrace_mq.errors import Closed
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

__all__ = [
    "BatchLimits",
    "Handler",
    "HandlerRun",
    "HandlerRuns",
    "check_async",
    "one_by_one",
]

Handler = Callable[[Record], Awaitable[None]]


class BatchLimits(NamedTuple):
    """How many records are handled together, and how long the first of them waits for the rest."""

    records_max: int
    wait_ms: int


class _Chain(NamedTuple):
    """What must be handled in order."""

    queue: QueueRef
    key: str = ""
    offset: int = -1


def check_async(handler: Callable[..., object]) -> None:
    """Refuses a handler that is not `async`: it would block the loop, and count as failed each time.

    Raises:
        TypeError: it is neither an async function or method, nor an object with an async `__call__`.
    """
    while isinstance(handler, partial):
        handler = handler.func
    if iscoroutinefunction(handler) or iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004 - whether it can be called is not the question
        return
    name = getattr(handler, "__qualname__", repr(handler))
    raise TypeError(f"handler {name} is not async; write it as `async def`")


def one_by_one(handler: Handler) -> BatchHandler:
    """Turns a handler of single records into one of batches with one record each."""

    def handle(records: Sequence[Record]) -> Awaitable[None]:
        return handler(records[0])

    return handle


class HandlerRun:
    """One run of a handler.

    Args:
        deliveries: where records come from.
        handler: handles records; returning means they are done.
        settings: what must be in order, how many chains at a time, how long an attempt may take.
        on_failure: decides on records whose handler failed; without one they are handled again in
            place until they succeed.
        batch: hand several records of a queue to the handler at a time, in offset order.
    """

    def __init__(
        self,
        deliveries: RecordSource,
        handler: BatchHandler,
        settings: ConsumerSettings,
        *,
        on_failure: FailurePolicy | None = None,
        batch: BatchLimits | None = None,
    ) -> None:
        self._deliveries = deliveries
        self._order = settings.handling if batch is None else "per_queue"
        self._one_at_a_time = settings.priorities > 1 and batch is None
        self._batch = batch or BatchLimits(1, 0)
        self._chains: dict[_Chain, deque[Record]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(settings.handlers_max)
        self._stopping = asyncio.Event()
        self._grown = asyncio.Event()
        in_place = EndlessRetryPolicy(settings.retry_ms_min, settings.retry_ms_max)
        self._attempts = Attempts(
            deliveries,
            handler,
            settings,
            on_failure=on_failure or in_place,
            stopping=self._stopping,
        )

    async def run(self) -> None:
        """Handles records until the consumer is closed, then finishes those being handled.

        Raises what `poll` raises, other than Closed, after cancelling the handlers.
        """
        try:
            while self._one_at_a_time:
                await self._admit_most_urgent()
            while True:
                for record in await self._deliveries.poll():
                    await self._admit(record)
        except Closed:
            self._stopping.set()
            self._grown.set()
        except BaseException:
            for worker in self._workers:
                worker.cancel()
            raise
        finally:
            await asyncio.gather(*self._workers, return_exceptions=True)

    async def _admit_most_urgent(self) -> None:
        """Takes a record when it can be handled at once: until then a more urgent one may come."""
        await self._places.acquire()
        try:
            records = await self._deliveries.poll(1)
        finally:
            self._places.release()
        for record in records:
            await self._admit(record)

    async def _admit(self, record: Record) -> None:
        chain = self._chain_of(record)
        waiting = self._chains.get(chain)
        if waiting is not None:
            waiting.append(record)
            self._grown.set()
            return
        await self._places.acquire()
        self._chains[chain] = deque([record])
        worker = asyncio.create_task(self._work(chain), name=f"handle {record.queue}")
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    def _chain_of(self, record: Record) -> _Chain:
        if self._order == "per_queue":
            return _Chain(record.queue)
        if self._order == "per_key" and record.key:
            return _Chain(record.queue, record.key)
        return _Chain(record.queue, "", record.offset)

    async def _work(self, chain: _Chain) -> None:
        waiting = self._chains[chain]
        try:
            while waiting and not self._stopping.is_set():
                if len(waiting) < self._batch.records_max:
                    await self._wait_for_more(waiting)
                records = list(islice(waiting, self._batch.records_max))
                await self._attempts.complete(records)
                for _ in records:
                    waiting.popleft()
        finally:
            del self._chains[chain]
            self._places.release()

    async def _wait_for_more(self, waiting: deque[Record]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._batch.wait_ms / 1_000):
                while len(waiting) < self._batch.records_max and not self._stopping.is_set():
                    self._grown.clear()
                    await self._grown.wait()


class HandlerRuns:
    """All runs of one consumer.

    Args:
        deliveries: where records come from.
        settings: of the consumer.
    """

    def __init__(self, deliveries: RecordSource, settings: ConsumerSettings) -> None:
        self._new_run: Callable[..., HandlerRun] = partial(
            HandlerRun, deliveries, settings=settings
        )
        self._runs: set[asyncio.Task[None]] = set()

    async def run(self, handler: Handler, on_failure: FailurePolicy | None) -> None:
        """Handles single records until the consumer is closed.

        Raises what `poll` raises, and TypeError for a handler that is not async.
        """
        check_async(handler)
        await self._watch(self._new_run(handler=one_by_one(handler), on_failure=on_failure))

    async def run_batches(
        self, handler: BatchHandler, batch: BatchLimits, on_failure: FailurePolicy | None
    ) -> None:
        """Handles batches until the consumer is closed.

        Raises what `poll` raises, ValueError, and TypeError for a handler that is not async.
        """
        check_async(handler)
        if batch.records_max < 1 or batch.wait_ms < 0:
            raise ValueError("a batch has at least 1 record and waits 0 ms or longer")
        await self._watch(self._new_run(handler=handler, on_failure=on_failure, batch=batch))

    async def finish(self, timeout_ms: int) -> None:
        """Waits for the records being handled, after `poll` has raised Closed.

        The wait is bounded also because a handler may be the one that closes.
        """
        if self._runs:
            await asyncio.wait(self._runs, timeout=timeout_ms / 1_000)

    async def _watch(self, run: HandlerRun) -> None:
        work = asyncio.ensure_future(run.run())
        self._runs.add(work)
        try:
            await work
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait([work])
            raise
        finally:
            self._runs.discard(work)
