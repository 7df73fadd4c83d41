"""
Lists the instances of processes: their state, and why an instance is stuck.

    parked     a handler raised; new events for the instance wait
    rejected   a command of the instance was rejected, and the process has no handler for that
    overdue    a `Later` of the instance was due, and nothing has happened since

Used by the command line, the alarms and your programs. Reads the tables, and writes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, exists, func, or_, select

from headrace._runtime.clock import Clock, SystemClock
from headrace.errors import InstanceNotFound
from headrace.processes.instances import (
    PARKED_NAME,
    WAITS,
    Instance,
    instance_of,
    instances_query,
    parked_instances,
)
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.parked import Letter
from headrace.stores.database.tables import (
    parked_rows,
    process_commands,
    process_instances,
    process_journal,
)

__all__ = [
    "OVERDUE_MS",
    "PendingCommand",
    "ProcessCount",
    "ProcessInstance",
    "ProcessStep",
    "Processes",
    "Stuck",
    "parked_behind_query",
]

# How long after a command is due its effect may take: delivery, handling, and an event that comes back.
OVERDUE_MS: Final = 60_000
# Most instances in one list.
_INSTANCES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommand:
    """A command of an instance that is not due yet, or not sent.

    Attributes:
        name: the command's name.
        aggregate_id: whom it is for.
        due: when the queue delivers it, about, after a delay; None: at once.
    """

    name: str
    aggregate_id: str
    due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """Why an instance is stuck.

    Attributes:
        kind: "parked", "rejected" or "overdue".
        sentence: what happened.
        traceback: the traceback of the handler's error, if it is parked.
    """

    kind: str
    sentence: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInstance:
    """One instance of a process.

    Attributes:
        process: the process's name.
        key: the instance's key.
        state: its state, as JSON values; None: its first event could not be handled.
        ended: whether it has ended.
        began_at: when its first event came.
        changed_at: when its last event came.
        last_event: the last event's name, or the name of the last command that was rejected.
        last_aggregate_id: the aggregate of that event or command.
        seen: how many streams came for it.
        waiting: how many of them wait, because it is parked.
        pending: commands that are not due yet, or not sent.
        stuck: why it is stuck; empty: it is not.
    """

    process: str
    key: str
    state: Any
    ended: bool
    began_at: datetime
    changed_at: datetime
    last_event: str
    last_aggregate_id: str
    seen: int
    waiting: int
    pending: tuple[PendingCommand, ...]
    stuck: tuple[Stuck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCount:
    """How many instances of a process there are.

    Attributes:
        process: its name.
        running: those that have not ended, parked ones included.
        parked: of these, those whose handler fails.
        ended: those that have ended and are not deleted yet.
    """

    process: str
    running: int
    parked: int
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStep:
    """What an instance has seen: one line of its journal.

    Attributes:
        number: its place, from 1.
        aggregate_id: whose command it was.
        command_id: the command.
        outcome: "done", "waits" or "skipped".
    """

    number: int
    aggregate_id: str
    command_id: str
    outcome: str


class Processes:
    """Reads the instances of the processes in one database; each call reads one snapshot.

    Args:
        read_models: the database of the instances.
        clock: says what is overdue.
        overdue_ms: how long after it was due a `Later` may be without effect, in milliseconds.
    """

    def __init__(
        self, read_models: ReadModels, *, clock: Clock | None = None, overdue_ms: int = OVERDUE_MS
    ) -> None:
        self._read_models = read_models
        self._clock = clock or SystemClock()
        self._overdue = timedelta(milliseconds=overdue_ms)

    async def all(
        self,
        process: str | None = None,
        *,
        stuck: bool = False,
        ended: bool = False,
        after: tuple[str, str] | None = None,
        limit: int = _INSTANCES_MAX,
    ) -> list[ProcessInstance]:
        """Returns instances in the order of process and key.

        Args:
            process: return only this process's instances.
            stuck: return only instances that are stuck.
            ended: return also instances that have ended.
            after: process and key of the last instance on the page before.
            limit: how many at most, up to 1,000.
        """
        columns, now = process_instances.c, self._clock.now()
        query = instances_query().order_by(columns.process, columns.instance)
        if process is not None:
            query = query.where(columns.process == process)
        if not ended:
            query = query.where(~columns.ended)
        if stuck:
            query = query.where(~columns.ended, self._is_stuck(now))
        if after is not None:
            last_process, last_key = after
            query = query.where(
                or_(
                    columns.process > last_process,
                    (columns.process == last_process) & (columns.instance > last_key),
                )
            )
        query = query.limit(min(limit, _INSTANCES_MAX))
        async with self._read_models.snapshot() as connection:
            return await connection.run_sync(self._read, query, now)

    async def counts(self) -> list[ProcessCount]:
        """Returns how many instances each process has, by name."""
        columns, name = process_instances.c, parked_rows.c.name
        number = func.count().label("number")
        instances = select(columns.process, columns.ended, number).group_by(
            columns.process, columns.ended
        )
        letters = (
            select(name, number).where(name.startswith(PARKED_NAME, autoescape=True)).group_by(name)
        )
        async with self._read_models.snapshot() as connection:
            found = (await connection.execute(instances)).all()
            parked: dict[str, int] = {row[0]: row[1] for row in await connection.execute(letters)}
        numbers = {(process, bool(ended)): count for process, ended, count in found}
        return [
            ProcessCount(
                process=process,
                running=numbers.get((process, False), 0),
                parked=parked.get(f"{PARKED_NAME}{process}", 0),
                ended=numbers.get((process, True), 0),
            )
            for process in sorted({process for process, _ in numbers})
        ]

    async def steps(
        self, process: str, key: str, *, after: int = 0, limit: int = _INSTANCES_MAX
    ) -> list[ProcessStep]:
        """Returns what an instance has seen, in order.

        Args:
            process: its process's name.
            key: its key.
            after: the number of the last step on the page before.
            limit: how many at most, up to 1,000.
        """
        journal = process_journal.c
        query = (
            select(journal.number, journal.aggregate_id, journal.command_id, journal.outcome)
            .where(journal.process == process, journal.instance == key, journal.number > after)
            .order_by(journal.number)
            .limit(min(limit, _INSTANCES_MAX))
        )
        async with self._read_models.snapshot() as connection:
            found = (await connection.execute(query)).all()
        return [
            ProcessStep(number=number, aggregate_id=aggregate, command_id=command, outcome=outcome)
            for number, aggregate, command, outcome in found
        ]

    async def get(self, process: str, key: str) -> ProcessInstance:
        """Returns an instance; raises `InstanceNotFound`."""
        columns = process_instances.c
        query = instances_query().where(columns.process == process, columns.instance == key)
        async with self._read_models.snapshot() as connection:
            found = await connection.run_sync(self._read, query, self._clock.now())
        if not found:
            raise InstanceNotFound(f"process {process} has no instance {key!r}")
        return found[0]

    def _is_stuck(self, now: datetime) -> ColumnElement[bool]:
        columns, commands = process_instances.c, process_commands.c
        mine = (commands.process == columns.process) & (commands.instance == columns.instance)
        return or_(
            parked_rows.c.number.is_not(None),
            exists().where(mine, commands.refused.is_not(None)),
            exists().where(
                mine, commands.due < now - self._overdue, commands.due >= columns.changed_at
            ),
        )

    def _read(self, connection: Connection, query: Any, now: datetime) -> list[ProcessInstance]:
        return [
            self._describe(connection, row["process"], instance_of(row), now)
            for row in connection.execute(query).mappings().all()
        ]

    async def parked_behind(self, process: str, aggregate_id: str, command_id: str) -> str | None:
        """Returns the key of a parked instance for which a command's stream waits; None: there is none."""
        parked = parked_rows.c
        names = select(parked.aggregate_id).where(
            parked.name == f"{PARKED_NAME}{process}", parked.generation == 0
        )
        async with self._read_models.snapshot() as connection:
            keys = (await connection.scalars(names)).all()
            for first in range(0, len(keys), _INSTANCES_MAX):
                some = keys[first : first + _INSTANCES_MAX]
                query = parked_behind_query(process, aggregate_id, command_id, some)
                key: str | None = await connection.scalar(query)
                if key is not None:
                    return key
        return None

    def _describe(
        self, connection: Connection, process: str, instance: Instance, now: datetime
    ) -> ProcessInstance:
        columns = process_commands.c
        commands = connection.execute(
            select(process_commands)
            .where(columns.process == process, columns.instance == instance.instance)
            .order_by(columns.number)
        ).all()
        letter = None
        if instance.parked:
            letter = parked_instances(process).find(connection, instance.instance)
        return ProcessInstance(
            process=process,
            key=instance.instance,
            state=None if instance.state is None else msgspec.json.decode(instance.state),
            ended=instance.ended,
            began_at=instance.began_at,
            changed_at=instance.changed_at,
            last_event=instance.last_event,
            last_aggregate_id=instance.last_aggregate_id,
            seen=instance.seen,
            waiting=0 if letter is None else letter.held,
            pending=tuple(
                PendingCommand(name=one.name, aggregate_id=one.aggregate_id, due=one.due)
                for one in commands
                if not one.sent or (one.due is not None and one.due > now)
            ),
            stuck=() if instance.ended else tuple(self._reasons(instance, letter, commands, now)),
        )

    def _reasons(
        self, instance: Instance, letter: Letter | None, commands: Sequence[Any], now: datetime
    ) -> list[Stuck]:
        reasons = []
        if letter is not None:
            reasons.append(Stuck(kind="parked", sentence=letter.error, traceback=letter.traceback))
        for one in commands:
            if one.refused is not None:
                reasons.append(
                    Stuck(
                        kind="rejected", sentence=f"{one.name} to {one.aggregate_id}: {one.refused}"
                    )
                )
            elif one.due is not None and instance.changed_at <= one.due < now - self._overdue:
                reasons.append(
                    Stuck(
                        kind="overdue",
                        sentence=f"{one.name} to {one.aggregate_id} was due at"
                        f" {one.due:%Y-%m-%d %H:%M:%S} UTC, and nothing has come since",
                    )
                )
        return reasons


def parked_behind_query(
    process: str, aggregate_id: str, command_id: str, keys: Sequence[str]
) -> Select[Any]:
    """Selects the key of one of some parked instances for which a command's stream waits.

    It names the instances, so that the table's key serves it: the journal has no index of commands.
    """
    journal = process_journal.c
    return (
        select(journal.instance)
        .where(
            journal.process == process,
            journal.instance.in_(keys),
            journal.aggregate_id == aggregate_id,
            journal.command_id == command_id,
            journal.outcome == WAITS,
        )
        .limit(1)
    )
