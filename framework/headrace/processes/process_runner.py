"""
What one process does with events: a batch of events into its instances, then their commands into the queue.

    poll ─▶ one transaction: states, journal, commands ─▶ send ─▶ note that they are sent ─▶ ack

A crash anywhere repeats what is left with the same ids: before the commit nothing has happened,
after it the commands are in the database, and whoever runs the process next sends them.

    a database or the queue is away   waited out
    a handler raises                  found by going one by one, tried again `error_retries_max`
                                      times, then its instance is PARKED: what comes for it waits in
                                      the database for `headrace parked retry`, the others go on
    versions of an aggregate are      read from the event store and handled first; what comes late
    missing                           then is known
    a stream does not decode, has no  its aggregate is parked: what follows of it waits for
    usable key, or misses versions    `headrace parked retry`, everything else flows
    that the store does not have

Sits between: the reader of the event topic, and `instances` and the command bus. Must never know
a broker.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from headrace._runtime.clock import Clock, SteadyClock, SystemClock
from headrace._runtime.log import get_logger
from headrace.domain.stream import EventStream
from headrace.errors import ProcessError
from headrace.processes.instances import (
    InstanceParking,
    Outdated,
    ReactionFailed,
    Taken,
    take,
)
from headrace.processes.kept_commands import find_unsent, mark_sent, refuse, try_again
from headrace.processes.outbox import EnvelopeSender, is_near, near_until
from headrace.processes.process import Process
from headrace.processes.progress import ProcessProgress, is_rejection
from headrace.processes.pruned import PRUNED_MAX, prune
from headrace.processes.stuck import StuckInstances
from headrace.processes.versions import Lacking, read_versions
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import CommandEnvelope, Serializer
from headrace.settings import Settings
from headrace.stores.base import EventStore
from headrace.subscriptions.foreign import stream_or_none
from headrace.subscriptions.outages import is_outage
from headrace.subscriptions.reader import BatchReaction, Reader
from headrace.transports.base import Incoming, Transport

__all__ = ["ProcessRunner"]

log = get_logger(__name__)

# Streams per transaction: they share its flush, and a handler that raises costs so many again.
_BATCH_MAX: Final = 256
# Missing versions read from the event store at once: a few megabytes.
_MISSING_MAX: Final = 1_000
# How often commands are looked for that were not sent, and how old those are: one whose sender is
# at work is sent within a fraction of that, and sending it twice would do no harm.
_SWEEP_MS: Final = 1_000
_UNSENT_MS: Final = 5_000
# Between two looks at instances that ended long ago; nothing waits for them to go.
_PRUNE_MS: Final = 60_000


class _NotToBeFilled(ProcessError):
    """Versions of an aggregate are missing, and the event store does not help."""

    def __init__(self, aggregate_id: str, sentence: str) -> None:
        super().__init__(sentence)
        self.aggregate_id = aggregate_id


class ProcessRunner(BatchReaction):
    """Feeds one process; any number of them may, each on its queues.

    Args:
        process: what reacts.
        app_name: names the event topic and the consumer group.
        read_models: the database that keeps its instances.
        store: has what instances have seen, where their state is made anew.
        transport: brings the events.
        bus: takes the commands.
        serializer: decodes the events.
        settings: attempts and pauses.
        clock: dates instances.
        sweep_ms: how often it looks for commands that nobody has sent.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        *,
        process: Process[Any],
        app_name: str,
        read_models: ReadModels,
        store: EventStore,
        transport: Transport,
        bus: EnvelopeSender,
        serializer: Serializer,
        settings: Settings,
        clock: Clock | None = None,
        sweep_ms: int = _SWEEP_MS,
    ) -> None:
        self._process = process
        self._progress = ProcessProgress(process.name)
        self._letters_max = settings.projection_letters_max
        self._read_models = read_models
        self._store = store
        self._stuck = StuckInstances(
            process, read_models, store, serializer, clock=clock, room=self._letters_max
        )
        self._bus = bus
        self._serializer = serializer
        self._faults_max = settings.error_retries_max
        self._clock = SteadyClock(clock or SystemClock())
        self.reader = Reader(
            transport,
            group=f"{app_name}.process.{process.name}",
            topic=f"{app_name}.events",
            settings=settings,
            about={"process": process.name},
            clock=self._clock,
        )
        self._sweep_ms = sweep_ms
        self._ended_ms = settings.process_ended_ms
        self._prune_at_ms = self._clock.monotonic_ms()

    async def run(self) -> None:
        """Works until cancelled; what breaks is begun again after a pause."""
        await self.reader.run_by_batch(self, idle_ms=self._sweep_ms)

    async def begin(self) -> None:
        """Sends what an older release could not read or send, and this one may."""
        await self._within(partial(try_again, process=self._process.name), "begin")
        await self._sweep()

    async def react(self, messages: list[Incoming]) -> None:
        """Takes events into instances, sends what follows from them, and acknowledges them."""
        for first in range(0, len(messages), _BATCH_MAX):
            await self._handle(messages[first : first + _BATCH_MAX])
        await self._sweep()

    async def idle(self) -> bool:
        """Sends commands that have not been sent."""
        await self._sweep()
        return False

    async def _sweep(self) -> None:
        now = self._clock.now()
        unsent = await self._read_models.transact(
            partial(
                find_unsent,
                process=self._process.name,
                made_before=now - timedelta(milliseconds=_UNSENT_MS),
                now=now,
                due_before=near_until(now),
                serializer=self._serializer,
            )
        )
        await self._send(unsent)
        await self._prune()

    async def _prune(self) -> None:
        """Lets instances go that ended long ago, a few at a time."""
        now_ms = self._clock.monotonic_ms()
        if self._ended_ms is None or now_ms < self._prune_at_ms:
            return
        before = self._clock.now() - timedelta(milliseconds=self._ended_ms)
        pruned = await self._read_models.transact(
            partial(prune, process=self._process.name, before=before)
        )
        if pruned:
            log.info("process pruned ended instances", process=self._process.name, count=pruned)
        if pruned < PRUNED_MAX:
            self._prune_at_ms = now_ms + _PRUNE_MS

    async def _handle(self, messages: Sequence[Incoming]) -> None:
        parked: set[str] = await self._within(
            partial(self._progress.parked.among, aggregate_ids={each.key for each in messages}),
            "read what is parked",
        )
        streams: list[EventStream] = []
        done: list[Incoming] = []
        places: dict[tuple[str, str], tuple[str, int, int]] = {}
        errors: dict[str, Exception] = {}
        waiting: list[Incoming] = []
        for message in messages:
            # A rejection is the concern of the instance that sent the command.
            if message.key in parked | errors.keys() and not is_rejection(message):
                waiting.append(message)
                continue
            try:
                stream = stream_or_none(
                    self._serializer.decode_published, message.body, message.queue, message.offset
                )
                if stream is not None:
                    self._process.keys_of(stream)
            except Exception as error:  # noqa: BLE001 - bytes and user code may raise anything; parked
                errors[message.key] = error
                waiting.append(message)
                continue
            done.append(message)
            if stream is not None:
                streams.append(stream)
                places[stream.aggregate_id, stream.command_id] = (*message.queue, message.offset)
        parking = InstanceParking(room=self._letters_max, places=places)
        while streams:
            try:
                await self._react(streams, parking)
                break
            except _NotToBeFilled as error:
                lacking = error.aggregate_id
                errors.setdefault(lacking, error)
                waiting += [each for each in done if each.key == lacking]
                done = [each for each in done if each.key != lacking]
                streams = [each for each in streams if each.aggregate_id != lacking]
        await self._let_wait(waiting, errors)
        for message in done:
            self.reader.ack(message)

    async def _let_wait(self, messages: Sequence[Incoming], errors: dict[str, Exception]) -> None:
        """Lets messages wait behind the letters of their aggregates, which some have yet to get."""
        for message in messages:
            # Of an aggregate the first one has failed.
            error = errors.pop(message.key, None)
            if error is not None:
                park = partial(self._park_at, message=message, error=error)
                await self.reader.park(
                    message, error, partial(self._within, park, "park an aggregate")
                )
                self.reader.ack(message)
            elif await self._within(
                partial(self._progress.keep, message=message), "let an event wait"
            ):
                self.reader.ack(message)
            else:
                # Its letter was taken up meanwhile.
                await self._handle([message])

    def _park_at(self, connection: Connection, message: Incoming, error: Exception) -> bool:
        name = self._process.name
        return self._progress.park_at(
            connection,
            message=message,
            version=read_versions(connection, name, {message.key}).get(message.key, 0),
            error=error,
            now=self._clock.now(),
            letters_max=self._letters_max,
        )

    async def _react(self, streams: Sequence[EventStream], parking: InstanceParking) -> None:
        try:
            await self._send(await self._take(streams, parking))
        except ReactionFailed:
            for stream in streams:
                await self._react_alone(stream, parking)

    async def _react_alone(self, stream: EventStream, parking: InstanceParking) -> None:
        """Tries until a stream is taken, its instance parked or not; waits for room to park it."""
        faults = 0

        async def react() -> None:
            park = faults >= self._faults_max
            await self._send(await self._take([stream], parking, park=park))

        def final(error: Exception) -> bool:
            nonlocal faults
            faults += 1
            return not isinstance(error, ReactionFailed)

        await self.reader.attempt(react, "react", final=final, sparse=False)

    async def _take(
        self, streams: Sequence[EventStream], parking: InstanceParking, *, park: bool = False
    ) -> Any:
        """Returns the commands that follow from streams, which are kept by now."""
        work = partial(
            take,
            process=self._process,
            streams=streams,
            serializer=self._serializer,
            parking=parking if park else None,
        )
        while True:
            outcome: Taken | Outdated | Lacking = await self._persist(
                lambda: self._read_models.transact(partial(work, now=self._clock.now())),
                "keep the instances",
            )
            if isinstance(outcome, Taken):
                return outcome.commands
            if isinstance(outcome, Lacking):
                before = streams[: outcome.place]
                await self._react([*before, *await self._missing(outcome)], parking)
                continue
            for key in sorted(outcome.keys):
                await self._persist(partial(self._stuck.refold, key), "rebuild a state")

    async def _missing(self, lacking: Lacking) -> Sequence[EventStream]:
        """Returns the next of the versions that are missing, in order."""
        aggregate_id, first = lacking.aggregate_id, lacking.gap.after_version + 1
        last = min(lacking.gap.to_version, lacking.gap.after_version + _MISSING_MAX)
        try:
            found: Sequence[EventStream] = await self._persist(
                partial(
                    self._store.read_stream, aggregate_id, after_version=first - 1, to_version=last
                ),
                "read what is missing",
            )
            for stream in found:
                self._process.keys_of(stream)
        except Exception as error:
            sentence = f"versions {first} to {last} of {aggregate_id} did not come: {error!r}"
            raise _NotToBeFilled(aggregate_id, sentence) from error
        if [each.version for each in found] != list(range(first, last + 1)):
            raise _NotToBeFilled(
                aggregate_id,
                f"versions {first} to {last} of {aggregate_id} did not come and are not all in the"
                " event store; name the store that the application uses",
            )
        return found

    async def _send(self, commands: Sequence[CommandEnvelope]) -> None:
        """Sends commands, those to one aggregate one after another, and notes that.

        Those that are due in years stay in the database until they have come near.
        """
        now = self._clock.now()
        commands = [each for each in commands if is_near(each.due, now)]
        if not commands:
            return
        lanes: dict[str, list[CommandEnvelope]] = {}
        for envelope in commands:
            lanes.setdefault(envelope.aggregate_id, []).append(envelope)
        sent: list[str] = []
        async with asyncio.TaskGroup() as sending:
            for lane in lanes.values():
                sending.create_task(self._send_in_order(lane, sent))
        await self._within(
            partial(mark_sent, process=self._process.name, command_ids=sent), "note what was sent"
        )

    async def _send_in_order(self, lane: Sequence[CommandEnvelope], sent: list[str]) -> None:
        """Sends commands and adds their ids to those that are sent."""
        for envelope in lane:
            command_id = envelope.command_id
            try:
                await self._persist(partial(self._bus.send_envelope, envelope), "send a command")
            except Exception as error:
                # Too large, say: its instance shows it, and everything else goes on.
                log.exception(
                    "a command cannot be sent",
                    process=self._process.name,
                    command=envelope.command.message_name,
                    command_id=command_id,
                )
                refusing = partial(
                    refuse,
                    process=self._process.name,
                    command_id=command_id,
                    sentence=f"cannot be sent: {error}",
                )
                await self._within(refusing, "note what cannot be sent")
            else:
                sent.append(command_id)

    async def _within(self, work: Callable[[Connection], Any], what: str) -> Any:
        return await self._persist(partial(self._read_models.transact, work), what)

    async def _persist(self, action: Any, what: str) -> Any:
        """Waits an outage out; anything else is raised."""
        return await self.reader.attempt(action, what, final=lambda error: not is_outage(error))
