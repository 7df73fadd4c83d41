"""
Calls a handler for records, attempt after attempt, until each is acknowledged or revoked.

An attempt that takes too long is cancelled and counts as failed. What becomes of a failed record
is decided by a `FailurePolicy`.

Used by `execution`, which decides when which records are handled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from headrace_mq._runtime.log import get_logger
from headrace_mq.client.handlers.failures import Again, Failure, FailurePolicy, Verdict
from headrace_mq.errors import HandlerTimeout
from headrace_mq.message import Record
from headrace_mq.settings import ConsumerSettings

__all__ = ["Attempts", "BatchHandler", "RecordSource", "Watchdog"]

BatchHandler = Callable[[Sequence[Record]], Awaitable[None]]

_log = get_logger(__name__)


# Looks within one limit.
_LOOKS = 16


class Watchdog:
    """Cancels the attempts of one run that take too long, with one timer for all of them.

    A timer for each record would cost more than everything else that is done for it. So an attempt
    is cancelled up to a sixteenth of the limit later than it might be.

    Args:
        limit_ms: how long an attempt may take.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_s = limit_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._since: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, task: asyncio.Task[object]) -> None:
        """An attempt begins in a task, which has no other one under way."""
        self._since[task] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s / _LOOKS, self._look)

    def release(self, task: asyncio.Task[object]) -> bool:
        """The attempt has ended; True: because it was cancelled here for taking too long."""
        self._since.pop(task, None)
        if task not in self._expired:
            return False
        self._expired.discard(task)
        # Only what came from here: a task that was cancelled elsewhere too stays cancelled.
        task.uncancel()
        return True

    def _look(self) -> None:
        self._timer = None
        oldest = self._loop.time() - self._limit_s
        for task in [task for task, since in self._since.items() if since <= oldest]:
            del self._since[task]
            self._expired.add(task)
            task.cancel()
        if self._since:
            self._timer = self._loop.call_later(self._limit_s / _LOOKS, self._look)


class RecordSource(Protocol):
    """Where attempts get records from, and report their end to."""

    async def poll(self, records_max: int | None = None) -> list[Record]:
        """Waits for records, at most so many; raises Closed at the end."""
        ...

    async def begin(self, record: Record) -> bool:
        """Announces an attempt; waits while it is not known whose the queue is.

        Returns False where the record belongs to another member now; else `end` must follow.
        """
        ...

    def end(self, record: Record, *, done: bool) -> None:
        """The attempt is over; `done` acknowledges the record."""
        ...


class Attempts:
    """The attempts of one run of a handler.

    Args:
        deliveries: takes attempts and acknowledgements.
        handler: handles records together; returning means that all of them are done.
        settings: how long an attempt may take, and the pause when the policy itself fails.
        on_failure: decides on each record of a failed attempt.
        stopping: when set, no attempt is begun any more.
    """

    def __init__(
        self,
        deliveries: RecordSource,
        handler: BatchHandler,
        settings: ConsumerSettings,
        *,
        on_failure: FailurePolicy,
        stopping: asyncio.Event,
    ) -> None:
        self._deliveries = deliveries
        self._handler = handler
        self._settings = settings
        self._on_failure = on_failure
        self._stopping = stopping
        self._watchdog = Watchdog(settings.handler_timeout_ms)

    async def complete(self, records: Sequence[Record]) -> None:
        """Handles records of one queue together until each is done, revoked, or the end has come."""
        attempt = 0
        while not self._stopping.is_set():
            begun = [record for record in records if await self._deliveries.begin(record)]
            if not begun:
                return
            attempt += 1
            try:
                error = await self._try(begun)
            except BaseException:
                self._end(begun, done=False)
                raise
            if error is None:
                self._end(begun, done=True)
                return
            records, pause_ms = await self._judge(begun, error, attempt)
            if not records:
                return
            await self._pause(pause_ms)

    def _end(self, records: Sequence[Record], *, done: bool) -> None:
        for record in records:
            self._deliveries.end(record, done=done)

    async def _judge(
        self, failed: list[Record], error: BaseException, attempt: int
    ) -> tuple[list[Record], int]:
        """Returns which of the failed records to handle again, and after which pause."""
        again, settled, pause_ms = list(failed), [], 0
        try:
            for record in failed:
                verdict = await self._decide(Failure(record, error, attempt))
                if isinstance(verdict, Again):
                    pause_ms = max(pause_ms, verdict.pause_ms)
                else:
                    again.remove(record)
                    settled.append(record)
        finally:
            self._end(again, done=False)
            self._end(settled, done=True)
        return again, pause_ms

    async def _try(self, records: list[Record]) -> BaseException | None:
        task = asyncio.current_task()
        assert task is not None
        self._watchdog.watch(task)
        failure: BaseException | None = None
        try:
            await self._handler(records)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - decided on, not ended
            failure = error
        expired = self._watchdog.release(task)
        # A handler may let the cancellation of something of its own escape.
        if failure is not None and task.cancelling():
            raise failure
        # One that was cancelled and came to its end all the same has done its work.
        return self._too_slow(records[0], failure) if expired and failure is not None else failure

    async def _decide(self, failure: Failure) -> Verdict:
        record = failure.record
        place = {
            "topic": record.queue.topic, "queue_id": record.queue.queue_id,
            "offset": record.offset, "key": record.key, "attempt": failure.attempt,
        }  # fmt: skip
        try:
            verdict = await self._on_failure.decide(failure)
        except Exception:  # noqa: BLE001 - the policy is the application's or needs the broker
            _log.exception(
                "the failure policy raised an error; the record is handled again", **place
            )
            verdict = Again(self._settings.retry_ms_max)
        if isinstance(verdict, Again):
            _log.error(
                "the handler failed; the record is handled again",
                pause_ms=verdict.pause_ms, exc_info=failure.error, **place,
            )  # fmt: skip
        else:
            _log.error(
                "the handler failed; the record was moved",
                where=verdict.where, exc_info=failure.error, **place,
            )  # fmt: skip
        return verdict

    async def _pause(self, pause_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1_000):
                await self._stopping.wait()

    def _too_slow(self, record: Record, cause: BaseException) -> HandlerTimeout:
        slow = HandlerTimeout(
            f"the handler of queue {record.queue.topic}/{record.queue.queue_id} at offset"
            f" {record.offset} took longer than {self._settings.handler_timeout_ms} ms and was"
            " cancelled; make it quicker, or raise handler_timeout_ms"
        )
        slow.__cause__ = cause
        return slow
