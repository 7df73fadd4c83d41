"""
Instances that stand still: taken up again, or their state made anew.

    parked ──retry──▶ what waits is handled, in order     └─skip──▶ handled without the first of it
    of another state version ──refold──▶ the state that today's code makes of what it has seen

What an instance has seen is read from the event store, so it passes the code, and the upcasters, of
that moment. Commands that follow are kept to be sent by whoever runs the process.

Sits between: whoever repairs, the loop of a process, and the tables. Must never know a subscription.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, select, update

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.tracebacks import storable, traceback_of
from headrace.domain.stream import EventStream
from headrace.errors import InstanceNotFound, ProcessError
from headrace.processes.instances import (
    DONE,
    ERROR_CHARACTERS_MAX,
    SKIPPED,
    WAITS,
    Instance,
    Work,
    lock,
    read_instances,
)
from headrace.processes.process import Process
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import Serializer
from headrace.stores.base import EventStore
from headrace.stores.database.tables import process_journal

__all__ = ["StuckInstances"]

# Looks at an instance that moves on while it is being repaired, before giving way.
_ROUNDS_MAX: Final = 10

_NOT_PARKED: Final[Any] = MappingProxyType(
    {"error": None, "traceback": None, "parked_at": None, "retries": 0}
)

# Number in the journal, aggregate, command.
_Entry = tuple[int, str, str]


class StuckInstances:
    """Repairs instances of one process; may be used while it runs, here or elsewhere.

    Args:
        process: whose.
        read_models: the database that keeps its instances.
        store: has the events.
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
        self._process = process
        self._models = read_models
        self._store = store
        self._serializer = serializer
        self._clock = clock or SystemClock()

    async def retry(self, key: str) -> str | None:
        """Handles what waits, in order; returns None, or why it is still parked.

        Raises:
            InstanceNotFound: there is no such instance, or it is not parked.
            ProcessError: it moves on faster than it is repaired; nothing is lost, try again.
            sqlalchemy.exc.SQLAlchemyError, OSError: a database is away.
        """
        return await self._take_up(key, skip=False)

    async def skip(self, key: str) -> str | None:
        """Like `retry`, but passes over the first stream that waits: it is never handled.

        Raises:
            InstanceNotFound, ProcessError: as `retry`.
        """
        return await self._take_up(key, skip=True)

    async def refold(self, key: str) -> None:
        """Makes an instance's state anew from what it has seen; sends nothing.

        A state that cannot be made parks the instance.

        Raises:
            InstanceNotFound: there is no such instance.
            ProcessError: as `retry`.
        """
        for _ in range(_ROUNDS_MAX):
            instance, entries = await self._models.transact(
                partial(self._read, key=key, outcome=DONE)
            )
            streams = await self._streams(entries)
            if await self._models.transact(partial(self._refold, before=instance, streams=streams)):
                return
        raise self._restless(key)

    async def _take_up(self, key: str, *, skip: bool) -> str | None:
        await self.refold(key)
        for _ in range(_ROUNDS_MAX):
            instance, entries = await self._models.transact(
                partial(self._read, key=key, outcome=WAITS)
            )
            if instance.error is None:
                raise InstanceNotFound(
                    f"instance {key!r} of process {self._process.name} is not parked;"
                    " `headrace process list --stuck` lists those that are"
                )
            streams = await self._streams(entries)
            outcome = await self._models.transact(
                partial(self._handle, before=instance, entries=entries, streams=streams, skip=skip)
            )
            if outcome is not False:
                return outcome or None
        raise self._restless(key)

    def _handle(
        self,
        connection: Connection,
        *,
        before: Instance,
        entries: Sequence[_Entry],
        streams: Sequence[EventStream],
        skip: bool,
    ) -> Any:
        """Returns why the instance is parked, "" when it is not; False: it has moved meanwhile."""
        instance = self._locked(connection, before)
        if instance is None:
            return False
        instances = {instance.instance: replace(instance, **_NOT_PARKED)}
        work: Work[Any] = Work(self._process, instances, self._serializer, self._clock.now())
        current, error = instances[instance.instance], ""
        for place, (entry, stream) in enumerate(zip(entries, streams, strict=True)):
            outcome = SKIPPED
            if not (skip and place == 0) and not current.ended:
                try:
                    handled = work.react(
                        None if current.state is None else current, current.instance, stream
                    )
                except Exception as caught:  # noqa: BLE001 - user code raises what it likes; kept
                    error = storable(repr(caught))[:ERROR_CHARACTERS_MAX]
                    current = replace(
                        current,
                        error=error,
                        traceback=traceback_of(caught),
                        parked_at=instance.parked_at,
                        retries=instance.retries + 1,
                    )
                    break
                if handled is not None:
                    # `react` begins a new one where there is no state; its numbers go on.
                    current, outcome = (
                        replace(
                            handled,
                            seen=current.seen,
                            began_at=current.began_at,
                        ),
                        DONE,
                    )
            self._set_outcome(connection, instance.instance, entry[0], outcome)
        work.put(current)
        work.write(connection)
        return error

    def _refold(
        self, connection: Connection, *, before: Instance, streams: Sequence[EventStream]
    ) -> bool:
        instance = self._locked(connection, before)
        if instance is None:
            return False
        now = self._clock.now()
        work: Work[Any] = Work(self._process, {}, self._serializer, now)
        try:
            progress = self._process.refold(instance.instance, streams)
        except Exception as error:  # noqa: BLE001 - user code raises what it likes; kept
            sentence = storable(f"its state cannot be rebuilt: {error!r}")[:ERROR_CHARACTERS_MAX]
            work.put(
                replace(
                    instance,
                    state_version=self._process.state_version,
                    error=sentence,
                    traceback=traceback_of(error),
                    parked_at=instance.parked_at or now,
                )
            )
        else:
            work.put(work.placed(instance, progress))
        work.write(connection)
        return True

    def _locked(self, connection: Connection, before: Instance) -> Instance | None:
        """Locks the process and returns the instance, unless it has moved since it was read."""
        lock(connection, self._process.name)
        now = read_instances(connection, self._process.name, [before.instance])
        return now.get(before.instance) if now.get(before.instance) == before else None

    def _read(
        self, connection: Connection, *, key: str, outcome: str
    ) -> tuple[Instance, list[_Entry]]:
        found = read_instances(connection, self._process.name, [key]).get(key)
        if found is None:
            raise InstanceNotFound(f"process {self._process.name} has no instance {key!r}")
        columns = process_journal.c
        rows = connection.execute(
            select(columns.number, columns.aggregate_id, columns.command_id)
            .where(
                columns.process == self._process.name,
                columns.instance == key,
                columns.outcome == outcome,
            )
            .order_by(columns.number)
        )
        return found, [(number, aggregate, command) for number, aggregate, command in rows]

    async def _streams(self, entries: Sequence[_Entry]) -> list[EventStream]:
        streams = []
        for _, aggregate_id, command_id in entries:
            stream = await self._store.find_command(aggregate_id, command_id)
            if stream is None:
                raise ProcessError(
                    f"what command {command_id} did to {aggregate_id} is not in the event store;"
                    " name the store that the application uses"
                )
            streams.append(stream)
        return streams

    def _set_outcome(self, connection: Connection, key: str, number: int, outcome: str) -> None:
        columns = process_journal.c
        connection.execute(
            update(process_journal)
            .where(
                columns.process == self._process.name,
                columns.instance == key,
                columns.number == number,
            )
            .values(outcome=outcome)
        )

    def _restless(self, key: str) -> ProcessError:
        return ProcessError(
            f"instance {key!r} of process {self._process.name} moves on faster than it is"
            " repaired; try again"
        )
