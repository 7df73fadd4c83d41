"""
Everything that an application has parked, commands and events: listed, retried, skipped.

    commands           a command that kept failing, and those that are held behind it
    projection:NAME    an aggregate with an event that the projection cannot apply
    handlers:NAME      an aggregate with an event that the event handlers cannot handle
    process:NAME       an aggregate with an event that a process manager cannot react to
    instances:NAME     an instance of a process whose handler raises

Used by operators, by the command line or in a program; uses the parts that retry and skip what they
parked. It never knows a subscription.
"""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from headrace.bus import CommandBus
from headrace.domain.message import Command
from headrace.errors import HeadraceError, LetterNotFound
from headrace.handlers.event_handlers import EventHandlers
from headrace.letters import CommandLetters
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.projections.definition.projection import Projection
from headrace.resources.parameters import Bind
from headrace.resources.resources import OpenResources
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.stores.base import CommandLetter, CommandLetterStore, EventStore, LetterState
from headrace.transports.base import Transport

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace.projections.tables.read_models import ReadModels
    from headrace.stores.database.parked import Letter

__all__ = [
    "COMMANDS",
    "KINDS",
    "Parked",
    "ParkedEntry",
    "ParkingApp",
    "open_databases",
    "open_parked",
    "plain_entry",
    "processor_of",
]

COMMANDS: Final = "commands"
# What a processor's name begins with, up to the colon.
KINDS: Final = (COMMANDS, "projection", "handlers", "process", "instances")

# Commands read in one statement: a page takes little memory.
_PAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEntry:
    """One thing that could not be handled, or that waits behind such a thing.

    Attributes:
        processor: what parked it: "commands", "projection:NAME", "handlers:NAME", "process:NAME" or
            "instances:NAME".
        aggregate_id: whose command or event it is; of an instance its key.
        command_id: the command's id; empty where events wait.
        name: of the command; empty where events wait.
        state: "parked"; of commands "holding" if later ones are held behind it, "held" if it is one
            of those.
        parked_at: since when.
        attempts: how often it has been parked, retries included.
        waiting: messages that wait, the one that failed included.
        version: of the aggregate, the last one that was handled; None: it does not tell.
        place: topic, queue and offset of the message that failed; None: it is not known.
        error: the error's name; empty where it was not kept.
        sentence: what happened.
        traceback: where in the code, without values; empty where none was kept.
        letter: a command as it came through the queue; None where events wait.
    """

    processor: str
    aggregate_id: str
    command_id: str = ""
    name: str = ""
    state: LetterState = LetterState.PARKED
    parked_at: datetime
    attempts: int
    waiting: int = 1
    version: int | None = None
    place: tuple[str, int, int] | None = None
    error: str = ""
    sentence: str
    traceback: str = ""
    letter: CommandLetter | None = None


def plain_entry(entry: ParkedEntry) -> dict[str, object]:
    """Returns an entry as JSON values, without its message and its traceback.

    Args:
        entry: as it was listed.
    """
    topic, queue_id, offset = entry.place or (None, None, None)
    return {
        "processor": entry.processor,
        "aggregate_id": entry.aggregate_id,
        "command_id": entry.command_id,
        "command": entry.name,
        "state": entry.state.value,
        "parked_at": entry.parked_at.isoformat(),
        "attempts": entry.attempts,
        "waiting": entry.waiting,
        "version": entry.version,
        "topic": topic,
        "queue_id": queue_id,
        "offset": offset,
        "error": entry.error,
        "sentence": entry.sentence,
    }


class ParkingApp(Protocol):
    """What is asked of an application: its parts, by their names."""

    name: str

    @property
    def command_types(self) -> Collection[type[Command]]:
        """The commands that it handles."""
        ...

    def serializer_at(self, event_store: str | None) -> Any:
        """Returns what knows its messages, and keys in the database of the events."""
        ...

    def projection(self, name: str) -> Projection[Any]:
        """Returns a projection; raises `ProjectionNotFound`."""
        ...

    def event_handlers(self, processor: str) -> EventHandlers:
        """Returns the handlers of a processor; raises `EventHandlerError`."""
        ...

    def process(self, name: str) -> Process[Any]:
        """Returns a process with a state; raises `ProcessError`."""
        ...

    def process_manager(self, name: str) -> "ProcessManager | Process[Any]":
        """Returns a process manager of either kind; raises `ProcessError`."""
        ...

    def client(self, settings: Settings) -> AbstractAsyncContextManager[CommandBus]:
        """Connects a command bus."""
        ...


class _Letters(Protocol):
    """The letters of one reader of events."""

    async def retry(self, aggregate_id: str) -> "Letter | None": ...

    async def skip(self, aggregate_id: str) -> "Letter | None": ...


class Parked:
    """What one application has parked; may be used while it runs, here or in another process.

    Args:
        app: knows the parts by name.
        commands: the commands that were parked.
        read_models: the database with everything else that was.
        store: has the events that wait.
        serializer: keeps commands of processes.
        bus: takes the commands of process managers without a state; None: these are only listed.
        resources: what handlers get besides events; opened when handlers are to be called.
    """

    def __init__(
        self,
        app: ParkingApp,
        commands: CommandLetters,
        read_models: "ReadModels",
        store: EventStore,
        serializer: Serializer,
        bus: CommandBus | None,
        resources: OpenResources | None = None,
    ) -> None:
        self._app = app
        self._commands = commands
        self._models = read_models
        self._store = store
        self._serializer = serializer
        self._bus = bus
        self._resources = resources

    async def read(
        self,
        *,
        processor: str | None = None,
        aggregate_id: str | None = None,
        command_id: str | None = None,
    ) -> list[ParkedEntry]:
        """Returns what is parked: commands in their order, then the oldest of each processor first.

        Args:
            processor: by this one only.
            aggregate_id: of this aggregate, or the instance of this key, only.
            command_id: this command only.
        """
        found = await self._of_commands() if processor in {None, COMMANDS} else []
        if processor != COMMANDS:
            async with self._models.snapshot() as connection:
                found += await connection.run_sync(_of_readers)
        return [
            each
            for each in found
            if processor in {None, each.processor}
            and aggregate_id in {None, each.aggregate_id}
            and command_id in {None, each.command_id}
        ]

    def needs_broker(self, entry: ParkedEntry) -> bool:
        """Whether taking it up needs the broker."""
        kind, _, name = entry.processor.partition(":")
        if kind == COMMANDS:
            return True
        return kind == "process" and isinstance(self._app.process_manager(name), ProcessManager)

    async def retry(self, entry: ParkedEntry, *, timeout_ms: int = 30_000) -> ParkedEntry | None:
        """Handles what waits, with the code of now; returns None, or what is still parked.

        A command is run by the running application; everything else is handled here.

        Args:
            entry: as it was listed.
            timeout_ms: longest wait for the application to take up a command.

        Raises:
            LetterNotFound, InstanceNotFound: it is parked no longer.
            CommandTimeout: no process of the application took the command up in time.
            HeadraceError: a command is held behind another one; the broker is needed and was not
                named; or more comes than is handled, try again.
        """
        if entry.letter is not None:
            left = await self._commands.retry(entry.letter.number, timeout_ms=timeout_ms)
            return None if left is None else _of_command(left)
        kind, _, name = entry.processor.partition(":")
        letter = await (await self._letters(kind, name)).retry(entry.aggregate_id)
        return None if letter is None else _of_letter(entry.processor, letter)

    async def skip(self, entry: ParkedEntry) -> ParkedEntry | None:
        """Leaves the one command or change out that failed; then as `retry`.

        Returns None, or what is still parked, because another change fails, too.

        Raises:
            LetterNotFound, InstanceNotFound, HeadraceError: as `retry`.
        """
        if entry.letter is not None:
            await self._commands.skip(entry.letter.number)
            return None
        kind, _, name = entry.processor.partition(":")
        letter = await (await self._letters(kind, name)).skip(entry.aggregate_id)
        return None if letter is None else _of_letter(entry.processor, letter)

    async def _of_commands(self) -> list[ParkedEntry]:
        found: list[CommandLetter] = []
        while page := await self._commands.read(
            after=found[-1].number if found else 0, limit=_PAGE
        ):
            found += page
        return [_of_command(each) for each in found]

    async def _bind(self) -> Bind:
        if self._resources is None:
            return lambda handler: handler
        await self._resources.open()
        return self._resources.bind

    async def _letters(self, kind: str, name: str) -> _Letters:
        from headrace.handlers.letters import HandlerLetters
        from headrace.processes.letters import ProcessLetters, ProcessManagerLetters
        from headrace.processes.stuck import StuckInstances
        from headrace.projections.letters import Letters

        if kind == "projection":
            return Letters(self._app.projection(name), self._models, self._store)
        if kind == "handlers":
            handlers = self._app.event_handlers(name).bound(await self._bind())
            return HandlerLetters(handlers, self._models, self._store)
        if kind == "instances":
            process = self._app.process(name)
            return StuckInstances(process, self._models, self._store, self._serializer)
        if kind != "process":
            raise LetterNotFound(f"there is no processor {kind}:{name}")
        manager = self._app.process_manager(name)
        if isinstance(manager, Process):
            return ProcessLetters(manager, self._models, self._store, self._serializer)
        if self._bus is None:
            raise HeadraceError(f"name the broker: it takes the commands of {name}")
        manager = manager.bound(await self._bind())
        return ProcessManagerLetters(
            manager, self._bus, self._models, self._store, self._serializer
        )


class Databases(NamedTuple):
    """What an application keeps: its events, its parked commands, and the rows of its projections."""

    store: EventStore
    letters: CommandLetterStore
    read_models: "ReadModels"


@asynccontextmanager
async def open_databases(settings: Settings, serializer: Serializer) -> AsyncIterator[Databases]:
    """Opens the databases of an application until the block ends.

    Raises:
        SchemaOutOfDate: a database is behind; the sentence says the command to run.
        sqlalchemy.exc.SQLAlchemyError, OSError: a database cannot be reached.
    """
    from headrace.projections.tables.read_models import ReadModels
    from headrace.stores.open import open_command_letters, open_event_store

    async with AsyncExitStack() as stack:
        store = await open_event_store(settings.event_store, serializer)
        stack.push_async_callback(store.aclose)
        letters = await open_command_letters(settings.event_store)
        stack.push_async_callback(letters.aclose)
        read_models = ReadModels(settings.read_models)
        stack.push_async_callback(read_models.aclose)
        yield Databases(store, letters, read_models)


@asynccontextmanager
async def open_parked(
    app: ParkingApp,
    settings: Settings,
    connect: Callable[[str], AbstractAsyncContextManager[Transport]],
    resources: Callable[[Settings, CommandBus | None], OpenResources],
) -> AsyncIterator[Parked]:
    """Opens what an application has parked, without running anything of the application here.

    Without a broker in the settings, commands and what stateless process managers parked can only be
    listed, and a command skipped behind which none is held.

    Args:
        app: whose.
        settings: name the databases and the broker.
        connect: opens a transport over a broker.
        resources: returns what handlers get besides events, given the bus if there is a broker.

    Raises:
        SchemaOutOfDate: a database is behind; the sentence says the command to run.
        MessageQueueError, sqlalchemy.exc.SQLAlchemyError, OSError: something cannot be reached.
    """
    async with AsyncExitStack() as stack:
        serializer = app.serializer_at(settings.event_store)
        stack.callback(serializer.close)
        opening = open_databases(settings, serializer)
        store, letters, models = await stack.enter_async_context(opening)
        transport = bus = None
        if settings.broker is not None:
            transport = await stack.enter_async_context(connect(settings.broker))
            bus = await stack.enter_async_context(app.client(settings))
        commands = CommandLetters(app.name, letters, transport, app.command_types)
        provided = await stack.enter_async_context(resources(settings, bus))
        yield Parked(app, commands, models, store, serializer, bus, provided)


def _of_readers(connection: Any) -> list[ParkedEntry]:
    from headrace.stores.database.parked import read_live_letters

    return [_of_letter(processor_of(name), each) for name, each in read_live_letters(connection)]


def processor_of(name: str) -> str:
    """Returns what parked something as it is shown; a projection stands in the tables by its bare name."""
    return name if ":" in name else f"projection:{name}"


def _of_command(letter: CommandLetter) -> ParkedEntry:
    return ParkedEntry(
        processor=COMMANDS,
        aggregate_id=letter.aggregate_id,
        command_id=letter.command_id,
        name=letter.name,
        state=letter.state,
        parked_at=letter.parked_at,
        attempts=letter.attempts,
        error=letter.error,
        sentence=letter.sentence,
        traceback=letter.trace,
        letter=letter,
    )


def _of_letter(processor: str, letter: "Letter") -> ParkedEntry:
    return ParkedEntry(
        processor=processor,
        aggregate_id=letter.aggregate_id,
        parked_at=letter.parked_at,
        attempts=letter.retries + 1,
        waiting=letter.held,
        version=None if processor.startswith("instances:") else letter.version,
        place=None if letter.queue is None else (*letter.queue, letter.offset or 0),
        error=letter.error_name,
        sentence=letter.error,
        traceback=letter.traceback,
    )
