"""
An application at work in this process: its bus, its store, its parts as tasks, its readers of events.

Where its databases take no writes, its rows and what is parked are read, nothing runs, and every
command is refused.

Used by `App`, which starts the parts, and by the user, who sends commands and reads projections.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

from pydantic import BaseModel

from headrace._runtime.clock import MovedClock
from headrace._runtime.log import get_logger
from headrace.bus import CommandBus, CommandResult
from headrace.domain.message import Command
from headrace.domain.topics import CommandTopics
from headrace.errors import HeadraceError, ReadOnlyDatabase
from headrace.handlers.event_handlers import EventHandlers
from headrace.letters import CommandLetters
from headrace.parked import Parked, ParkingApp, open_databases
from headrace.projections.definition.projection import Projection
from headrace.resources.resources import OpenResources
from headrace.settings import Settings
from headrace.subscriptions.status import ReaderState
from headrace.transports.base import Outgoing, Place, Report
from headrace.transports.local import LocalTransport

if TYPE_CHECKING:  # both load a database driver: only when an application runs
    from headrace.commands.processor import CommandProcessor
    from headrace.handlers.letters import HandlerLetters
    from headrace.handlers.progress_letters import ReaderLetters
    from headrace.lineage.check import LineageCheck
    from headrace.processes.overview import Processes
    from headrace.processes.process import Process
    from headrace.processes.process_manager import ProcessManager
    from headrace.processes.stuck import StuckInstances
    from headrace.projections.letters import Letters
    from headrace.projections.runner import ProjectionRunner
    from headrace.projections.tables.read_models import ProjectionReader, ReadModels
    from headrace.serialization import Serializer
    from headrace.stores.base import EventStore
    from headrace.subscriptions.reader import Reader
    from headrace.transports.base import Transport
    from headrace.transports.kafka.schedule import Schedule
    from headrace.watch.watch import Watch

__all__ = [
    "EventRunner",
    "RunningApp",
    "ensure_topics",
    "event_runner",
    "read_only_reason",
    "run_read_only",
    "schedule_of",
]

log = get_logger(__name__)

R = TypeVar("R", bound=BaseModel)

# Time between two looks whether the application is quiet: a test notices no such wait.
_LOOK_MS: Final = 1


class EventRunner(Protocol):
    """The loop of what reads events.

    Attributes:
        reader: says in its `status` how it is doing.
    """

    reader: "Reader"

    async def run(self) -> None:
        """Works until cancelled."""
        ...


def event_runner(
    reacting: "ProcessManager | Process[Any] | EventHandlers",
    *,
    read_models: "ReadModels",
    store: "EventStore",
    **parts: Any,
) -> EventRunner:
    """Returns the loop of process managers, processes or event handlers.

    Args:
        reacting: what reads the events.
        read_models: the database with the instances of processes and the versions that were handled.
        store: the event store: has what instances have seen, and what the topic lacks.
        parts: what all loops take, and for process managers and processes the bus.
    """
    from headrace.handlers.runner import EventHandlerRunner
    from headrace.processes.process_manager import ProcessManager
    from headrace.processes.process_manager_runner import ProcessManagerRunner
    from headrace.processes.process_runner import ProcessRunner

    parts["read_models"] = read_models
    if isinstance(reacting, ProcessManager):
        return ProcessManagerRunner(manager=reacting, **parts)
    parts["store"] = store
    if isinstance(reacting, EventHandlers):
        return EventHandlerRunner(handlers=reacting, **parts)
    return ProcessRunner(process=reacting, **parts)


class RunningApp:
    """An application at work in this process.

    Attributes:
        bus: sends commands to it.
        store: its event store.
        read_models: the tables of its projections.
        letters: commands that were parked, and those held behind them.
        parked: everything that was, commands and events: `read()`, `retry(entry)`, `skip(entry)`.
        projections: what keeps them up to date.
        readers: all that read its events, by name; each tells how it is doing in its `status`.
        watch: their lag and alarms; None where nothing runs.
        serializer: encodes and decodes its messages.
        lineage: whether event store, event topic and readers belong together; None where nothing runs.
        resources: what its handlers get besides messages; None where nothing runs.
        commands: its command service; None where nothing runs.
        read_only: why its databases can only be read: nothing runs then, and commands are refused;
            None: they can be written.
    """

    def __init__(
        self,
        projection: Callable[[str], Projection[Any]],
        *,
        bus: CommandBus,
        store: "EventStore",
        read_models: "ReadModels",
        letters: CommandLetters,
        parked: Parked,
        serializer: "Serializer",
    ) -> None:
        self._projection = projection
        self.serializer = serializer
        self.bus = bus
        self.store = store
        self.read_models = read_models
        self.letters = letters
        self.parked = parked
        self.projections: Sequence[ProjectionRunner[Any]] = ()
        self.readers: Mapping[str, Reader] = {}
        self.watch: Watch | None = None
        self.lineage: LineageCheck | None = None
        self.resources: OpenResources | None = None
        self.commands: CommandProcessor | None = None
        self.read_only: str | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_quiet: Callable[[], bool] | None = None

    def read(
        self, projection: Projection[R], *, generation: int | None = None
    ) -> "ProjectionReader[R]":
        """Returns a typed reader over a projection's live table, or over another generation's.

        Args:
            projection: one of the application's.
            generation: of which `headrace projection list` shows the numbers; its rows must have the
                projection's fields.
        """
        return self.read_models.reader(self._projection(projection.name), generation=generation)

    @property
    def processes(self) -> "Processes":
        """A reader of the instances of its processes."""
        from headrace.processes.overview import Processes

        return Processes(self.read_models)

    def handler_letters(self, handlers: EventHandlers) -> "HandlerLetters":
        """Returns what handlers have parked; `App.event_handlers` knows them by name."""
        from headrace.handlers.letters import HandlerLetters

        bound = handlers if self.resources is None else handlers.bound(self.resources.bind)
        return HandlerLetters(bound, self.read_models, self.store)

    def projection_letters(self, projection: Projection[Any]) -> "Letters":
        """Returns the aggregates that a projection has parked: `all()`, `retry(id)`, `skip(id)`."""
        from headrace.projections.letters import Letters

        return Letters(self._projection(projection.name), self.read_models, self.store)

    def stuck_instances(self, process: "Process[Any]") -> "StuckInstances":
        """Returns what takes up parked instances of a process: `all()`, `retry(key)`, `skip(key)`."""
        from headrace.processes.stuck import StuckInstances

        return StuckInstances(process, self.read_models, self.store, self.serializer)

    def process_letters(self, manager: "ProcessManager | Process[Any]") -> "ReaderLetters":
        """Returns the aggregates that a process manager has parked; `all()`, `retry(id)`, `skip(id)`.

        Those of a `Process` are aggregates with an event that it cannot read, or whose key it cannot
        tell; an instance whose handler fails is in `stuck_instances`.
        """
        from headrace.processes.letters import letters_of
        from headrace.processes.process import Process

        if self.resources is not None and not isinstance(manager, Process):
            manager = manager.bound(self.resources.bind)
        return letters_of(manager, self.bus, self.read_models, self.store, self.serializer)

    async def seen(
        self, projection: Projection[Any], result: CommandResult, *, timeout_ms: int = 10_000
    ) -> None:
        """Waits until a projection has folded what a command did: read your own writes.

        Raises:
            ProjectionError: it has not within `timeout_ms`.
        """
        if result.version is not None:
            await self.read_models.wait_for_version(
                projection, result.aggregate_id, result.version, timeout_ms=timeout_ms
            )

    @contextmanager
    def attended(
        self,
        transport: "Transport",
        topics: Collection[str],
        clock: MovedClock | None,
        sleepers: int,
    ) -> Iterator[None]:
        """Lets a test's clock await `quiet` wherever it stops, until the block ends.

        Args:
            transport: holds the messages; quiet is known only of one within this process.
            topics: of the commands.
            clock: on which parts of the application sleep; None: the machine's, and nothing is done.
            sleepers: how many parts that are.
        """
        if clock is None:
            yield
            return
        assert isinstance(transport, LocalTransport), "run_local has no other"

        def is_quiet() -> bool:
            starting = any(
                each.status.state is ReaderState.STARTING for each in self.readers.values()
            )
            return not starting and clock.sleepers >= sleepers and transport.is_quiet(topics)

        self._is_quiet = is_quiet
        with clock.attended(self.quiet):
            yield

    async def quiet(self, *, timeout_ms: int = 10_000) -> None:
        """Waits until every command, event and message is handled; for `run_local` with a clock.

        What is due later on that clock does not count. A command that fails is handled when it is
        parked or rejected; until then it is retried, and its pauses are those of the machine's clock.

        Raises:
            HeadraceError: the application does not run on a clock of a test.
            TimeoutError: there was always something to do, or a projection is paused and has events to read.
        """
        if self._is_quiet is None:
            raise HeadraceError(
                "quiet() needs run_local(clock=FakeClock()) of headrace.testing.history"
            )
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                while not self._is_quiet():  # noqa: ASYNC110 - its parts tell of no change
                    await asyncio.sleep(_LOOK_MS / 1_000)
        except TimeoutError:
            raise TimeoutError(
                f"the application is still at work after {timeout_ms} ms; see in the log what is"
                " retried, resume a projection that is paused, or give quiet() more time"
            ) from None

    async def begin_lineage(
        self, name: str, readers: Mapping[str, str], transport: "Transport", settings: Settings
    ) -> "LineageCheck":
        """Compares event store, event topic and readers, and makes the topic whole.

        Raises:
            LineageError: they do not belong together.
        """
        from headrace.events.republication import Republication
        from headrace.lineage.check import LineageCheck

        fill = Republication(
            name=name,
            store=self.store,
            transport=transport,
            serializer=self.serializer,
            settings=settings,
        )
        self.lineage = lineage = LineageCheck(
            app_name=name,
            readers=readers,
            read_models=self.read_models,
            store=self.store,
            transport=transport,
            settings=settings,
            fill=fill.run,
        )
        await lineage.begin()
        return lineage

    async def failed(self) -> None:
        """Waits, and raises as soon as one of the application's parts has failed for good."""
        if not self._tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def command_part(
        self, processor: "CommandProcessor"
    ) -> tuple[str, Callable[[], Awaitable[None]]]:
        """Takes the command service; returns it as a part to `start`."""
        self.commands = processor
        return "command service", processor.run

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Starts one part as a named task; an error in it surfaces in `failed`."""

        async def part() -> None:
            await run()

        self._tasks.append(asyncio.create_task(part(), name=name))

    async def stop_last(self) -> None:
        """Stops the part that was started last and waits for it."""
        task = self._tasks.pop()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("a part had failed before it was stopped", part=task.get_name())


class ReadingApp(ParkingApp, Protocol):
    """What is asked of an application that is only read."""

    @property
    def projections(self) -> Mapping[str, Projection[Any]]:
        """Its projections by name."""
        ...


def read_only_reason(settings: Settings) -> str | None:
    """Returns why an application can only be read, as a sentence without a file's folder; None: it can run."""
    from headrace.stores.database.engines import database_url, is_in_memory
    from headrace.stores.database.read_only import why_read_only

    databases = {"event store": settings.event_store, "read models": settings.read_models}
    for what, url in databases.items():
        if url == "memory://":
            continue
        parsed = database_url(url)
        if parsed.get_backend_name() != "sqlite" or is_in_memory(parsed):
            continue
        reason = why_read_only(Path(parsed.database or ""))
        if reason is not None:
            log.warning("the service is read-only", database=what, url=url, reason=reason)
            return f"the file of the {what} can only be read, because {reason}"
    return None


@asynccontextmanager
async def run_read_only(
    app: ReadingApp, settings: Settings, reason: str, bus_of: Callable[..., CommandBus]
) -> AsyncIterator[RunningApp]:
    """Opens the databases of an application for reading until the block ends.

    Args:
        app: whose.
        settings: name the databases.
        reason: why it can only be read.
        bus_of: makes a command bus of a transport; that one refuses.

    Raises:
        HeadraceError: a projection has no tables yet.
        SchemaOutOfDate: a database is behind.
        sqlalchemy.exc.SQLAlchemyError, OSError: a database cannot be read.
    """
    async with AsyncExitStack() as stack:
        serializer = app.serializer_at(settings.event_store)
        stack.callback(serializer.close)
        opening = open_databases(settings, serializer)
        store, letters, read_models = await stack.enter_async_context(opening)
        for projection in app.projections.values():
            if not await read_models.is_set_up(projection):
                raise HeadraceError(
                    f"{reason}, and projection {projection.name} has no tables yet; start the service"
                    " once where its databases can be written"
                )
        transport = _RefusingTransport(reason)
        stack.push_async_callback(transport.aclose)
        bus = bus_of(transport, serializer, settings, read_models)
        stack.push_async_callback(bus.aclose)
        commands = CommandLetters(app.name, letters, transport, app.command_types)
        running = RunningApp(
            app.projection,
            bus=bus,
            store=store,
            read_models=read_models,
            letters=commands,
            parked=Parked(app, commands, read_models, store, serializer, bus),
            serializer=serializer,
        )
        running.read_only = reason
        yield running


class _RefusingTransport(LocalTransport):
    """A queue that takes nothing; it holds nothing either."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self._reason = reason

    async def publish(self, message: Outgoing) -> Place:  # noqa: ARG002 - the port's
        """Raises `ReadOnlyDatabase`."""
        self._refuse()

    def publish_soon(self, message: Outgoing, told: Report) -> bool:  # noqa: ARG002 - the port's
        """Raises `ReadOnlyDatabase`."""
        self._refuse()

    async def schedule(
        self,
        message: Outgoing,  # noqa: ARG002 - the port's
        due: datetime | timedelta,  # noqa: ARG002 - the port's
    ) -> None:
        """Raises `ReadOnlyDatabase`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ReadOnlyDatabase(
            f"the service is read-only and takes no commands: {self._reason}; start it again when"
            " the file can be written"
        )


async def ensure_topics(
    name: str, command_types: Collection[type[Command]], transport: "Transport", settings: Settings
) -> list[str]:
    """Makes the topics of commands and events where there are none; returns those of commands."""
    commands = list(CommandTopics(name, command_types).chosen())
    for topic in commands:
        await transport.ensure_topic(topic, queues=settings.command_queues, forever=False)
    await transport.ensure_topic(f"{name}.events", queues=settings.event_queues, forever=True)
    return commands


def schedule_of(settings: Settings) -> "Callable[[], Awaitable[Schedule]]":
    """Returns what opens the messages for later, where the queue keeps none."""
    from headrace.stores.open import open_schedule

    return partial(open_schedule, settings.event_store)
