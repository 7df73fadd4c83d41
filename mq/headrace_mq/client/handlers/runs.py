"""
The runs of handlers over one consumer's records, and their end.

Sits between: `consumer.consumer`, whose `run` and `run_batches` these are, and `execution`.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from headrace_mq.client.handlers.attempts import BatchHandler, RecordSource
from headrace_mq.client.handlers.execution import (
    BatchLimits,
    Handler,
    Handling,
    check_async,
    one_by_one,
)
from headrace_mq.client.handlers.failures import FailurePolicy
from headrace_mq.settings import ConsumerSettings

__all__ = ["Running"]


class Running:
    """All runs of one consumer.

    Args:
        deliveries: where records come from.
        settings: of the consumer.
    """

    def __init__(self, deliveries: RecordSource, settings: ConsumerSettings) -> None:
        self._handling: Callable[..., Handling] = partial(Handling, deliveries, settings=settings)
        self._runs: set[asyncio.Task[None]] = set()

    async def run(self, handler: Handler, on_failure: FailurePolicy | None) -> None:
        """Handles single records until the consumer is closed.

        Raises what `poll` raises, and TypeError for a handler that is not async.
        """
        check_async(handler)
        await self._watch(self._handling(handler=one_by_one(handler), on_failure=on_failure))

    async def run_batches(
        self, handler: BatchHandler, batch: BatchLimits, on_failure: FailurePolicy | None
    ) -> None:
        """Handles batches until the consumer is closed.

        Raises what `poll` raises, ValueError, and TypeError for a handler that is not async.
        """
        check_async(handler)
        if batch.records_max < 1 or batch.wait_ms < 0:
            raise ValueError("a batch has at least 1 record and waits 0 ms or longer")
        await self._watch(self._handling(handler=handler, on_failure=on_failure, batch=batch))

    async def finish(self, timeout_ms: int) -> None:
        """Waits for the records being handled, after `poll` has raised Closed.

        The wait is bounded also because a handler may be the one that closes.
        """
        if self._runs:
            await asyncio.wait(self._runs, timeout=timeout_ms / 1_000)

    async def _watch(self, handling: Handling) -> None:
        work = asyncio.ensure_future(handling.run())
        self._runs.add(work)
        try:
            await work
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait([work])
            raise
        finally:
            self._runs.discard(work)
