"""
Group commit: while one append runs, the next batch grows.

Used by the workers, which offer decided streams and learn their next step; writes to the event store. It
knows no handlers, replies or topics.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from types import MappingProxyType

from headrace._runtime.backoff import Backoff
from headrace._runtime.log import get_logger
from headrace._runtime.work import Durations
from headrace.events.append_batch import Batching, QueuedStream
from headrace.stores.base import AppendOutcome, EventStore
from headrace.stores.database.refusals import Blame, blame_of

__all__ = ["NEXT_STEP", "Committer", "NextStep", "Refused"]

log = get_logger(__name__)


class NextStep(Enum):
    """What a worker does with a stream after the append."""

    PUBLISH = "publish"
    LOOK_AGAIN = "look again"


@dataclass(frozen=True, slots=True)
class Refused:
    """The store will never accept this stream; it has stored no part of it.

    Attributes:
        error: the store's error.
    """

    error: Exception


# The rules of idempotency and optimistic concurrency.
NEXT_STEP: Mapping[AppendOutcome, NextStep] = MappingProxyType(
    {
        # The stream is durable: publish it, answer, acknowledge.
        AppendOutcome.APPENDED: NextStep.PUBLISH,
        # The command has run before: publish and answer what it stored then.
        AppendOutcome.DUPLICATE_COMMAND: NextStep.LOOK_AGAIN,
        # The state was older than the store's: reload the aggregate, decide again.
        AppendOutcome.VERSION_CONFLICT: NextStep.LOOK_AGAIN,
    }
)


class Committer:
    """Appends the workers' streams to the event store.

    Args:
        store: the event store.
        streams_max: most streams in one append.
        refusals_max: how often to retry an append after an unexplained error, before a stream is
            blamed for it.
        backoff: how long to wait before a retry.

    Attributes:
        times: is given how long each append takes; None: they are not measured.
    """

    def __init__(
        self, *, store: EventStore, streams_max: int, refusals_max: int, backoff: Backoff
    ) -> None:
        self._store = store
        self._refusals_max = refusals_max
        self._backoff = backoff
        self._batching = Batching(streams_max=streams_max)
        self._offered = asyncio.Event()
        self.times: Durations | None = None

    def offer(self, queued: QueuedStream) -> None:
        """Takes a decided stream; calls its `settled` when the outcome is known."""
        self._batching.offer(queued)
        self._offered.set()

    def drop(self, aggregate_id: str, *, before_generation: int) -> None:
        """Removes an aggregate's waiting streams of earlier generations; their `settled` is not called."""
        dropped = self._batching.drop(aggregate_id, before_generation=before_generation)
        if dropped:
            log.debug("decisions dropped", aggregate_id=aggregate_id, streams=dropped)

    async def run(self) -> None:
        """Appends batches until cancelled.

        The workers learn the outcomes of a batch before the next batch is taken. So a stream that a
        worker drops because of an outcome is never appended.
        """
        while True:
            await self._offered.wait()
            batch = self._batching.take()
            if not batch:
                self._offered.clear()
                continue
            steps = await self._append(batch)
            for queued, step in zip(batch, steps, strict=True):
                queued.settled(queued, step)

    async def _append(self, batch: list[QueuedStream]) -> list[NextStep | Refused]:
        error = await self._attempt(batch)
        if not isinstance(error, Exception):
            return error
        if len(batch) == 1:
            log.error(
                "the event store refuses a stream",
                aggregate_id=batch[0].stream.aggregate_id,
                command_id=batch[0].stream.command_id,
                error=repr(error),
            )
            return [Refused(error)]
        return await self._append_apart(batch)

    async def _append_apart(self, batch: list[QueuedStream]) -> list[NextStep | Refused]:
        """Appends the halves of a batch one by one, so that a stream that the store refuses fails alone."""
        steps: list[NextStep | Refused] = []
        broken: set[str] = set()
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            # A stream must not be stored if it was decided on one that is not stored. In one append the
            # store sees to that; between two appends we do, even if the version fits by chance.
            fits = [queued for queued in half if queued.stream.aggregate_id not in broken]
            found = iter(await self._append(fits) if fits else [])
            for queued in half:
                apart = queued.stream.aggregate_id in broken
                steps.append(NextStep.LOOK_AGAIN if apart else next(found))
            broken |= {
                queued.stream.aggregate_id
                for queued, step in zip(half, steps[-len(half) :], strict=True)
                if step is not NextStep.PUBLISH
            }
        return steps

    async def _attempt(self, batch: list[QueuedStream]) -> list[NextStep | Refused] | Exception:
        """Appends until the store answers; returns its error if a stream is to blame.

        A retry is safe even if the first attempt has stored the streams: they answer DUPLICATE_COMMAND,
        and their commands are then answered from the store.
        """
        streams = [queued.stream for queued in batch]
        attempt = unexplained = 0
        while True:
            try:
                since_s = perf_counter()
                outcomes = await self._store.append(streams)
                if self.times is not None:
                    self.times.add(perf_counter() - since_s)
                return [NEXT_STEP[outcome] for outcome in outcomes]
            except Exception as error:  # noqa: BLE001 - adapters may raise anything; judged
                blame = blame_of(error)
                unexplained += blame is Blame.UNKNOWN
                if blame is Blame.VALUES or unexplained > self._refusals_max:
                    return error
                attempt += 1
                log.warning("will append again", attempt=attempt, error=repr(error))
            await self._backoff.pause(attempt)
