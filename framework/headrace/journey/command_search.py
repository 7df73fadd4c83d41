"""
Finds a command wherever it may be: in the event store, parked, in its topic, or kept by a process.

    aggregate and id   an index of the event store, the key index of the broker
    an id alone        the newest that were stored, what is parked, what processes keep, the first that wait

Used by `command_trace` and `command_result`. It changes nothing.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from headrace.aggregates.command_directory import CommandDirectory, open_command_directory
from headrace.app import App
from headrace.domain.stream import EventStream
from headrace.domain.topics import CommandTopics, command_topic
from headrace.errors import DamagedStream
from headrace.journey.command_messages import command_messages, find_waiting, head_of
from headrace.journey.readers import kept_commands
from headrace.parked import Databases, open_databases
from headrace.settings import Settings
from headrace.stores.base import CommandLetter
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import NotPermitted
from headrace_mq.message import Record

__all__ = ["CommandSearch", "FoundCommand", "open_commands"]


@dataclass(slots=True)
class FoundCommand:
    """A command, and what is known of it.

    Attributes:
        aggregate_id: whose command it is; empty: not known.
        command_id: its id.
        name: registered name of its class; empty: not known.
        chain: the first command of its chain; empty: not known.
        stream: what it stored; None: nothing yet.
        damage: why what it stored cannot be read.
        letter: it is parked; None: it is not.
        messages: that brought it, as far as their topic keeps them.
    """

    aggregate_id: str
    command_id: str
    name: str = ""
    chain: str = ""
    stream: EventStream | None = None
    damage: str = ""
    letter: CommandLetter | None = None
    messages: Sequence[Record] = field(default_factory=tuple)

    @property
    def known(self) -> bool:
        """Whether the store, the letters or the broker has anything of it."""
        return bool(self.stream or self.damage or self.letter or self.messages)


@asynccontextmanager
async def open_commands(
    app: App, settings: Settings
) -> AsyncIterator[tuple[Databases, CommandDirectory]]:
    """Opens the databases of an application, and the commands of its event store, until the block ends.

    Args:
        app: the application.
        settings: name its databases, whose schemas are up to date.

    Raises:
        DefinitionError: a URL is not one of SQLite or PostgreSQL.
    """
    serializer = app.serializer_at(settings.event_store)
    try:
        async with (
            open_databases(settings, serializer) as databases,
            open_command_directory(settings.event_store, serializer) as directory,
        ):
            yield databases, directory
    finally:
        serializer.close()


class CommandSearch:
    """Finds commands of an application.

    Args:
        admin: asks the broker.
        app: the application.
        databases: its databases.
        directory: the commands of its event store.

    Attributes:
        topics: of the application's commands.
    """

    def __init__(
        self, admin: AdminClient, app: App, databases: Databases, directory: CommandDirectory
    ) -> None:
        self._admin = admin
        self._app = app
        self._databases = databases
        self._directory = directory
        self.topics = CommandTopics(app.name, app.command_types).chosen()

    async def aggregate_of(self, command_id: str) -> str:
        """Returns the aggregate of a command; empty: it is not found by its id alone."""
        place = await self._directory.find(command_id)
        if place is not None:
            return place.aggregate_id
        letter = await self._databases.letters.find_command(command_id)
        if letter is not None:
            return letter.aggregate_id
        async with self._databases.read_models.snapshot() as connection:
            kept = await connection.run_sync(kept_commands, self._app, [command_id])
        if kept:
            return str(kept[command_id].aggregate_id)
        waiting = await self._waiting(command_id)
        return "" if waiting is None else waiting.key

    async def look(self, aggregate_id: str, command_id: str) -> FoundCommand:
        """Returns what is known of a command.

        Args:
            aggregate_id: whose command it is.
            command_id: its id.
        """
        found = FoundCommand(aggregate_id, command_id)
        try:
            found.stream = await self._databases.store.find_command(aggregate_id, command_id)
        except DamagedStream as error:
            found.damage = str(error)
        recorded = None if found.stream is None else found.stream.recorded_at
        if aggregate_id:
            found.messages = await command_messages(
                self._admin, self.topics, aggregate_id, command_id, recorded
            )
        if found.stream is None and not found.damage:
            found.letter = await self._databases.letters.find_command(command_id, aggregate_id)
        if aggregate_id and not found.known:
            # It may wait behind more messages of its aggregate than one search of the key returns.
            with suppress(NotPermitted):
                waiting = await self._waiting(command_id)
                found.messages = [waiting] if waiting and waiting.key == aggregate_id else []
        if found.messages and (head := head_of(found.messages[0])) is not None:
            found.name, found.chain = head.name, head.correlation_id
        elif found.letter is not None:
            found.name = found.letter.name
        elif found.stream is not None:
            found.chain = found.stream.correlation_id
            found.name = found.stream.rejection.command_name if found.stream.rejection else ""
        return found

    async def _waiting(self, command_id: str) -> Record | None:
        """The message of a command among the first that wait."""
        group = command_topic(self._app.name)
        return await find_waiting(self._admin, group, self.topics, command_id)
