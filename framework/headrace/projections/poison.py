"""
Batches around an event that cannot be applied: it is found by halving, and its aggregate is parked.

    a batch ─▶ applied
       └─▶ an event is at fault ─▶ half of it ─▶ … ─▶ its message alone ─▶ tried again ─▶ parked

One way for the live runner and for a streaming job; each has its own pauses between attempts. Uses the
transaction of batches, and the letters. It must not know a subscription.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from pydantic import BaseModel

from headrace._runtime.clock import Clock
from headrace._runtime.tasks import finish
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.batch_transaction import (
    Applied,
    MissingReader,
    Transact,
    apply_through,
    decode_batch,
)
from headrace.projections.letters import Full, park
from headrace.projections.tables.contents import Moved, OtherFields, Switched, Target
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.written_cache import Recall
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.subscriptions.outages import blames_event
from headrace.transports.base import Incoming, QueueId

__all__ = [
    "BatchApplier",
    "Halved",
    "Poisoned",
    "TooManyParked",
    "apply_in_halves",
    "may_be_parked",
]

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Poisoned:
    """Nothing was written: one of several messages cannot be applied."""


class TooManyParked(ProjectionError):
    """As many aggregates as may be are parked, and one more would have to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halved:
    """What became of messages.

    Attributes:
        rows: written or deleted.
        stopped: why it ended before the last of them; None: all are applied, or parked.
        rest: messages that were not taken.
    """

    rows: int
    stopped: Moved | Switched | None
    rest: Sequence[Incoming]


async def apply_in_halves(
    messages: Sequence[Incoming],
    apply: Callable[[Sequence[Incoming]], Awaitable[Applied | Moved | Switched | Poisoned]],
    *,
    batch_max: int,
    applied: Callable[[Sequence[Incoming]], None],
) -> Halved:
    """Applies messages in batches; one with an event at fault is halved, down to its message alone.

    Args:
        messages: in order.
        apply: applies a batch; `Moved` and `Switched` end it.
        batch_max: messages of a batch, at most.
        applied: is called with each batch that was applied.
    """
    rest, size, rows = messages, batch_max, 0
    while rest:
        batch = rest[:size]
        outcome = await apply(batch)
        if isinstance(outcome, Poisoned):
            size = max(1, len(batch) // 2)
            continue
        if not isinstance(outcome, Applied):
            return Halved(rows=rows, stopped=outcome, rest=rest)
        size = min(2 * size, batch_max)
        rows += outcome.rows
        applied(batch)
        rest = rest[len(batch) :]
    return Halved(rows=rows, stopped=None, rest=())


def may_be_parked(error: Exception) -> bool:
    """Whether an event of a batch is at fault, so that its aggregate may be parked."""
    return blames_event(error) and not isinstance(error, OtherFields | TooManyParked)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchApplier(Generic[R]):
    """Applies batches to a generation of a projection, or parks the aggregate of a message.

    Attributes:
        read_models: where the generation is.
        missing: reads streams that the topic lacks.
        serializer: decodes messages.
        settings: attempts, and how many aggregates may be parked.
        clock: tells when an aggregate was parked.
        say_parked: says in the log that one was.
        recall: what was written last; see `apply_through`.
        alone: the same.
    """

    read_models: ReadModels
    missing: MissingReader
    serializer: Serializer
    settings: Settings
    clock: Clock
    say_parked: Callable[[Incoming, Exception], None]
    recall: Recall[R] | None = None
    alone: Transact | None = None

    def attempts(
        self,
        target: Target[R],
        messages: Sequence[Incoming],
        positions: Mapping[QueueId, int | None],
        *,
        parking: bool = True,
        live: bool = True,
    ) -> Callable[[], Awaitable[Applied | Moved | Switched | Poisoned]]:
        """Returns what makes one attempt to apply messages whole; it counts its faults.

        Of an error of `may_be_parked` an attempt returns `Poisoned`, if there are several messages. Of
        a message that came alone it raises it `error_retries_max` times, to be tried again, and then
        parks. It raises every other error, and `TooManyParked`, which another attempt does not cure.

        Args:
            target: the generation.
            messages: to be applied in one transaction.
            positions: the next offset of each queue; None: none is stored yet.
            parking: one message that cannot be applied is parked; otherwise its error is raised.
            live: the generation is the live one; others are written without what `recall` knows, whose
                statement writes to the live one and to the shadow of a rebuild.
        """
        faults = 0

        async def apply() -> Applied | Moved | Switched:
            batch = decode_batch(messages, positions, self.serializer)
            return await apply_through(
                self.read_models.transact,
                target,
                batch,
                missing=self.missing,
                recall=self.recall if live else None,
                alone=self.alone if live else None,
            )

        async def attempt() -> Applied | Moved | Switched | Poisoned:
            nonlocal faults
            try:
                return await finish(apply())
            except Exception as error:
                if not parking or not may_be_parked(error):
                    raise
                if len(messages) > 1:
                    return Poisoned()
                faults += 1
                # A body that does not decode never will: those behind it need not wait for that.
                final = isinstance(error.__cause__, SerializationError | UnknownMessageType)
                if not final and faults <= self.settings.error_retries_max:
                    known = partial(target.parked.among, aggregate_ids=[messages[0].key])
                    if not await self.read_models.transact(known):
                        raise
                return await self._park(target, messages[0], positions, error)

        return attempt

    async def _park(
        self,
        target: Target[R],
        message: Incoming,
        positions: Mapping[QueueId, int | None],
        error: Exception,
    ) -> Applied | Moved | Switched:
        outcome: Applied | Moved | Switched | Full = await self.read_models.transact(
            partial(
                park,
                target=target,
                message=message,
                begin={message.queue: positions.get(message.queue)},
                error=error,
                now=self.clock.now(),
                letters_max=self.settings.projection_letters_max,
            )
        )
        if isinstance(outcome, Full):
            raise TooManyParked(
                f"{outcome.letters} aggregates are parked already, and now: {error}"
            ) from error
        self.say_parked(message, error)
        return outcome
