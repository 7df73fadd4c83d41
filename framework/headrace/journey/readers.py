"""
How far each reader of an application's events is with what one command did: applied, parked, paused, or it waits.

    projections        by the version of the aggregate that their live table has
    event handlers     by the version that they have handled
    process managers   by what their instances have seen, and by the group's offset; with the commands that they sent

Used by `trace`; reads the database of read models and asks the broker. It changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, select
from sqlalchemy.exc import SQLAlchemyError

from headrace._runtime.ids import derived_id
from headrace.app import App
from headrace.domain.stream import EventStream
from headrace.errors import ProjectionNotFound
from headrace.journey.groups import NO_ANSWER, standing_of, stopped, unanswered
from headrace.journey.hop import Journey, page_of
from headrace.journey.process_steps import seen_by
from headrace.journey.told_times import NOT_TOLD, ToldTimes, add_delivered, told_times
from headrace.processes.instances import WAITS, parked_instances
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.processes.progress import ProcessProgress
from headrace.projections.definition.projection import Projection, projection_group
from headrace.projections.tables.generation_tables import find_all
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.parked import Letter, ParkedStore
from headrace.stores.database.tables import process_commands, projection_versions
from headrace_mq.admin.client import AdminClient
from headrace_mq.message import Record

__all__ = ["COMMANDS_MAX", "Reaction", "ReaderHops", "kept_commands", "kept_query"]

# Commands of one reaction that are looked for.
COMMANDS_MAX: Final = 20


class Reaction:
    """A process manager, or an instance of a process, that may have sent commands because of a stream.

    Args:
        manager: its name.
        instance: the key of the instance; empty: it has none.
        hop: the number of its hop.
    """

    def __init__(self, manager: str, instance: str, hop: int) -> None:
        self.manager = manager
        self.instance = instance
        self.hop = hop

    def command_ids(self, stream: EventStream) -> list[str]:
        """Returns the ids that its first commands have: they are derived from what it reacted to."""
        whose = (self.manager, self.instance) if self.instance else (self.manager,)
        cause = (stream.aggregate_id, stream.command_id)
        return [derived_id(*whose, *cause, str(place)) for place in range(COMMANDS_MAX)]


class ReaderHops:
    """Adds a hop for each reader of an application.

    Args:
        app: has the readers.
        models: the database of their progress.
        admin: asks the broker.
        journey: gets the hops.
        stream: what the command did.
        record: its message in the event topic; None: it is not there.
        after: the hop that the readers follow.
    """

    def __init__(
        self,
        *,
        app: App,
        models: ReadModels,
        admin: AdminClient,
        journey: Journey,
        stream: EventStream,
        record: Record | None,
        after: int,
    ) -> None:
        self._app = app
        self._models = models
        self._admin = admin
        self._journey = journey
        self._stream = stream
        self._record = record
        self._after = after
        self._hidden = ""
        self._times: Mapping[str, ToldTimes] = {}

    async def add(self, hidden: str = "") -> list[Reaction]:
        """Adds all of them; returns those that may have sent commands.

        Args:
            hidden: what the user lacks to see whether the message is in the topic; empty: nothing.
        """
        self._hidden = hidden
        definition = self._app.definition
        self._times = await told_times(self._admin, self._record)
        if self._stream.version is not None:
            for projection in definition.projections:
                await self._projection(projection)
            for handlers in definition.processors:
                await self._handlers(handlers.name)
        reactions: list[Reaction] = []
        for manager in definition.managers:
            reactions += await self._manager(manager)
        return reactions

    async def _projection(self, projection: Projection[Any]) -> None:
        name = projection.name
        page = page_of("/projection", {"name": name})
        try:
            state = await self._models.state(name)
        except ProjectionNotFound as error:
            self._add(
                "applied", name, page, "", state="stopped", cause="no consumer", detail=str(error)
            )
            return
        async with self._models.snapshot() as connection:
            version, letter = await connection.run_sync(
                self._standing, ParkedStore(name, state.generation), state.generation
            )
            origins = await find_all(connection, name)
        obstacle = state.obstacle(projection, origins)
        group = projection_group(self._app.name, name, state.version)
        told: dict[str, Any]
        if self._has(version):
            told = {"detail": f"its table has version {version} of {self._stream.aggregate_id}"}
        elif letter is not None:
            told = _parked(letter)
            page = page_of("/parked", {"processor": f"projection:{name}"})
        elif state.paused_at is not None:
            since = f"{state.paused_at:%Y-%m-%d %H:%M:%S}"
            told = stopped("projection paused", f"it is paused since {since} UTC; resume it")
        elif obstacle is not None:
            told = stopped("projection waits", obstacle)
        else:
            told = await self._waiting(group)
            if self._record is not None and told["state"] == "waits":
                offsets = await self._models.offsets(name, state.generation)
                behind = self._record.offset - offsets.get(
                    (self._record.queue.topic, self._record.queue.queue_id), 0
                )
                told["detail"] = (
                    f"{max(0, behind):,} messages of the queue before it are not applied"
                )
        self._add("applied", name, page, group, **told)

    async def _handlers(self, name: str) -> None:
        group = f"{self._app.name}.handlers.{name}"
        page = page_of("/group", {"group": group})
        told: dict[str, Any]
        async with self._models.snapshot() as connection:
            version, letter = await connection.run_sync(
                self._standing, ParkedStore(f"handlers:{name}"), 0
            )
        if self._has(version):
            told = {"detail": f"version {version} of {self._stream.aggregate_id} is handled"}
        elif letter is not None:
            told = _parked(letter)
            page = page_of("/parked", {"processor": f"handlers:{name}"})
        else:
            told = await self._waiting(group)
        self._add("handled", name, page, group, **told)

    async def _manager(self, manager: Process[Any] | ProcessManager) -> list[Reaction]:
        found: list[Reaction] = []
        name, keyless = manager.name, ""
        group = f"{self._app.name}.process.{name}"
        told: dict[str, Any]
        if isinstance(manager, Process):
            async with self._models.snapshot() as connection:
                seen, keyless = await connection.run_sync(self._journal, manager)
            after = self._delivered(group) if seen else self._after
            for instance, outcome, letter in seen:
                told = {"detail": outcome}
                page = page_of("/process", {"name": name, "key": instance})
                if outcome == WAITS and letter is not None:
                    told = _parked(letter)
                hop = self._add("reacted", f"{name} {instance}", page, group, after, **told)
                found.append(Reaction(name, instance, hop))
            if found:
                return found
        page = page_of("/group", {"group": group})
        async with self._models.snapshot() as connection:
            letter = await connection.run_sync(
                ProcessProgress(name).parked.find, self._stream.aggregate_id
            )
        if letter is not None and letter.version < (self._stream.version or 0):
            page = page_of("/parked", {"processor": f"process:{name}"})
            told = _parked(letter)
        else:
            told = await self._waiting(group)
        if told.get("state", "done") == "done" and isinstance(manager, Process):
            told["detail"] = keyless or self._unseen()
        return [Reaction(name, "", self._add("reacted", name, page, group, **told))]

    def _unseen(self) -> str:
        """What to say where no instance has the stream; an earlier version's keys may have led to others."""
        by_key = self._stream.rejection is None
        return f"no instance reacts to it{', by the keys of this version' if by_key else ''}"

    async def _waiting(self, group: str) -> dict[str, Any]:
        """Where a group stands that has not said otherwise that it is done."""
        if self._hidden:
            return {"state": "unknown", "cause": "not permitted", "detail": self._hidden}
        if self._record is None:
            return {"state": "waits", "cause": "not published", "detail": "it is not in the topic"}
        try:
            told = await standing_of(self._admin, group, self._record)
        except NO_ANSWER as error:
            return unanswered(error)
        if told["state"] == "unknown":
            told |= {"state": "waits", "cause": "waits its turn"}
        return told

    def _delivered(self, group: str) -> int:
        """Adds when a group got the message, if it told; returns the hop that its next one follows."""
        return add_delivered(self._journey, self._after, "reader", group, self._times)

    def _add(
        self, step: str, name: str, page: str, group: str, after: int | None = None, **more: Any
    ) -> int:
        """Adds a reader's hop; without `after` behind the delivery to its group."""
        if more.get("state", "done") == "done":
            more["at_ms"] = self._times.get(group, NOT_TOLD).done_ms
        after = self._delivered(group) if after is None else after
        return self._journey.add(after, "reader", step, name, page=page, **more)

    def _has(self, version: int | None) -> bool:
        return version is not None and version >= (self._stream.version or 0)

    def _standing(
        self, connection: Connection, parked: ParkedStore, generation: int
    ) -> tuple[int | None, Letter | None]:
        columns, aggregate_id = projection_versions.c, self._stream.aggregate_id
        version = connection.scalar(
            select(columns.version).where(
                columns.name == parked.name,
                columns.generation == generation,
                columns.aggregate_id == aggregate_id,
            )
        )
        return version, parked.find(connection, aggregate_id)

    def _journal(
        self, connection: Connection, process: Process[Any]
    ) -> tuple[Sequence[tuple[str, str, Letter | None]], str]:
        """The instances that have seen the stream, and why they are not known, if so."""
        try:
            rows = seen_by(connection, process, self._stream)
        except SQLAlchemyError:
            raise
        except Exception as error:  # noqa: BLE001 - what finds a key is code of the application
            # Its text may hold what is in the event; who sees the journey may not see that.
            why = f"the function for keys raised {type(error).__name__}"
            return [], f"its instances are not known: {why}"
        parked = parked_instances(process.name)
        return [(key, outcome, parked.find(connection, key)) for key, outcome in rows], ""


def kept_commands(connection: Connection, app: App, command_ids: Sequence[str]) -> dict[str, Any]:
    """Returns the rows of commands that processes of an application keep, by command id.

    Args:
        connection: to the read models.
        app: the application.
        command_ids: which ones.
    """
    rows = connection.execute(kept_query(app, command_ids)).all()
    return {row.command_id: row for row in rows}


def kept_query(app: App, command_ids: Sequence[str]) -> Select[Any]:
    """Returns the statement of `kept_commands`: it names the processes, so that the table's key serves it."""
    columns = process_commands.c
    processes = [one.name for one in app.definition.managers if isinstance(one, Process)]
    return select(
        columns.process, columns.command_id, columns.instance, columns.name,
        columns.aggregate_id, columns.due, columns.sent, columns.refused,
    ).where(columns.process.in_(processes), columns.command_id.in_(command_ids))  # fmt: skip


def _parked(letter: Letter) -> dict[str, Any]:
    why = f"{letter.error_name}: {letter.error}" if letter.error_name else letter.error
    return stopped("parked", f"{why}; retry or skip it")
