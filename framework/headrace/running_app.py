"""
An application at work in this process: its bus, its store, its parts as tasks.

Used by `App`, which starts the parts, and by the user, who sends commands and reads projections.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from headrace._runtime.log import get_logger
from headrace.bus import CommandBus, CommandResult
from headrace.handlers.event_handlers import EventHandlers
from headrace.letters import CommandLetters
from headrace.parked import Parked
from headrace.projections.definition.projection import Projection
from headrace.settings import Settings

if TYPE_CHECKING:  # both load a database driver: only when an application runs
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
    from headrace.watch.watch import Watch

__all__ = ["RunningApp"]

log = get_logger(__name__)

R = TypeVar("R", bound=BaseModel)


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
        lineage: whether event store, event topic and readers belong together; None where nothing runs.
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
        self._serializer = serializer
        self.bus = bus
        self.store = store
        self.read_models = read_models
        self.letters = letters
        self.parked = parked
        self.projections: Sequence[ProjectionRunner[Any]] = ()
        self.readers: Mapping[str, Reader] = {}
        self.watch: Watch | None = None
        self.lineage: LineageCheck | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def read(self, projection: Projection[R]) -> "ProjectionReader[R]":
        """Returns a typed reader over a projection's live table."""
        return self.read_models.reader(self._projection(projection.name))

    @property
    def processes(self) -> "Processes":
        """A reader of the instances of its processes."""
        from headrace.processes.overview import Processes

        return Processes(self.read_models)

    def handler_letters(self, handlers: EventHandlers) -> "HandlerLetters":
        """Returns what handlers have parked; `App.event_handlers` knows them by name."""
        from headrace.handlers.letters import HandlerLetters

        return HandlerLetters(handlers, self.read_models, self.store)

    def projection_letters(self, projection: Projection[Any]) -> "Letters":
        """Returns the aggregates that a projection has parked: `all()`, `retry(id)`, `skip(id)`."""
        from headrace.projections.letters import Letters

        return Letters(self._projection(projection.name), self.read_models, self.store)

    def stuck_instances(self, process: "Process[Any]") -> "StuckInstances":
        """Returns what takes up parked instances of a process: `all()`, `retry(key)`, `skip(key)`."""
        from headrace.processes.stuck import StuckInstances

        return StuckInstances(process, self.read_models, self.store, self._serializer)

    def process_letters(self, manager: "ProcessManager | Process[Any]") -> "ReaderLetters":
        """Returns the aggregates that a process manager has parked; `all()`, `retry(id)`, `skip(id)`.

        Those of a `Process` are aggregates with an event that it cannot read, or whose key it cannot
        tell; an instance whose handler fails is in `stuck_instances`.
        """
        from headrace.processes.letters import letters_of

        return letters_of(manager, self.bus, self.read_models, self.store, self._serializer)

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
            serializer=self._serializer,
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
