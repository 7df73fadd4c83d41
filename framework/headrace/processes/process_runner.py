"""
What a process does with events: gives a batch to its instances, then sends their commands.

    poll ─▶ one transaction: states, journal, commands ─▶ send ─▶ note commands as sent ─▶ acknowledge

After a crash, the next runner goes on. If the transaction was not committed, the events come again; if it
was, the commands are in the database, and the next runner sends them, with the same ids.

    a database or the queue is away   retry until it is back
    a handler raises                  take the batch's streams one by one, retry the one that fails
                                      `error_retries_max` times, then park its instance: its streams
                                      wait in the database for `headrace parked retry`; others go on
    versions of an aggregate are      read them from the event store and handle them first; if they
    missing                           come later, they are duplicates
    a stream does not decode, has no  park the aggregate: its later events wait for `headrace parked
    usable key, or comes after        retry`; all other aggregates go on
    versions that are nowhere

Used by `App`; the reader of the event topic calls it with batches. It knows no broker.
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
from headrace.errors import ProcessError, SubjectKeysAway
from headrace.processes.instances import (
    InstanceParking,
    Outdated,
    ReactionFailed,
    Taken,
    take,
)
from headrace.processes.kept_commands import find_unsent, mark_sent, refuse, try_again
from headrace.processes.keyed_transaction import with_keys
from headrace.processes.outbox import EnvelopeSender, is_near, near_until
from headrace.processes.process import Process
from headrace.processes.progress import ProcessProgress, is_rejection
from headrace.processes.pruned import PRUNED_MAX, prune
from headrace.processes.stuck import StuckInstances
from headrace.processes.versions import VersionsMissing, read_versions
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

# Streams per transaction: they share one flush, and all are repeated if a handler raises.
_BATCH_MAX: Final = 256
# Missing versions that are read from the event store at once: a few megabytes.
_MISSING_MAX: Final = 1_000
# How often to look for unsent commands, and how old these must be. Another runner usually sends a younger
# one itself; a command that is sent twice does no harm.
_SWEEP_MS: Final = 1_000
_UNSENT_MS: Final = 5_000
# Between two prunings of instances that ended long ago; pruning is not urgent.
_PRUNE_MS: Final = 60_000


class _GapNotFilled(ProcessError):
    """Versions of an aggregate are missing, in the event store, too."""

    def __init__(self, aggregate_id: str, sentence: str) -> None:
        super().__init__(sentence)
        self.aggregate_id = aggregate_id


class ProcessRunner(BatchReaction):
    """Calls one process with events; several runners share the queues of the topic.

    Args:
        process: the process.
        app_name: the application's name; part of the names of the event topic and the consumer group.
        read_models: the database of its instances.
        store: has the missing versions, and the events from which a state is rebuilt.
        transport: delivers the events.
        bus: takes the commands.
        serializer: decodes the events.
        settings: attempts and pauses.
        clock: gives the time that instances store.
        sweep_ms: time between two looks for unsent commands while no event comes, in milliseconds.
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
        """Runs until cancelled; subscribes again after an error."""
        await self.reader.run_by_batch(self, idle_ms=self._sweep_ms)

    async def begin(self) -> None:
        """Sends commands that could not be decoded or sent before; this release may be able to."""
        await self._transact(partial(try_again, process=self._process.name), "begin")
        await self._sweep()

    async def react(self, messages: list[Incoming]) -> None:
        """Gives events to instances, sends the commands, and acknowledges the events."""
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
        """Deletes instances that ended long ago, a few at a time."""
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
        parked: set[str] = await self._transact(
            partial(self._progress.parked.among, aggregate_ids={each.key for each in messages}),
            "read what is parked",
        )
        streams: list[EventStream] = []
        done: list[Incoming] = []
        places: dict[tuple[str, str], tuple[str, int, int]] = {}
        errors: dict[str, Exception] = {}
        waiting: list[Incoming] = []
        for message in messages:
            # A rejection goes to the instance that sent the command, not to the aggregate's letter.
            if message.key in parked | errors.keys() and not is_rejection(message):
                waiting.append(message)
                continue
            try:
                stream = stream_or_none(
                    self._serializer.decode_published, message.body, message.queue, message.offset
                )
                if stream is not None:
                    self._process.keys_of(stream)
            except SubjectKeysAway:
                raise
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
            except _GapNotFilled as error:
                aggregate_id = error.aggregate_id
                errors.setdefault(aggregate_id, error)
                waiting += [each for each in done if each.key == aggregate_id]
                done = [each for each in done if each.key != aggregate_id]
                streams = [each for each in streams if each.aggregate_id != aggregate_id]
        await self._hold(waiting, errors)
        for message in done:
            self.reader.ack(message)

    async def _hold(self, messages: Sequence[Incoming], errors: dict[str, Exception]) -> None:
        """Holds messages behind their aggregates' letters; parks aggregates that have no letter yet."""
        for message in messages:
            # The first message of an aggregate is the one that failed.
            error = errors.pop(message.key, None)
            if error is not None:
                park = partial(self._park_at, message=message, error=error)
                await self.reader.park(
                    message, error, partial(self._transact, park, "park an aggregate")
                )
                self.reader.ack(message)
            elif await self._transact(
                partial(self._progress.keep, message=message), "let an event wait"
            ):
                self.reader.ack(message)
            else:
                # Its letter was retried in between.
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
        """Retries until a stream is taken or its instance is parked; waits while too many are parked."""
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
        """Stores the reactions to streams, with their commands; returns the commands."""
        work = partial(
            take,
            process=self._process,
            streams=streams,
            serializer=self._serializer,
            parking=parking if park else None,
        )

        async def keep() -> Taken | Outdated | VersionsMissing:
            now = partial(work, now=self._clock.now())
            return await with_keys(self._read_models.transact, now, self._serializer)

        while True:
            outcome = await self._persist(keep, "keep the instances")
            if isinstance(outcome, Taken):
                return outcome.commands
            if isinstance(outcome, VersionsMissing):
                before = streams[: outcome.place]
                await self._react([*before, *await self._missing(outcome)], parking)
                continue
            for key in sorted(outcome.keys):
                await self._persist(partial(self._stuck.refold, key), "rebuild a state")

    async def _missing(self, missing: VersionsMissing) -> Sequence[EventStream]:
        """Returns the next missing versions of an aggregate, in order."""
        aggregate_id, first = missing.aggregate_id, missing.gap.after_version + 1
        last = min(missing.gap.to_version, missing.gap.after_version + _MISSING_MAX)
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
            raise _GapNotFilled(aggregate_id, sentence) from error
        if [each.version for each in found] != list(range(first, last + 1)):
            raise _GapNotFilled(
                aggregate_id,
                f"versions {first} to {last} of {aggregate_id} did not come and are not all in the"
                " event store; name the store that the application uses",
            )
        return found

    async def _send(self, commands: Sequence[CommandEnvelope]) -> None:
        """Sends commands, those to one aggregate one after another, and notes them as sent.

        Commands that are due in years stay in the database until the queue can keep them.
        """
        now = self._clock.now()
        commands = [each for each in commands if is_near(each.due, now)]
        if not commands:
            return
        by_aggregate: dict[str, list[CommandEnvelope]] = {}
        for envelope in commands:
            by_aggregate.setdefault(envelope.aggregate_id, []).append(envelope)
        sent: list[str] = []
        async with asyncio.TaskGroup() as tasks:
            for group in by_aggregate.values():
                tasks.create_task(self._send_in_order(group, sent))
        await self._transact(
            partial(mark_sent, process=self._process.name, command_ids=sent), "note what was sent"
        )

    async def _send_in_order(self, commands: Sequence[CommandEnvelope], sent: list[str]) -> None:
        """Sends commands one after another, and adds their ids to `sent`."""
        for envelope in commands:
            command_id = envelope.command_id
            try:
                await self._persist(partial(self._bus.send_envelope, envelope), "send a command")
            except Exception as error:
                # For example too large. `headrace process` shows it; everything else goes on.
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
                await self._transact(refusing, "note what cannot be sent")
            else:
                sent.append(command_id)

    async def _transact(self, work: Callable[[Connection], Any], what: str) -> Any:
        return await self._persist(partial(self._read_models.transact, work), what)

    async def _persist(self, action: Any, what: str) -> Any:
        """Retries an action during outages; raises any other error."""
        return await self.reader.attempt(action, what, final=lambda error: not is_outage(error))
