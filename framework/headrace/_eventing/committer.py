"""
Group commit: one append in flight, the next batch collects meanwhile.

Sits between: the lanes, which offer decided streams and are told what to do next, and the event
store. Knows nothing of handlers, replies or topics.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

import structlog

from headrace._eventing.batching import Batching, QueuedStream
from headrace._runtime.backoff import Backoff
from headrace.stores.base import AppendOutcome, EventStore

__all__ = ["NEXT_STEP", "Committer", "NextStep"]

log = structlog.get_logger(__name__)


class NextStep(Enum):
    """What a lane does when the outcome of its stream is known."""

    PUBLISH = "publish"
    ANSWER_AGAIN = "answer again"
    RUN_AGAIN = "run again"


# The whole rule of idempotency and of optimistic concurrency.
NEXT_STEP: Mapping[AppendOutcome, NextStep] = MappingProxyType(
    {
        # Durable: publish it, answer, acknowledge.
        AppendOutcome.APPENDED: NextStep.PUBLISH,
        # The command had its effect earlier: publish and answer what it stored then.
        AppendOutcome.DUPLICATE_COMMAND: NextStep.ANSWER_AGAIN,
        # It was decided on a state that is not the store's: reload, decide again.
        AppendOutcome.VERSION_CONFLICT: NextStep.RUN_AGAIN,
    }
)


class Committer:
    """Appends what the lanes decide.

    Args:
        store: the truth.
        streams_max: most streams in one append.
        backoff: how long to wait before a failed append is repeated.
    """

    def __init__(self, *, store: EventStore, streams_max: int, backoff: Backoff) -> None:
        self._store = store
        self._backoff = backoff
        self._batching = Batching(streams_max=streams_max)
        self._offered = asyncio.Event()

    def offer(self, queued: QueuedStream) -> None:
        """Takes a decided stream; its `settled` is called once its outcome is known."""
        self._batching.offer(queued)
        self._offered.set()

    def drop(self, aggregate_id: str, *, before_generation: int) -> None:
        """Forgets an aggregate's waiting streams of earlier generations: they settle no more."""
        dropped = self._batching.drop(aggregate_id, before_generation=before_generation)
        if dropped:
            log.debug("decisions dropped", aggregate_id=aggregate_id, streams=dropped)

    async def run(self) -> None:
        """Appends batches until cancelled.

        The outcomes of a batch reach the lanes before the next batch is taken, so that what a lane
        drops in answer is never appended.
        """
        while True:
            await self._offered.wait()
            batch = self._batching.take()
            if not batch:
                self._offered.clear()
                continue
            for queued, outcome in zip(batch, await self._append(batch), strict=True):
                queued.settled(queued, NEXT_STEP[outcome])

    async def _append(self, batch: list[QueuedStream]) -> list[AppendOutcome]:
        streams = [queued.stream for queued in batch]
        # Repeating is safe whatever became of the first attempt: a stream that it stored answers
        # DUPLICATE_COMMAND and is then answered from the store.
        return await self._backoff.persist(
            lambda: self._store.append(streams), what="append to the event store", unless=()
        )
