"""
The aggregates that process managers have parked: you list, retry or skip them.

    ProcessManagerLetters   for a `ProcessManager`: a retry sends the commands, with the ids that they
                            would have had; so a command that was sent before has no second effect
    ProcessLetters          for a `Process` that could not read an event or its key: a retry gives the
                            events to the instances, and the running application sends the commands

Used by `headrace parked` and by your programs. It knows no subscription.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Connection

from headrace._runtime.clock import Clock, SystemClock
from headrace.domain.stream import EventStream
from headrace.errors import ProcessError
from headrace.handlers.progress_letters import Failed, ReaderLetters
from headrace.processes.instances import InstanceParking, Outdated, lock, take
from headrace.processes.outbox import EnvelopeSender, Outbox
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.processes.progress import ProcessProgress
from headrace.processes.stuck import StuckInstances
from headrace.processes.versions import VersionsMissing, store_versions
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import CommandEnvelope, Serializer
from headrace.stores.base import EventStore
from headrace.stores.database.parked import Letter
from headrace.subjects.hidden import hide_personal
from headrace.subscriptions.outages import is_outage

__all__ = ["ProcessLetters", "ProcessManagerLetters", "letters_of", "reactions"]


def reactions(manager: ProcessManager, stream: EventStream) -> list[CommandEnvelope]:
    """Returns the commands that a stream causes.

    Raises:
        ProcessError: a handler raised any error; names the stream.
    """
    try:
        return manager.react(stream)
    except Exception as raised:  # noqa: BLE001 - user code raises what it likes; raised again
        error = hide_personal(raised, stream.events)
    raise ProcessError(
        f"{manager.name} cannot react to what command {stream.command_id} did to"
        f" {stream.aggregate_type} {stream.aggregate_id}: {error!r}"
    ) from error


class _Rejections(ReaderLetters):
    """Letters behind which rejections wait, too; a retry handles them after the events."""

    def __init__(self, name: str, read_models: ReadModels, store: EventStore) -> None:
        self._progress = ProcessProgress(name)
        super().__init__(self._progress.parked, read_models, store, busy_error=ProcessError)

    def _advance_to(self, aggregate_id: str, version: int) -> Callable[[Connection], None]:
        return partial(self._progress.advance, versions={aggregate_id: version})

    async def _handle(self, letter: Letter) -> Failed | None:
        aggregate_id = letter.aggregate_id
        version, rejections = await self._models.transact(
            partial(self._progress.waiting, aggregate_id=aggregate_id)
        )
        if version is not None:
            failed = await self._handle_after(aggregate_id, version)
            if failed is not None:
                return failed
        for number, command_id in rejections:
            done = partial(self._progress.forget, aggregate_id=aggregate_id, number=number)
            stream = await self._store.find_command(aggregate_id, command_id)
            if stream is None:
                return Failed(_not_in_store(aggregate_id, command_id), done)
            try:
                await self._call(stream)
            except Exception as error:
                if is_outage(error):
                    raise
                return Failed(error, done)
            await self._models.transact(done)
        return None


class ProcessManagerLetters(_Rejections):
    """The letters of one process manager; you may use them while it runs, here or in another process.

    Args:
        manager: its handlers are called here.
        bus: takes its commands.
        read_models: the database of the letters.
        store: has the events that wait.
        serializer: encodes commands that wait in the database, because they are due in years.
        clock: says which those are.
    """

    def __init__(
        self,
        manager: ProcessManager,
        bus: EnvelopeSender,
        read_models: ReadModels,
        store: EventStore,
        serializer: Serializer,
        *,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(manager.name, read_models, store)
        self._manager = manager
        self._bus = Outbox(manager.name, bus, read_models, serializer, clock or SystemClock())

    async def _call(self, stream: EventStream) -> None:
        for envelope in reactions(self._manager, stream):
            await self._bus.send_envelope(envelope)


class ProcessLetters(_Rejections):
    """The letters of one process; you may use them while it runs, here or in another process.

    If a handler raises during a retry, its instance is parked, and the retry goes on.

    Args:
        process: its instances handle the events.
        read_models: the database of the letters and the instances.
        store: has the events that wait.
        serializer: encodes commands.
        clock: gives the time that instances store.
    """

    def __init__(
        self,
        process: Process[Any],
        read_models: ReadModels,
        store: EventStore,
        serializer: Serializer,
        *,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(process.name, read_models, store)
        self._process = process
        self._serializer = serializer
        self._clock = clock or SystemClock()
        self._stuck = StuckInstances(process, read_models, store, serializer, clock=clock)

    async def _call(self, stream: EventStream) -> None:
        while True:
            outcome = await self._models.transact(partial(self._take, stream=stream))
            if isinstance(outcome, VersionsMissing):
                raise ProcessError(
                    f"version {outcome.gap.after_version + 1} of {stream.aggregate_id} is not in"
                    " the event store; name the store that the application uses"
                )
            if not outcome:
                return
            for key in sorted(outcome):
                await self._stuck.refold(key)

    def _take(
        self, connection: Connection, stream: EventStream
    ) -> VersionsMissing | frozenset[str]:
        """Returns the instances whose state must be rebuilt first; empty: the stream was taken."""
        outcome = take(
            connection,
            process=self._process,
            streams=[stream],
            serializer=self._serializer,
            now=self._clock.now(),
            parking=InstanceParking(),
        )
        if isinstance(outcome, VersionsMissing):
            return outcome
        return outcome.keys if isinstance(outcome, Outdated) else frozenset()

    def _advance_to(self, aggregate_id: str, version: int) -> Callable[[Connection], None]:
        def transact(connection: Connection) -> None:
            lock(connection, self._process.name)
            store_versions(connection, self._process.name, {aggregate_id: version})
            self._progress.advance(connection, {aggregate_id: version})

        return transact


def letters_of(
    manager: ProcessManager | Process[Any],
    bus: EnvelopeSender,
    read_models: ReadModels,
    store: EventStore,
    serializer: Serializer,
) -> ProcessManagerLetters | ProcessLetters:
    """Returns the letters of a process manager of either kind."""
    if isinstance(manager, ProcessManager):
        return ProcessManagerLetters(manager, bus, read_models, store, serializer)
    return ProcessLetters(manager, read_models, store, serializer)


def _not_in_store(aggregate_id: str, command_id: str) -> ProcessError:
    return ProcessError(
        f"the rejection of command {command_id} to {aggregate_id} is not in the event store; name"
        " the store that the application uses"
    )
