"""
The composition root: everything a user defines is bound to an `App`, which then runs it.

Used by applications, which bind their aggregates, handlers, projections and process managers here;
uses the parts that run them. Nothing below this module knows it.
"""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from headrace._runtime.clock import MovedClock
from headrace._runtime.import_path import import_named
from headrace._runtime.log import get_logger
from headrace.bus import CommandBus
from headrace.commands.command_handlers import HandlerTable
from headrace.commands.functional import handler_table
from headrace.domain.aggregate import Aggregate
from headrace.domain.decider import Decider
from headrace.domain.message import ApplicationMessage, Command, DomainEvent
from headrace.domain.registries import MessageType, bind_named, find_named, registries
from headrace.domain.registry import Upcaster
from headrace.domain.topics import CommandTopics
from headrace.errors import DefinitionError, EventHandlerError, ProcessError, ProjectionNotFound
from headrace.events.key_transport import with_keys
from headrace.events.message_runner import MessageRunner
from headrace.events.sealed_transport import seal_events
from headrace.handlers.event_handlers import EventHandlers
from headrace.letters import CommandLetters
from headrace.parked import Parked, open_databases, open_parked
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.projections.definition.projection import Projection
from headrace.registration.definition import Definition
from headrace.registration.handlers import HandlerHolder
from headrace.resources.parameters import Bind
from headrace.running_app import (
    EventRunner,
    RunningApp,
    ensure_topics,
    event_runner,
    read_only_reason,
    run_read_only,
    schedule_of,
)
from headrace.serialization import JsonSerializer
from headrace.settings import Settings
from headrace.subjects.keys import MemoryKeys, SubjectKeys
from headrace.transports.base import Transport
from headrace.transports.open import open_transport
from headrace.watch.unsent_messages import check_listeners

if TYPE_CHECKING:  # the parts that run an application load a database driver: only when needed
    from headrace.projections.tables.read_models import ReadModels
    from headrace.tracing.traced_parts import Tracing

__all__ = ["App", "RunningApp", "load_app"]

log = get_logger(__name__)

R = TypeVar("R", bound=BaseModel)
U = TypeVar("U", bound=Upcaster)
P = TypeVar("P")
Part = (
    type[Aggregate]
    | Decider[Any]
    | type[DomainEvent]
    | type[ApplicationMessage]
    | Projection[Any]
    | ProcessManager
    | Process[Any]
)


class App(HandlerHolder):
    """An application: its aggregates, command handlers, projections and process managers.

    Args:
        name: stable; topics and consumer groups are named after it.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        if not (name.isidentifier() and name.islower()):
            raise DefinitionError(
                f"application name {name!r}: use lower-case letters, digits and '_'"
            )
        self.name = name
        self._aggregates: dict[str, type[Aggregate]] = {}
        self._projections: dict[str, Projection[Any]] = {}
        self._deciders: dict[str, Decider[Any]] = {}
        self._events: dict[type[DomainEvent], None] = {}
        self._upcasters: list[tuple[MessageType, int, Upcaster]] = []
        self._tracing: Tracing | None = None
        self._keys: SubjectKeys | None = None
        self._keys_in_memory = MemoryKeys()

    def add(self, *parts: Part) -> None:
        """Binds aggregate classes, deciders, projections, process managers and processes.

        Add an event class only if the aggregate handles it by a method for its base class, and an
        application message only if the application has no handler for it.

        Raises:
            DefinitionError: two parts of one kind have the same name.
        """
        for part in parts:
            if isinstance(part, Projection):
                bind_named(self._projections, part.name, part, "projections")
            elif isinstance(part, ProcessManager | Process):
                bind_named(self._process_managers, part.name, part, "process managers")
            elif isinstance(part, Decider):
                bind_named(self._aggregates, part.name, part.aggregate_type, "aggregates")
                self._deciders[part.name] = part
            elif isinstance(part, type) and issubclass(part, Aggregate):
                bind_named(self._aggregates, part.aggregate_name, part, "aggregates")
            elif isinstance(part, type) and issubclass(part, DomainEvent):
                self._events[part] = None
            elif isinstance(part, type) and issubclass(part, ApplicationMessage):
                self._messages.setdefault(part, [])
            else:
                raise DefinitionError(
                    f"{part!r} is no aggregate class, decider, event, projection or process manager"
                )

    def keep_keys(self, keys: SubjectKeys) -> None:
        """Says where the keys of personal fields are; in the database of the events by default."""
        self._keys = keys

    def trace_with(self, tracing: "Tracing") -> None:
        """Makes OpenTelemetry spans in everything that runs from now on, here and in clients."""
        self._tracing = tracing
        self._middleware.insert(0, tracing.around_handlers(self.name))

    @property
    def handlers(self) -> HandlerTable:
        """The handler of each command type, with the middleware around it.

        Raises:
            DefinitionError: a command type has two handlers.
        """
        return self._table(self._resources.bind_now)

    def _table(self, bind: Bind, *, bare: bool = False) -> HandlerTable:
        middleware = [] if bare else self._middleware
        return handler_table(self._deciders.values(), self._handlers, middleware, bind)

    def upcasts(self, message_type: MessageType, version: int) -> Callable[[U], U]:
        """Registers a function that turns the stored fields of an old version into those of the next.

        @app.upcasts(Deposited, 1)
        def deposited_2(data: dict[str, Any]) -> dict[str, Any]:
            return {**data, "currency": "EUR"}

        The fields are JSON values. Every reader gets a stored event or a queued command after its
        whole chain of upcasters. The function must not fail, and must always give the same result.
        """

        def register(function: U) -> U:
            self._upcasters.append((message_type, version, function))
            return function

        return register

    @property
    def command_types(self) -> frozenset[type[Command]]:
        """The command types that have a handler."""
        return frozenset(self._table(lambda handler: handler).by_type)

    @property
    def projections(self) -> Mapping[str, Projection[Any]]:
        """The projections by name."""
        return MappingProxyType(self._projections)

    def projection(self, name: str) -> Projection[Any]:
        """Returns a projection; raises `ProjectionNotFound`, which names the existing ones."""
        return find_named(
            self._projections, name, f"{self.name} has no projection", ProjectionNotFound
        )

    def process(self, name: str) -> Process[Any]:
        """Returns a process with a state; raises `ProcessError`, which names the existing ones."""
        found = {
            each.name: each for each in self._process_managers.values() if isinstance(each, Process)
        }
        return find_named(found, name, f"{self.name} has no process with a state", ProcessError)

    def process_manager(self, name: str) -> ProcessManager | Process[Any]:
        """Returns a process manager, with a state or without; raises `ProcessError` as `process`."""
        return find_named(
            self._process_managers, name, f"{self.name} has no process manager", ProcessError
        )

    def event_handlers(self, processor: str) -> EventHandlers:
        """Returns the handlers of a processor; raises `EventHandlerError`, which names the existing ones."""
        missing = f"{self.name} has no event handlers"
        return find_named(self._event_handlers, processor, missing, EventHandlerError)

    @property
    def definition(self) -> Definition:
        """What the application consists of, for catalogues.

        Raises:
            DefinitionError: the application is put together wrongly.
        """
        commands = {
            one: getattr(handler, "__qualname__", repr(handler))
            for one, handler in self._table(lambda handler: handler, bare=True).by_type.items()
        }
        aggregates = self._aggregates.values()
        return Definition(
            name=self.name,
            commands=commands,
            events={
                one: [each.aggregate_name for each in aggregates if one in each.event_types()]
                for one in self.serializer.events.classes
            },
            aggregates=dict(self._aggregates),
            messages=self._messages,
            projections=list(self._projections.values()),
            processors=list(self._event_handlers.values()),
            managers=list(self._process_managers.values()),
            periodic=list(self._periodic.values()),
        )

    @property
    def readers(self) -> Mapping[str, str]:
        """The names of all readers of its events, by consumer group."""
        from headrace.lineage.check import reader_names

        versions = {name: each.version for name, each in self._projections.items()}
        return reader_names(self.name, versions, self._event_handlers, self._process_managers)

    @property
    def _listeners(self) -> list[Any]:
        parts = (self._projections, self._process_managers, self._event_handlers)
        return [each for some in parts for each in some.values()]

    @property
    def serializer(self) -> JsonSerializer:
        """A serializer that knows every message type; see `serializer_at` for personal fields."""
        return self.serializer_at(None)

    def serializer_at(self, event_store: str | None) -> JsonSerializer:
        """Returns one with the keys in the database of the events; without its URL such keys raise."""
        applied = (each for some in self._aggregates.values() for each in some.event_types())
        commands, events, messages = registries(
            self.name,
            commands=self.command_types,
            events=[*applied, *self._events],
            messages=self._messages,
            upcasters=self._upcasters,
        )
        CommandTopics(self.name, self.command_types)  # Raises where it cannot be said.
        check_listeners(self.name, self._listeners, events=set(events), commands=set(commands))
        if not any(each.personal for each in (commands, events, messages)):
            return JsonSerializer(commands, events, messages)
        from headrace.stores.subject_keys import keys_at

        keys = keys_at(self._keys, event_store, self._keys_in_memory)
        return JsonSerializer(commands, events, messages, keys)

    @asynccontextmanager
    async def client(self, settings: Settings) -> AsyncIterator[CommandBus]:
        """Connects a command bus; runs nothing of the application here.

        To wait for projections it reads the database `read_models` of the settings.

        Raises:
            BrokerUnreachable: no broker answered within `connect_ms`.
        """
        from headrace.projections.tables.read_models import ReadModels

        # What stays in another process's memory is no place for keys and messages for later.
        own = settings.event_store == "memory://"
        serializer = self.serializer_at(None if own else settings.event_store)
        async with AsyncExitStack() as stack:
            stack.callback(serializer.close)
            opening = open_transport(
                settings.broker,
                within_ms=settings.connect_ms,
                schedule=None if own else schedule_of(settings),
            )
            transport = await stack.enter_async_context(opening)
            # Opened at the first use only.
            read_models = ReadModels(settings.read_models)
            stack.push_async_callback(read_models.aclose)
            bus = self._bus(transport, serializer, settings, read_models)
            stack.push_async_callback(bus.aclose)
            yield bus

    def parked(self, settings: Settings) -> AbstractAsyncContextManager[Parked]:
        """Opens the parked commands and events; runs nothing here. See `open_parked`."""
        return open_parked(self, settings, open_transport, self._opening)

    def _bus(
        self,
        transport: Transport,
        serializer: JsonSerializer,
        settings: Settings,
        read_models: "ReadModels",
        clock: MovedClock | None = None,
    ) -> CommandBus:
        from headrace.read_your_writes import Handling

        progress = Handling(
            name=self.name,
            projections=self._projections,
            managers=self._process_managers.keys(),
            processors=self._event_handlers.keys(),
            read_models=read_models,
            transport=transport,
        )
        return (CommandBus if self._tracing is None else self._tracing.bus)(
            name=self.name,
            transport=transport,
            serializer=serializer,
            settings=settings,
            progress=progress,
            clock=clock,
        )

    @asynccontextmanager
    async def run(self, settings: Settings) -> AsyncIterator["RunningApp"]:
        """Runs command service, projections and process managers until the block ends.

        At the end they stop in order: no new commands, commands under way are finished and
        published, process managers, projections, connections. If a database is read-only,
        nothing runs: see `RunningApp.read_only`.
        """
        async with self._run(settings, None) as running:
            yield running

    @asynccontextmanager
    async def _run(
        self, settings: Settings, clock: MovedClock | None
    ) -> AsyncIterator["RunningApp"]:
        from headrace.watch.watch import Watch

        if reason := read_only_reason(settings):
            async with run_read_only(self, settings, reason, self._bus) as running:
                yield running
            return
        async with AsyncExitStack() as stack:
            serializer = stack.enter_context(closing(self.serializer_at(settings.event_store)))
            opening = open_databases(settings, serializer)
            store, letters, read_models = await stack.enter_async_context(opening)
            for projection in self._projections.values():
                await read_models.ensure(projection)
            messages = await stack.enter_async_context(_transport(settings, clock))
            transport = with_keys(messages, serializer)
            if self._tracing is not None:
                store = self._tracing.store(store)
                transport = self._tracing.transport(transport, self.name)
            topics = await ensure_topics(self.name, self.command_types, transport, settings)
            # Before the seal, which is for events: the bus sends commands only.
            bus = self._bus(transport, serializer, settings, read_models, clock)
            transport, belief = await seal_events(transport, self.name, store, serializer)
            stack.push_async_callback(bus.aclose)
            resources = await stack.enter_async_context(self._opening(settings, bus))
            commands = CommandLetters(self.name, letters, transport, self.command_types)
            running = RunningApp(
                self.projection,
                bus=bus,
                store=store,
                read_models=read_models,
                letters=commands,
                parked=Parked(self, commands, read_models, store, serializer, bus, resources),
                serializer=serializer,
            )
            running.resources = resources
            lineage = await running.begin_lineage(self.name, self.readers, transport, settings)
            running.watch = Watch(
                app_name=self.name,
                projections=self._projections,
                processors=self._event_handlers,
                managers=self._process_managers,
                read_models=read_models,
                transport=transport,
                serializer=serializer,
                settings=settings,
                commands=letters,
                belief=belief,
                lineage=lineage,
                clock=clock,
            )
            await resources.open()
            # Stopped in the reverse of this order: the command service last started, first ended.
            runners = self._runners(running, transport, serializer, settings, clock)
            for name, run in [("lineage", lineage.run), *running.watch.parts, *runners]:
                running.start(name, run)
                stack.push_async_callback(running.stop_last)
            with running.attended(messages, topics, clock, len(self._periodic)):
                yield running

    @asynccontextmanager
    async def run_local(
        self, settings: Settings | None = None, *, clock: MovedClock | None = None
    ) -> AsyncIterator["RunningApp"]:
        """Runs everything in this process, without a broker: to try an application, and for tests.

        Without settings, events live in memory and read models in a temporary folder. With a `FakeClock`
        of `headrace.testing.history`, nothing is due until the test lets time pass.
        """
        with tempfile.TemporaryDirectory(prefix=f"{self.name}-") as folder:
            local = settings or Settings(read_models=f"sqlite:///{Path(folder) / 'read.db'}")
            async with self._run(local.model_copy(update={"broker": None}), clock) as running:
                yield running

    def _runners(
        self,
        running: "RunningApp",
        transport: Transport,
        serializer: JsonSerializer,
        settings: Settings,
        clock: MovedClock | None,
    ) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        from headrace.commands.processor import CommandProcessor
        from headrace.periodic.runner import periodic_runners
        from headrace.projections.runner import ProjectionRunner

        assert running.lineage is not None and running.resources is not None, "begun before"  # noqa: PT018 - one reason
        bind = running.resources.bind
        parts: dict[str, Any] = {
            "app_name": self.name,
            "read_models": running.read_models,
            "store": running.store,
            "transport": running.lineage.transport,
            "serializer": serializer,
            "settings": settings,
            "clock": clock,
        }
        running.projections = [
            ProjectionRunner(projection=projection, **parts)
            for projection in self._projections.values()
        ]
        readers: dict[str, EventRunner] = {
            f"projection {each.name}": each for each in running.projections
        }
        for name, handlers in self._event_handlers.items():
            readers[f"event handlers {name}"] = event_runner(handlers.bound(bind), **parts)
        for name, manager in self._process_managers.items():
            bound = manager if isinstance(manager, Process) else manager.bound(bind)
            readers[f"process manager {name}"] = event_runner(bound, bus=running.bus, **parts)
        running.readers = {name: each.reader for name, each in readers.items()}
        runners = [(name, each.run) for name, each in readers.items()]
        processor = CommandProcessor(
            name=self.name,
            handlers=self._table(bind),
            store=running.store,
            letters=running.letters.store,
            transport=transport,
            serializer=serializer,
            settings=settings,
            clock=clock,
        )
        if any(self._messages.values()):
            messages = MessageRunner(
                name=self.name,
                handlers={kind: [*map(bind, some)] for kind, some in self._messages.items()},
                transport=transport,
                serializer=serializer,
                settings=settings,
            )
            runners.append(("message handlers", messages.run))
        runners += periodic_runners(
            self._periodic.values(), self.name, running.bus, running.store, settings, clock
        )
        return [*runners, running.command_part(processor)]


def _transport(
    settings: Settings, clock: MovedClock | None
) -> AbstractAsyncContextManager[Transport]:
    """Opens the transport of a service, which publishes what is due where the queue does not."""
    later = schedule_of(settings)
    return open_transport(
        settings.broker, name=settings.name, schedule=later, dispatches=True,
        trace_share=settings.trace_share, clock=clock,
    )  # fmt: skip


def load_app(path: str) -> App:
    """Imports an application by `module:attribute`, such as `samples.bank:app`.

    Raises:
        DefinitionError: the module cannot be imported, or has no `App` of that name.
    """
    app = import_named(path)
    if not isinstance(app, App):
        module_name, _, attribute = path.partition(":")
        raise DefinitionError(f"{path!r}: {module_name} has no App called {attribute!r}")
    return app
