"""
Repairs stuck instances: retries what waits, or rebuilds the state.

    retry    handle the waiting streams in order
    skip     the same, but without the first of them
    refold   rebuild a state of another `state_version` from the streams that the instance has seen

The streams are read from the event store, so today's code and upcasters handle them. New commands are
stored; the running process sends them.

Used by `headrace parked` and by the runner of a process. It knows no subscription.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, select, update

from headrace._runtime.clock import Clock, SystemClock
from headrace.domain.stream import EventStream
from headrace.errors import InstanceNotFound, ProcessError, SubjectKeysAway
from headrace.processes.instances import (
    DONE,
    SKIPPED,
    WAITS,
    Instance,
    ReactionFailed,
    Work,
    failure_of,
    lock,
    parked_instances,
    read_instances,
)
from headrace.processes.keyed_transaction import with_keys
from headrace.processes.process import Process
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import Serializer
from headrace.stores.base import EventStore
from headrace.stores.database.parked import Letter
from headrace.stores.database.tables import parked_rows, process_journal
from headrace.subjects.hidden import hide_personal

__all__ = ["StuckInstances"]

# An instance may change while it is repaired. After so many attempts the repair fails.
_ROUNDS_MAX: Final = 10

# A line of the journal: number, aggregate, command.
_Entry = tuple[int, str, str]


class StuckInstances:
    """Repairs instances of one process; you may use it while the process runs, here or elsewhere.

    Args:
        process: the process.
        read_models: the database of its instances.
        store: has the events.
        serializer: encodes commands.
        clock: gives the time that instances store.
        room: how many instances may be parked at once, if states cannot be rebuilt; None: any number.
    """

    def __init__(
        self,
        process: Process[Any],
        read_models: ReadModels,
        store: EventStore,
        serializer: Serializer,
        *,
        clock: Clock | None = None,
        room: int | None = None,
    ) -> None:
        self._room = room
        self._process = process
        self._models = read_models
        self._store = store
        self._serializer = serializer
        self._clock = clock or SystemClock()
        self._parked = parked_instances(process.name)

    async def all(self) -> list[Letter]:
        """Returns the letters of parked instances, the oldest first."""
        return await self._models.transact(self._parked.read)

    async def retry(self, key: str) -> Letter | None:
        """Handles the waiting streams in order; returns None, or the letter if one of them fails.

        Raises:
            InstanceNotFound: there is no such instance, or it is not parked.
            ProcessError: the instance changes faster than it is repaired; nothing is lost, try again.
            sqlalchemy.exc.SQLAlchemyError, OSError: a database is away.
        """
        return await self._take_up(key, skip=False)

    async def skip(self, key: str) -> Letter | None:
        """Like `retry`, but leaves out the first waiting stream for good.

        Raises:
            InstanceNotFound, ProcessError: as `retry`.
        """
        return await self._take_up(key, skip=True)

    async def refold(self, key: str) -> None:
        """Rebuilds an instance's state from the streams it has seen; sends nothing.

        If the state cannot be rebuilt, the instance is parked. If today's code ends the instance, its
        waiting streams are skipped.

        Raises:
            InstanceNotFound: there is no such instance.
            ReactionFailed: the state cannot be rebuilt, and too many instances are parked.
            ProcessError: as `retry`.
        """
        for _ in range(_ROUNDS_MAX):
            instance, entries = await self._models.transact(
                partial(self._read, key=key, outcome=DONE)
            )
            streams = await self._streams(entries)
            refold = partial(self._refold, before=instance, streams=streams)
            if await with_keys(self._models.transact, refold, self._serializer):
                return
        raise self._busy(key)

    async def _take_up(self, key: str, *, skip: bool) -> Letter | None:
        instance, _ = await self._models.transact(partial(self._read, key=key, outcome=WAITS))
        if not instance.parked:
            raise InstanceNotFound(
                f"instance {key!r} of process {self._process.name} is not parked;"
                " `headrace parked list` lists those that are"
            )
        await self.refold(key)
        for _ in range(_ROUNDS_MAX):
            instance, entries = await self._models.transact(
                partial(self._read, key=key, outcome=WAITS)
            )
            if not instance.parked:
                # Today's code has ended it, or another program has retried it.
                return None
            streams = await self._streams(entries)
            handle = partial(
                self._handle, before=instance, entries=entries, streams=streams, skip=skip
            )
            if await with_keys(self._models.transact, handle, self._serializer):
                found: Letter | None = await self._models.transact(
                    partial(self._parked.find, aggregate_id=key)
                )
                return found
        raise self._busy(key)

    def _handle(
        self,
        connection: Connection,
        *,
        before: Instance,
        entries: Sequence[_Entry],
        streams: Sequence[EventStream],
        skip: bool,
    ) -> bool:
        """Handles waiting streams up to one that fails; returns False if the instance has changed."""
        instance = self._locked(connection, before)
        if instance is None:
            return False
        key, current = instance.instance, replace(instance, parked=False)
        work: Work[Any] = Work(self._process, {key: current}, self._serializer, self._clock.now())
        for place, (entry, stream) in enumerate(zip(entries, streams, strict=True)):
            outcome = SKIPPED
            if not (skip and place == 0) and not current.ended:
                try:
                    handled = work.react(None if current.state is None else current, key, stream)
                except SubjectKeysAway:
                    raise
                except Exception as raised:  # noqa: BLE001 - user code raises what it likes; kept
                    error = hide_personal(raised, stream.events)
                    self._parked.fail(
                        connection,
                        key,
                        error,
                        sentence=failure_of(stream, error),
                        held=len(entries) - place,
                    )
                    break
                if handled is not None:
                    # Without a state, `react` begins a new instance; its counters must go on.
                    current = replace(handled, seen=current.seen, began_at=current.began_at)
                    outcome = DONE
            self._set_outcome(connection, key, entry[0], outcome)
        else:
            self._release(connection, key)
        work.put(current)
        work.write(connection)
        return True

    def _release(self, connection: Connection, key: str) -> None:
        """Deletes an instance's letter; the process is locked, so no stream can come meanwhile."""
        letter = self._parked.find(connection, key)
        if letter is not None:
            self._parked.release(connection, letter)

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
        except Exception as raised:  # noqa: BLE001 - user code raises what it likes; kept
            given = (event for stream in streams for event in stream.events)
            self._park(connection, instance, hide_personal(raised, given))
            work.put(replace(instance, state_version=self._process.state_version))
        else:
            if progress.ended and instance.parked:
                self._set_outcome(connection, instance.instance, None, SKIPPED)
                self._release(connection, instance.instance)
            work.put(work.with_progress(instance, progress))
        work.write(connection)
        return True

    def _park(self, connection: Connection, instance: Instance, error: Exception) -> None:
        """Parks an instance whose state cannot be rebuilt; a parked one keeps its count of attempts."""
        key, sentence = instance.instance, f"its state cannot be rebuilt: {error!r}"
        if instance.parked:
            attempts = parked_rows.c.attempts
            self._parked.fail(connection, key, error, sentence=sentence, attempts=attempts)
        elif self._room is not None and self._parked.count(connection) >= self._room:
            full = f"as many instances as may be are parked, and now {key!r}: {sentence}"
            raise ReactionFailed(key, instance.last_aggregate_id, full) from error
        else:
            self._parked.add(
                connection,
                key,
                error,
                now=self._clock.now(),
                place=None,
                sentence=sentence,
                held=0,
            )

    def _locked(self, connection: Connection, before: Instance) -> Instance | None:
        """Locks the process and returns the instance; None: it has changed since it was read."""
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

    def _set_outcome(
        self, connection: Connection, key: str, number: int | None, outcome: str
    ) -> None:
        """Stores the outcome of one waiting stream of an instance, or of all if `number` is None."""
        columns = process_journal.c
        one = () if number is None else (columns.number == number,)
        connection.execute(
            update(process_journal)
            .where(
                columns.process == self._process.name,
                columns.instance == key,
                columns.outcome == WAITS,
                *one,
            )
            .values(outcome=outcome)
        )

    def _busy(self, key: str) -> ProcessError:
        return ProcessError(
            f"instance {key!r} of process {self._process.name} moves on faster than it is"
            " repaired; try again"
        )
