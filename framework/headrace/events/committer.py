"""
Group commit: one append in flight, the next batch collects meanwhile.

Used by the workers, which offer decided streams and learn what to do next; uses the event store. It
knows nothing of handlers, replies or topics.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from headrace._runtime.backoff import Backoff
from headrace._runtime.log import get_logger
from headrace.events.append_batch import Batching, QueuedStream
from headrace.stores.base import AppendOutcome, EventStore
from headrace.stores.database.refusals import Blame, blame_of

__all__ = ["NEXT_STEP", "Committer", "NextStep", "Refused"]

log = get_logger(__name__)


class NextStep(Enum):
    """What a worker does when the outcome of its stream is known."""

    PUBLISH = "publish"
    LOOK_AGAIN = "look again"


@dataclass(frozen=True, slots=True)
class Refused:
    """The store takes this stream never; it has stored nothing of it.

    Attributes:
        error: what it said.
    """

    error: Exception


# The whole rule of idempotency and of optimistic concurrency.
NEXT_STEP: Mapping[AppendOutcome, NextStep] = MappingProxyType(
    {
        # Durable: publish it, answer, acknowledge.
        AppendOutcome.APPENDED: NextStep.PUBLISH,
        # The command had its effect earlier: publish and answer what it stored then.
        AppendOutcome.DUPLICATE_COMMAND: NextStep.LOOK_AGAIN,
        # It was decided on a state that is not the store's: reload, decide again.
        AppendOutcome.VERSION_CONFLICT: NextStep.LOOK_AGAIN,
    }
)


class Committer:
    """Appends what the workers decide.

    Args:
        store: the truth.
        streams_max: most streams in one append.
        refusals_max: how often an append is repeated after an unexplained failure, before it
            is taken for the fault of a stream.
        backoff: how long to wait before a failed append is repeated.
    """

    def __init__(
        self, *, store: EventStore, streams_max: int, refusals_max: int, backoff: Backoff
    ) -> None:
        self._store = store
        self._refusals_max = refusals_max
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

        The outcomes of a batch reach the workers before the next batch is taken, so that what a worker
        drops in answer is never appended.
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
        """Appends the halves of a batch that holds a stream to blame, so that it fails alone."""
        steps: list[NextStep | Refused] = []
        broken: set[str] = set()
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            # One append would not store what was decided on top of a stream that is not stored;
            # two appends must not either, even if its version should fit by chance.
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
        """Appends until the store answers; returns its error where a stream is to blame.

        Repeating is safe, even if the first attempt succeeded: a stream that it stored answers
        DUPLICATE_COMMAND and is then answered from the store.
        """
        streams = [queued.stream for queued in batch]
        attempt = unexplained = 0
        while True:
            try:
                return [NEXT_STEP[outcome] for outcome in await self._store.append(streams)]
            except Exception as error:  # noqa: BLE001 - adapters may raise anything; judged
                blame = blame_of(error)
                unexplained += blame is Blame.UNKNOWN
                if blame is Blame.VALUES or unexplained > self._refusals_max:
                    return error
                attempt += 1
                log.warning("will append again", attempt=attempt, error=repr(error))
            await self._backoff.pause(attempt)
