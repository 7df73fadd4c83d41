"""
What a live projection does with events: applies a batch in one transaction, then acknowledges it.

The projection stores its own offsets with its rows, so each event is applied exactly once; the offsets
that the broker keeps are not used. Any number of runners may work on one projection, each on its queues. A
runner that has lost a queue finds other offsets than its own, writes nothing and continues from those.

    outage of a database            waited out, with pauses that grow to `retry_ms_max`
    an event cannot be applied      found by halving its batch, tried again `error_retries_max`
                                    times, then its aggregate is parked (see `poison`) and
                                    everything else goes on
    paused                          nothing is applied until it is resumed, here or elsewhere
    live rows of another version    it folds into a generation of its own version, next to the live one;
                                    older code that has none waits
    offsets fall back               found within `switch_check_ms`, and folded again: a database
                                    that takes another's place may lack its last batches
    anything else                   tried again as often, then FAILED: the projection stands
                                    still and says so; also when too much is parked already, or
                                    the event store is not the one whose events it has folded

Used by `App`; the reader of the event topic calls it with batches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace.domain.stream import EventStream
from headrace.errors import (
    HeadraceError,
    LineageError,
    ProjectionError,
)
from headrace.projections.batch_transaction import Applied
from headrace.projections.definition.projection import Projection, projection_group
from headrace.projections.intake import BATCH_INTERVAL_MS, Intake, is_small, pause_s
from headrace.projections.poison import BatchApplier, Poisoned, TooManyParked, apply_in_halves
from headrace.projections.tables.contents import Moved, Switched
from headrace.projections.tables.index.live import missing_indexes
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.turn import Turn
from headrace.projections.written_cache import Recall
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.stores.base import EventStore
from headrace.subscriptions.outages import is_outage
from headrace.subscriptions.reader import BatchReaction, Reader
from headrace.subscriptions.status import ReaderState, ReaderStatus
from headrace.transports.base import Incoming, QueueId, Transport

__all__ = ["ProjectionRunner"]

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

log = get_logger(__name__)

# How often a runner without messages checks whether another generation has become live: if that one is
# behind, the runner must not wait for the next event.
_SWITCH_CHECK_MS: Final = 1_000


class _GivenUp(Exception):
    """The same fault after every attempt."""


class ProjectionRunner(BatchReaction, Generic[R]):
    """Keeps one projection up to date.

    Args:
        projection: what to keep.
        app_name: names the event topic and the consumer group.
        read_models: where its rows are.
        store: fills gaps in the versions of an aggregate.
        transport: brings the events.
        serializer: decodes them.
        settings: batch size and pauses.
        clock: tells since when a state holds.
        shadow: the generation of a rebuild to catch up, instead of the live one.
        switch_check_ms: how often an idle runner looks for a switch.
        batch_interval_ms: from the begin of a small batch to the next one's, at least.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        *,
        projection: Projection[R],
        app_name: str,
        read_models: ReadModels,
        store: EventStore,
        transport: Transport,
        serializer: Serializer,
        settings: Settings,
        clock: Clock | None = None,
        shadow: int | None = None,
        switch_check_ms: int = _SWITCH_CHECK_MS,
        batch_interval_ms: int = BATCH_INTERVAL_MS,
    ) -> None:
        self._projection = projection
        group = projection_group(app_name, projection.name, projection.version)
        self._read_models = read_models
        self._store = store
        self._serializer = serializer
        self._settings = settings
        self._clock = clock or SystemClock()
        self._shadow = shadow
        self._switch_check_ms = switch_check_ms
        self._batch_interval_ms = batch_interval_ms
        self._intake = Intake()
        self.reader = Reader(
            transport,
            group=group if shadow is None else f"{group}.{shadow}",
            topic=f"{app_name}.events",
            settings=settings,
            about={"projection": projection.name},
            clock=clock,
            offsets=self._load_offsets,
        )
        by_one_statement = read_models.engine.dialect.name == "postgresql"
        self._applier: BatchApplier[R] = BatchApplier(
            read_models=read_models,
            missing=self._read_missing,
            serializer=serializer,
            settings=settings,
            clock=self._clock,
            say_parked=self.reader.say_parked,
            recall=Recall(),
            alone=read_models.run_alone if by_one_statement else None,
        )
        self._turn: Turn[R] = Turn(
            projection,
            read_models,
            by_itself=settings.projection_switch == "on_catch_up",
            check_ms=switch_check_ms,
            on_wait=self._say_waiting,
        )
        self._looked = 0.0
        self._generation = 0
        self._is_live = True
        # The next offset of every queue that was ever assigned; None: the topic's beginning.
        self._positions: dict[QueueId, int | None] = {}

    @property
    def name(self) -> str:
        """The projection's name."""
        return self._projection.name

    @property
    def status(self) -> ReaderStatus:
        """How it is doing."""
        return self.reader.status

    def progress(self) -> dict[QueueId, int]:
        """Returns the next offset per queue, as far as this runner has committed or loaded it."""
        return {queue: offset for queue, offset in self._positions.items() if offset is not None}

    async def run(self) -> None:
        """Works until cancelled.

        Does not return and does not raise when the projection fails for good: it leaves the group,
        says so in `status` and in the log, and rests.
        """
        try:
            await self._attempt("set up", self._set_up)
            await self.reader.run_by_batch(
                self, idle_ms=self._switch_check_ms, unless=(_GivenUp, LineageError)
            )
        except (_GivenUp, LineageError) as error:
            self.reader.report(ReaderState.FAILED, str(error))
            log.exception(
                "projection failed and stands still; repair it and restart the application",
                projection=self._projection.name,
                generation=self._generation,
                positions=_readable(self.progress()),
            )
            await asyncio.Event().wait()

    async def run_until(self, targets: Mapping[QueueId, int], *, timeout_ms: int) -> None:
        """Works until each queue is applied up to an offset, exclusive, then stops.

        Raises:
            ProjectionError: the projection failed, or has not got there in time.
        """
        task = asyncio.create_task(self.run(), name=f"catch up {self._projection.name}")
        try:
            await self.wait_for_offsets(targets, timeout_ms=timeout_ms)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def wait_for_offsets(self, targets: Mapping[QueueId, int], *, timeout_ms: int) -> None:
        """Waits until each queue is applied up to an offset, exclusive, by whichever runner.

        Raises:
            ProjectionError: this runner has failed, or it was not in time.
        """
        await self._read_models.wait_for_offsets(
            self._projection,
            targets,
            timeout_ms=timeout_ms,
            generation=self._shadow,
            check=self._check_alive,
        )

    def _check_alive(self) -> None:
        if self.status.state is ReaderState.FAILED:
            raise ProjectionError(
                f"projection {self._projection.name} has failed: {self.status.error}"
            )

    async def _set_up(self) -> None:
        if self._shadow is None:
            await self._read_models.ensure(self._projection)
            await self._tell_missing_indexes()

    async def _tell_missing_indexes(self) -> None:
        """Says what to run where the definition has got an index since the live table was made."""
        name = self._projection.name
        for index in await missing_indexes(self._read_models, self._projection):
            log.warning(
                "the live table lacks an index; reading takes longer, and no unique one is kept",
                projection=name,
                fields=list(index.fields),
                run=f"headrace projection index {name}",
            )

    async def begin(self) -> None:
        """Notes when it last looked for a switch."""
        self._looked = asyncio.get_running_loop().time()

    async def react(self, messages: list[Incoming]) -> None:
        """Applies messages in transactions, or goes where another generation is live."""
        if not messages:
            await self._follow_switch()
            return
        now = asyncio.get_running_loop().time
        begun = now()
        await self._take(messages)
        if not self._is_live and self._shadow is None:
            await self._turn.try_to_go_live(self._generation)
        # An idle queue may be behind too, while another queue keeps the runner busy.
        if begun >= self._looked + self._switch_check_ms / 1_000:
            self._looked = begun
            if await self.idle():
                await self._follow_switch()
        if is_small(len(messages), self._settings.projection_batch_max):
            await self.reader.rest(pause_s(now() - begun, self._batch_interval_ms))

    async def _load_offsets(self, queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
        offsets = await self._persist_position()
        self._positions.update((queue, offsets.get(queue)) for queue in queues)
        return {queue: offsets[queue] for queue in queues if queue in offsets}

    async def _persist_position(self) -> dict[QueueId, int]:
        return await self.reader.attempt(
            self._load_position,
            "load the offsets",
            final=lambda error: isinstance(error, HeadraceError),
            sparse=False,
        )

    async def _load_position(self) -> dict[QueueId, int]:
        """Reads which generation to apply to and its offsets; forgets those of another generation."""
        generation = self._shadow
        if generation is None:
            generation, self._is_live = await self._turn.wait()
            if self.status.state is ReaderState.PAUSED:
                self.reader.report(ReaderState.RUNNING)
        offsets = await self._read_models.offsets(self._projection.name, generation)
        if generation != self._generation:
            self._generation = generation
            self._positions = {queue: offsets.get(queue) for queue in self._positions}
        return offsets

    async def idle(self) -> bool:
        """Whether another generation is live, it has to wait, or its stored offsets fell back."""
        if self._shadow is not None:
            return False
        if not self._generation:  # the subscription has not asked for offsets yet
            return False
        try:
            if not self._is_live:
                await self._turn.try_to_go_live(self._generation)
            if await self._turn.look() != (self._generation, self._is_live):
                return True
            stored = await self._read_models.offsets(self._projection.name, self._generation)
        except Exception as error:
            if is_outage(error):
                return False
            raise
        # A crash of the database, or a copy of it that takes its place, takes batches back.
        return any(stored.get(queue, 0) < offset for queue, offset in self.progress().items())

    async def _take(self, messages: list[Incoming]) -> None:
        # As of now: while batches are applied, queues may go and come back with other positions.
        generation, positions = self._generation, dict(self._positions)
        admission = self._intake.admit(messages, positions)
        for message in admission.done:
            self.reader.ack(message)
        for queue, offset in admission.again.items():
            self.reader.seek(queue, offset)
        for queue, first, last in admission.lost:
            log.error(
                "event messages are missing in the topic",
                projection=self._projection.name,
                queue=queue,
                first_offset=first,
                last_offset=last,
            )

        async def apply(batch: Sequence[Incoming]) -> Applied | Moved | Switched | Poisoned:
            return await self._apply(batch, generation, positions)

        def applied(batch: Sequence[Incoming]) -> None:
            for message in batch:
                self.reader.ack(message)
                positions[message.queue] = message.offset + 1
            self._positions.update(positions)

        batch_max = self._settings.projection_batch_max
        halved = await apply_in_halves(admission.take, apply, batch_max=batch_max, applied=applied)
        match halved.stopped:
            case Moved(offsets=offsets):
                self._follow_move(halved.rest, offsets)
            case Switched():
                await self._follow_switch()

    async def _apply(
        self,
        batch: Sequence[Incoming],
        generation: int,
        positions: Mapping[QueueId, int | None],
    ) -> Applied | Moved | Switched | Poisoned:
        target = self._read_models.target(self._projection, generation)
        # A rebuild that cannot fold an event has failed; only a live projection parks it and continues.
        parking = self._shadow is None
        attempt = self._applier.attempts(
            target, batch, positions, parking=parking, live=self._is_live
        )
        return await self._attempt("apply a batch", attempt)

    def _follow_move(self, messages: Sequence[Incoming], offsets: Mapping[QueueId, int]) -> None:
        """Seeks to the stored offsets, for the queues of messages that were not applied."""
        log.info("another runner has moved on", projection=self._projection.name)
        self._positions = {queue: offsets.get(queue) for queue in self._positions}
        for queue in {message.queue for message in messages}:
            self.reader.seek(queue, offsets.get(queue, 0))

    async def _follow_switch(self) -> None:
        if self._shadow is not None:
            raise _GivenUp(f"generation {self._shadow} is no longer the shadow of a rebuild")
        before = self._generation
        offsets = await self._persist_position()
        log.info(
            "projection goes on" if before == self._generation else "projection switched",
            projection=self._projection.name,
            generation=self._generation,
            before=before,
        )
        self._positions = {queue: offsets.get(queue) for queue in self._positions}
        for queue in list(self._positions):
            self.reader.seek(queue, offsets.get(queue, 0))

    async def _read_missing(
        self, aggregate_id: str, after_version: int, to_version: int
    ) -> Sequence[EventStream]:
        return await self._store.read_stream(
            aggregate_id, after_version=after_version, to_version=to_version
        )

    async def _attempt(self, what: str, action: Callable[[], Awaitable[T]]) -> T:
        too_many = self.reader.faults(is_outage)

        def final(error: Exception) -> bool:
            return isinstance(error, TooManyParked) or too_many(error)

        try:
            return await self.reader.attempt(action, what, final=final, sparse=False)
        except TooManyParked as error:
            raise _GivenUp(str(error)) from error
        except Exception as error:
            raise _GivenUp(f"could not {what}: {error}") from error

    def _say_waiting(self, why: str) -> None:
        self.reader.report(ReaderState.PAUSED, why)
        log.warning("projection waits", projection=self._projection.name, reason=why)


def _readable(positions: Mapping[QueueId, int]) -> dict[str, Any]:
    return {f"{topic}/{number}": offset for (topic, number), offset in positions.items()}
