"""
Applies a batch of streams to the instances of a process, in one database transaction.

    lock the process ─▶ version gate ─▶ read the instances of the batch's keys ─▶ seen before? ─▶ react
      ─▶ write states, journal, commands, versions, letters in bulk ─▶ the caller commits, then sends

The journal, the state and the commands of an instance change together or not at all. So a stream that
comes again changes nothing, and after a crash the commands are in the database, with the same ids.

Used by the runner of a process; reads and writes the tables. It knows no subscription and no bus.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Connection, Select, literal, select, tuple_

from headrace._runtime.ids import derived_id
from headrace._runtime.log import get_logger
from headrace.domain.stream import EventStream
from headrace.errors import HeadraceError, SubjectKeysAway
from headrace.processes.kept_commands import command_row, find_senders, refuse
from headrace.processes.process import Process, Progress
from headrace.processes.versions import VersionsMissing, admit, store_versions
from headrace.projections.tables.statements import upsert_into
from headrace.serialization import CommandEnvelope, Serializer
from headrace.stores.database.parked import ParkedStore
from headrace.stores.database.tables import (
    parked_rows,
    process_commands,
    process_instances,
    process_journal,
    processes,
)
from headrace.subjects.hidden import hide_personal

__all__ = [
    "DONE",
    "PARKED_NAME",
    "SKIPPED",
    "WAITS",
    "Instance",
    "InstanceParking",
    "Outdated",
    "ReactionFailed",
    "Taken",
    "Work",
    "failure_of",
    "instance_of",
    "instances_query",
    "lock",
    "parked_instances",
    "progress_of",
    "read_instances",
    "take",
]

S = TypeVar("S", bound=BaseModel)

log = get_logger(__name__)

# The outcome of a stream, in the journal of an instance.
DONE: Final = "done"
WAITS: Final = "waits"
SKIPPED: Final = "skipped"

# The start of a process's name in the table `parked`.
PARKED_NAME: Final = "instances:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A stored instance: the columns of its table without the process, and `parked`.

    Attributes:
        parked: whether the instance is parked; its streams then wait.
    """

    instance: str
    state: str | None
    state_version: int
    undo: str
    ended: bool
    began_at: datetime
    changed_at: datetime
    last_event: str
    last_aggregate_id: str
    seen: int
    sent: int
    parked: bool = False


_STORED: Final = tuple(name for name in Instance.__dataclass_fields__ if name != "parked")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceParking:
    """How to park an instance whose handler raises.

    Attributes:
        room: how many instances of the process may be parked at once; None: any number.
        places: topic, queue and offset of each stream's message, by aggregate and command; a stream
            from the event store has none.
    """

    room: int | None = None
    places: Mapping[tuple[str, str], tuple[str, int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The streams are written; send these commands, in order, after the commit."""

    commands: tuple[CommandEnvelope, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """Nothing was written: the states of these instances have another `state_version`."""

    keys: frozenset[str]


class ReactionFailed(HeadraceError):
    """A handler raised; nothing was written.

    Attributes:
        key: the instance's key.
        aggregate_id: the stream's aggregate.
    """

    def __init__(self, key: str, aggregate_id: str, sentence: str) -> None:
        super().__init__(sentence)
        self.key = key
        self.aggregate_id = aggregate_id


def take(
    connection: Connection,
    *,
    process: Process[Any],
    streams: Sequence[EventStream],
    serializer: Serializer,
    now: datetime,
    parking: InstanceParking | None = None,
) -> Taken | Outdated | VersionsMissing:
    """Lets instances react to streams, within the caller's write transaction.

    Args:
        connection: in a transaction that can write.
        process: its handlers run.
        streams: the streams in the order in which they came; an aggregate's versions have no gap.
        serializer: encodes commands.
        now: the time that the instances store.
        parking: how to park an instance whose handler raises; None: raise `ReactionFailed` instead.

    Raises:
        ReactionFailed: a handler raised, and `parking` is None or too many instances are parked.
        DefinitionError: an event has no usable key.
    """
    lock(connection, process.name)
    admitted = admit(connection, process.name, streams)
    if isinstance(admitted, VersionsMissing):
        return admitted
    assigned = _assign(connection, process, admitted.streams)
    instances = read_instances(connection, process.name, {key for key, _ in assigned})
    outdated = {
        key
        for key, instance in instances.items()
        if instance.state_version != process.state_version and not instance.ended
    }
    if outdated:
        return Outdated(keys=frozenset(outdated))
    seen = _read_seen(connection, process.name, assigned)
    if parking is not None and parking.room is not None:
        left = parking.room - parked_instances(process.name).count(connection)
        parking = replace(parking, room=max(0, left))
    work = Work(process, instances, serializer, now, parking)
    for key, stream in assigned:
        mark = (key, stream.aggregate_id, stream.command_id)
        if mark in seen:
            continue
        seen.add(mark)
        work.take(key, stream)
    work.write(connection)
    store_versions(connection, process.name, admitted.versions)
    return Taken(commands=tuple(work.commands))


class Work(Generic[S]):
    """The changes of a transaction to some instances, collected in memory; `write` writes them.

    Args:
        process: its handlers run.
        instances: the stored instances by key; new ones are added.
        serializer: encodes commands.
        now: the time that the instances store.
        parking: how to park instances, with the room that is left; None: raise `ReactionFailed`.

    Attributes:
        commands: the commands to send, in order.
    """

    def __init__(
        self,
        process: Process[S],
        instances: dict[str, Instance],
        serializer: Serializer,
        now: datetime,
        parking: InstanceParking | None = None,
    ) -> None:
        self._parking = parking
        self._process = process
        self._instances = instances
        self._serializer = serializer
        self._now = now
        self._moved: set[str] = set()
        self._journal: list[dict[str, Any]] = []
        self._rows: list[dict[str, Any]] = []
        self._refused: list[tuple[str, str]] = []
        # By instance: the stream that parked it and the error; and how many more streams wait.
        self._failed: dict[str, tuple[EventStream, Exception]] = {}
        self._held: Counter[str] = Counter()
        self.commands: list[CommandEnvelope] = []

    def take(self, key: str, stream: EventStream) -> None:
        """Lets an instance react to a stream that it has not seen before."""
        before = self._instances.get(key)
        if before is not None and before.ended:
            return
        if before is not None and before.parked:
            self._held[key] += 1
            self._note(before, stream, WAITS)
            return
        try:
            handled = self.react(before, key, stream)
        except SubjectKeysAway:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises what it likes; raised or kept
            self._park(before or self._new(key, stream), stream, error)
        else:
            if handled is not None:
                self._note(handled, stream, DONE)

    def _park(self, instance: Instance, stream: EventStream, raised: Exception) -> None:
        error = hide_personal(raised, stream.events)
        key, sentence = instance.instance, failure_of(stream, error)
        if self._parking is None:
            raise ReactionFailed(key, stream.aggregate_id, sentence) from error
        if (room := self._parking.room) is not None and len(self._failed) >= room:
            full = f"as many instances as may be are parked, and now {key!r}: {sentence}"
            raise ReactionFailed(key, stream.aggregate_id, full) from error
        about = {"process": self._process.name, "instance": key, "error": sentence}
        log.error("process parks an instance", **about, exc_info=error)
        self._failed[key] = (stream, error)
        self._note(replace(instance, parked=True), stream, WAITS)

    def react(self, before: Instance | None, key: str, stream: EventStream) -> Instance | None:
        """Returns an instance after its reaction to a stream; adds its commands to `commands`.

        Returns None if no handler takes the stream. Raises any error of a handler.
        """
        progress = None if before is None else progress_of(self._process, before, self._serializer)
        rejection = stream.rejection
        if rejection is not None and not any(
            (one.message_name, one.message_version)
            == (rejection.command_name, rejection.command_version)
            for one in self._process.rejected_types
        ):
            self._refused.append((stream.command_id, f"{rejection.error}: {rejection.sentence}"))
            return None
        done = self._process.react(progress, key, stream)
        if done is None:
            return None
        after, envelopes = done
        instance = before or self._new(key, stream)
        rows = [
            command_row(
                self._process.name,
                key,
                instance.sent + place,
                envelope,
                self._serializer,
                self._now,
            )
            for place, envelope in enumerate(envelopes, start=1)
        ]
        moved = self.with_progress(instance, after)
        self._rows += rows
        self.commands += envelopes
        return replace(
            moved,
            changed_at=self._now,
            last_event=_name_of(stream),
            last_aggregate_id=stream.aggregate_id,
            sent=instance.sent + len(rows),
        )

    def with_progress(self, instance: Instance, progress: Progress[S]) -> Instance:
        """Returns an instance with another progress."""
        return replace(
            instance,
            state=None if progress.state is None else progress.state.model_dump_json(),
            state_version=self._process.state_version,
            undo=self._encode_undo(progress.undo),
            ended=progress.ended,
        )

    def put(self, instance: Instance) -> None:
        """Adds an instance to those that `write` writes."""
        self._instances[instance.instance] = instance
        self._moved.add(instance.instance)

    def write(self, connection: Connection) -> None:
        """Writes everything, in bulk."""
        name = self._process.name
        moved = [
            {"process": name, **_values_of(self._instances[key])} for key in sorted(self._moved)
        ]
        for statement, rows in (
            (upsert_into(process_instances, connection.dialect), moved),
            (process_journal.insert(), self._journal),
            # A row may exist: an instance that starts over sends the same commands again.
            (upsert_into(process_commands, connection.dialect), self._rows),
        ):
            if rows:
                connection.execute(statement, rows)
        for command_id, sentence in self._refused:
            refuse(connection, process=name, command_id=command_id, sentence=sentence)
        self._write_parked(connection)

    def _write_parked(self, connection: Connection) -> None:
        parked = parked_instances(self._process.name)
        for key, (stream, error) in self._failed.items():
            assert self._parking is not None, "nothing is parked without"
            parked.add(
                connection,
                key,
                error,
                now=self._now,
                place=self._parking.places.get((stream.aggregate_id, stream.command_id)),
                sentence=failure_of(stream, error),
            )
        for key, streams in self._held.items():
            parked.hold(connection, key, streams)

    def _note(self, instance: Instance, stream: EventStream, outcome: str) -> None:
        self._journal.append(
            {
                "process": self._process.name,
                "instance": instance.instance,
                "number": instance.seen + 1,
                "aggregate_id": stream.aggregate_id,
                "command_id": stream.command_id,
                "outcome": outcome,
            }
        )
        self.put(replace(instance, seen=instance.seen + 1))

    def _new(self, key: str, stream: EventStream) -> Instance:
        return Instance(
            instance=key,
            state=None,
            state_version=self._process.state_version,
            undo="[]",
            ended=False,
            began_at=self._now,
            changed_at=self._now,
            last_event=_name_of(stream),
            last_aggregate_id=stream.aggregate_id,
            seen=0,
            sent=0,
        )

    def _encode_undo(self, commands: Iterable[Any]) -> str:
        kept = derived_id("undo")
        return json.dumps(
            [
                self._serializer.encode_command(
                    CommandEnvelope(command=command, command_id=kept, correlation_id=kept)
                ).decode()
                for command in commands
            ]
        )


def progress_of(
    process: Process[S], instance: Instance, serializer: Serializer
) -> Progress[S] | None:
    """Returns the progress of a stored instance; None: it has handled no event yet.

    Raises:
        pydantic.ValidationError: its state does not fit the model; raise `state_version`.
    """
    if instance.state is None:
        return None
    return Progress(
        state=process.state.model_validate_json(instance.state),
        undo=tuple(
            serializer.decode_command(body.encode()).command for body in json.loads(instance.undo)
        ),
        ended=instance.ended,
    )


def lock(connection: Connection, process: str) -> None:
    """Makes other transactions of the process wait; on SQLite a write transaction does so by itself."""
    columns = processes.c
    row = select(columns.name).where(columns.name == process).with_for_update()
    if connection.execute(row).first() is None:
        connection.execute(upsert_into(processes, connection.dialect), {"name": process})
        connection.execute(row)


def read_instances(
    connection: Connection, process: str, keys: Collection[str]
) -> dict[str, Instance]:
    """Returns those instances that exist, by key."""
    if not keys:
        return {}
    columns = process_instances.c
    rows = connection.execute(
        instances_query().where(columns.process == process, columns.instance.in_(keys))
    ).mappings()
    return {row["instance"]: instance_of(row) for row in rows}


def instances_query() -> Select[Any]:
    """Selects instances, each with a column that says whether it is parked."""
    columns, parked = process_instances.c, parked_rows.c
    return select(process_instances, parked.number.is_not(None).label("parked")).outerjoin_from(
        process_instances,
        parked_rows,
        (parked.name == literal(PARKED_NAME) + columns.process)
        & (parked.generation == 0)
        & (parked.aggregate_id == columns.instance)
        & (parked.command_id == ""),
    )


def parked_instances(process: str) -> ParkedStore:
    """Returns the letters of a process's parked instances; a letter has the instance's key as its id."""
    return ParkedStore(f"{PARKED_NAME}{process}")


def failure_of(stream: EventStream, error: Exception) -> str:
    """Returns the sentence that says which stream an instance could not handle, and why."""
    return f"{_name_of(stream)} of {stream.aggregate_id}: {error!r}"


def instance_of(row: Any) -> Instance:
    """Returns the instance in a row of its table."""
    return Instance(**{name: row[name] for name in Instance.__dataclass_fields__})


def _values_of(instance: Instance) -> dict[str, Any]:
    # Not `asdict`: it copies every value, which takes a quarter of a batch's time.
    return {name: getattr(instance, name) for name in _STORED}


def _assign(
    connection: Connection, process: Process[Any], streams: Sequence[EventStream]
) -> list[tuple[str, EventStream]]:
    """Returns pairs of an instance's key and a stream for it, in the order of the streams."""
    rejected = [stream.command_id for stream in streams if stream.rejection is not None]
    senders = find_senders(connection, process.name, rejected)
    assigned: list[tuple[str, EventStream]] = []
    for stream in streams:
        if stream.rejection is None:
            assigned += [(key, stream) for key in process.keys_of(stream)]
        elif (sender := senders.get((stream.aggregate_id, stream.command_id))) is not None:
            assigned.append((sender, stream))
    return assigned


def _read_seen(
    connection: Connection, process: str, assigned: Iterable[tuple[str, EventStream]]
) -> set[tuple[str, str, str]]:
    marks = [(key, stream.aggregate_id, stream.command_id) for key, stream in assigned]
    if not marks:
        return set()
    columns = process_journal.c
    rows = connection.execute(
        select(columns.instance, columns.aggregate_id, columns.command_id).where(
            columns.process == process,
            tuple_(columns.instance, columns.aggregate_id, columns.command_id).in_(marks),
        )
    )
    return {(instance, aggregate, command) for instance, aggregate, command in rows}


def _name_of(stream: EventStream) -> str:
    if stream.rejection is not None:
        return stream.rejection.command_name
    return stream.events[-1].message_name if stream.events else ""
