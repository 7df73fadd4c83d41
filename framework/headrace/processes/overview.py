"""
The instances of processes, for whoever watches them: what runs, what stands still, and why.

    parked     a handler raised: what comes for the instance waits
    rejected   a command that it sent was rejected, and it has no handler for that
    overdue    a `Later` of its was due, and nothing has happened since

Sits between: the command line and applications, and the tables. Writes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, exists, or_, select

from headrace._runtime.clock import Clock, SystemClock
from headrace.errors import InstanceNotFound
from headrace.processes.instances import (
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

__all__ = ["OVERDUE_MS", "PendingCommand", "ProcessInstance", "Processes", "Stuck"]

# After a command is due, this long for it to be delivered and for what it does to come back.
OVERDUE_MS: Final = 60_000
# Of one list.
_INSTANCES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommand:
    """A command of an instance that is not due yet, or not sent.

    Attributes:
        name: the command's.
        aggregate_id: whom it is for.
        due: when the queue delivers it, about, after a delay; None: at once.
    """

    name: str
    aggregate_id: str
    due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """Why an instance stands still.

    Attributes:
        kind: "parked", "rejected" or "overdue".
        sentence: what happened.
        traceback: where in the code, of what is parked.
    """

    kind: str
    sentence: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInstance:
    """Where one instance stands.

    Attributes:
        process: the process's name.
        key: of the instance.
        state: what it remembers, as JSON values; None: its first event could not be handled.
        ended: whether it is over.
        began_at: when its first event came.
        changed_at: when its last one did.
        last_event: the last event's name, or the name of the last command that was rejected.
        last_aggregate_id: whose event that was.
        seen: streams that concerned it.
        waiting: those of them that wait to be handled, because it is parked.
        pending: commands that are not due yet, or not sent.
        stuck: why it stands still; empty: it does not.
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


class Processes:
    """Reads the instances of the processes in one database; each call sees one moment.

    Args:
        read_models: the database that keeps them.
        clock: tells what is overdue.
        overdue_ms: how long after it was due a `Later` may be without effect.
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
            process: of this one only.
            stuck: only those that stand still.
            ended: those that have ended, too.
            after: process and key after which to begin: the last ones of the page before.
            limit: how many at most; 1,000 is the most.
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
        """Returns the key of a parked instance for which waits what a command did; None: there is none."""
        journal = process_journal.c
        query = select(journal.instance).where(
            journal.process == process,
            journal.aggregate_id == aggregate_id,
            journal.command_id == command_id,
            journal.outcome == WAITS,
        )
        async with self._read_models.snapshot() as connection:
            return await connection.scalar(query.limit(1))

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
