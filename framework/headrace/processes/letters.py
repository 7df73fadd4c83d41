"""
The aggregates that process managers have parked: looked at, taken up again, or without what failed.

    ProcessManagerLetters   of a `ProcessManager`: its commands are sent here, with the ids that they
                     would have had, so that what was sent before has no second effect
    ProcessLetters   of a `Process`, which could not read an event or its key: the instances take
                     what waits, and the running application sends what follows

Sits between: whoever repairs, and the managers. Must never know a subscription.
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
from headrace.processes.versions import Lacking, store_versions
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import CommandEnvelope, Serializer
from headrace.stores.base import EventStore
from headrace.stores.database.parked import Letter
from headrace.subscriptions.outages import is_outage

__all__ = ["ProcessLetters", "ProcessManagerLetters", "letters_of", "reactions"]


def reactions(manager: ProcessManager, stream: EventStream) -> list[CommandEnvelope]:
    """Returns the commands that a stream causes.

    Raises:
        ProcessError: a handler raised, whatever it was; names the change.
    """
    try:
        return manager.react(stream)
    except Exception as error:
        raise ProcessError(
            f"{manager.name} cannot react to what command {stream.command_id} did to"
            f" {stream.aggregate_type} {stream.aggregate_id}: {error!r}"
        ) from error


class _Rejections(ReaderLetters):
    """Letters behind which rejections wait, too; these are reacted to after the events that do."""

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
                return Failed(_not_there(aggregate_id, command_id), done)
            try:
                await self._call(stream)
            except Exception as error:
                if is_outage(error):
                    raise
                return Failed(error, done)
            await self._models.transact(done)
        return None


class ProcessManagerLetters(_Rejections):
    """The letters of one process manager; may be used while it runs, here or in another process.

    Args:
        manager: whose handlers are called here.
        bus: takes its commands.
        read_models: where the letters are.
        store: has the events that wait.
        serializer: keeps commands that are due in years.
        clock: tells which those are.
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
    """The letters of one process; may be used while it runs, here or in another process.

    A handler that raises parks its instance, as it does while the process runs; the letter goes on.

    Args:
        process: whose instances take what waits.
        read_models: where the letters and the instances are.
        store: has the events that wait.
        serializer: keeps commands.
        clock: dates instances.
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
            if isinstance(outcome, Lacking):
                raise ProcessError(
                    f"version {outcome.gap.after_version + 1} of {stream.aggregate_id} is not in"
                    " the event store; name the store that the application uses"
                )
            if not outcome:
                return
            for key in sorted(outcome):
                await self._stuck.refold(key)

    def _take(self, connection: Connection, stream: EventStream) -> Lacking | frozenset[str]:
        """Returns the instances that must be made anew first; none: the stream is taken."""
        outcome = take(
            connection,
            process=self._process,
            streams=[stream],
            serializer=self._serializer,
            now=self._clock.now(),
            parking=InstanceParking(),
        )
        if isinstance(outcome, Lacking):
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


def _not_there(aggregate_id: str, command_id: str) -> ProcessError:
    return ProcessError(
        f"the rejection of command {command_id} to {aggregate_id} is not in the event store; name"
        " the store that the application uses"
    )
