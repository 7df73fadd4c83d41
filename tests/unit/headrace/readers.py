"""A small domain, databases and a scripted transport for the tests of the event side."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from headrace.domain.message import AggregateId, Command, DomainEvent, EventContext
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection
from headrace.processes.process import Compensate, End, Process, Undo
from headrace.processes.process_manager import Later
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.rules import FoldRule
from headrace.projections.letters import Letters
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import JsonSerializer
from headrace.settings import Settings
from headrace.testing.history import FakeClock
from headrace.transports.base import Incoming, OffsetLoader, Outgoing, QueueId

__all__ = [
    "clock",
    "domain",
    "letters",
    "logs",
    "make_parts",
    "make_process",
    "read_models",
    "serializer",
    "settings",
    "sqlite_models",
    "store",
    "totals",
    "transport",
]

TOPIC = "shop.events"


class Added(DomainEvent):
    amount: int


class Cleared(DomainEvent):
    pass


class Noted(DomainEvent):
    text: str


class Add(Command):
    counter_id: AggregateId
    amount: int


class Total(BaseModel):
    counter_id: str
    total: int = 0
    folded: int = 0


class Line(BaseModel):
    line_id: str


def make_totals(name: str = "totals", version: int = 1) -> Projection[Total]:
    """A projection that counts every fold, so that a second application shows."""
    totals = Projection(name, row=Total, key="counter_id", version=version)

    @totals.fold
    def added(row: Total | None, event: Added, context: EventContext) -> Total:
        if event.amount == 666:
            raise RuntimeError("this amount is not foldable")
        row = row or Total(counter_id=context.aggregate_id)
        return Total(
            counter_id=row.counter_id, total=row.total + event.amount, folded=row.folded + version
        )

    @totals.fold
    def cleared(row: Total | None, event: Cleared, context: EventContext) -> None:
        return None

    return totals


@dataclass
class Domain:
    """What the tests speak of."""

    Added: type[Added] = Added
    Cleared: type[Cleared] = Cleared
    Noted: type[Noted] = Noted
    Add: type[Add] = Add
    Total: type[Total] = Total
    StatementLine: type[Line] = Line
    topic: str = TOPIC
    make_totals: Callable[..., Projection[Total]] = make_totals

    @staticmethod
    def deploy(projection: Projection[Any], event_type: Any, change: Callable[..., Any]) -> None:
        """Puts what `change` makes of the fold for an event type in its place."""
        (rule,) = projection.declared_for(event_type)
        assert isinstance(rule, FoldRule)
        projection._rules[event_type] = [replace(rule, fold=change(rule.fold))]
        projection._compiled.clear()

    @staticmethod
    def stream(aggregate_id: str, version: int, *events: DomainEvent) -> EventStream:
        return EventStream(
            aggregate_type="Counter",
            aggregate_id=aggregate_id,
            version=version,
            command_id=f"{aggregate_id}-{version}",
            correlation_id="c",
            recorded_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=version),
            events=events or (Added(amount=version),),
        )

    @staticmethod
    def rejection(aggregate_id: str, command_id: str) -> EventStream:
        return EventStream(
            aggregate_type="Counter",
            aggregate_id=aggregate_id,
            version=None,
            command_id=command_id,
            correlation_id="c",
            recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
            rejection=Rejection(
                error="No",
                sentence="no",
                command_name="Add",
                command_version=1,
                command_data={"counter_id": aggregate_id, "amount": 5},
            ),
        )


@pytest.fixture
def domain() -> Domain:
    return Domain()


@pytest.fixture
def totals() -> Projection[Total]:
    return make_totals()


@pytest.fixture
def serializer() -> JsonSerializer:
    commands: Registry[Command] = Registry("command")
    events: Registry[DomainEvent] = Registry("event")
    commands.add(Add)
    for event_type in (Added, Cleared, Noted):
        events.add(event_type)
    return JsonSerializer(commands, events)


@pytest.fixture
def settings() -> Settings:
    return Settings(retry_ms_min=1, retry_ms_max=1, error_retries_max=2, projection_batch_max=3)


@pytest.fixture
async def read_models(
    database_url: str, give_schema: Callable[[str], Awaitable[None]]
) -> AsyncIterator[ReadModels]:
    await give_schema(database_url)
    models = ReadModels(database_url)
    yield models
    await models.aclose()


@pytest.fixture
async def sqlite_models(tmp_path: Path) -> AsyncIterator[ReadModels]:
    """Read models in a file, for tests of what is the same on every database."""
    models = ReadModels(f"sqlite:///{tmp_path / 'read.db'}")
    yield models
    await models.aclose()


@pytest.fixture
def letters(totals: Projection[Total], sqlite_models: ReadModels, store: "FakeStore") -> Letters:
    """The letters of `totals`."""
    return Letters(totals, sqlite_models, store)  # type: ignore[arg-type]  # as much of a store as letters need


class FakeStore:
    """The event store as a gap filler."""

    def __init__(self) -> None:
        self.streams: list[EventStream] = []
        self.asked: list[tuple[str, int, int | None]] = []

    async def read_stream(
        self, aggregate_id: str, *, after_version: int = 0, to_version: int | None = None
    ) -> list[EventStream]:
        self.asked.append((aggregate_id, after_version, to_version))
        return [
            stream
            for stream in self.streams
            if stream.aggregate_id == aggregate_id
            and stream.version is not None
            and after_version < stream.version <= (to_version or stream.version)
        ]

    async def find_command(self, aggregate_id: str, command_id: str) -> EventStream | None:
        for stream in self.streams:
            if (stream.aggregate_id, stream.command_id) == (aggregate_id, command_id):
                return stream
        return None


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


class ClosedError(Exception):
    """What this transport raises when it is closed or told to fail."""


@dataclass
class FakeSubscription:
    """Every queue of the topic, whoever else has it too: that is how zombies are made."""

    transport: "FakeTransport"
    positions: dict[QueueId, int]
    acked: list[tuple[QueueId, int]] = field(default_factory=list)
    seeks: list[tuple[QueueId, int]] = field(default_factory=list)
    taken: set[QueueId] = field(default_factory=set)
    closed: bool = False

    async def poll(self) -> list[Incoming]:
        while not (messages := self._ready()):
            self.transport.parked.set()
            self.transport.arrived.clear()
            await self.transport.arrived.wait()
        return messages

    def _ready(self) -> list[Incoming]:
        if self.transport.broken:
            raise ClosedError(self.transport.broken.pop())
        messages = [
            message
            for queue, log in self.transport.logs.items()
            for message in log
            if message.offset >= self.positions.get(queue, 0)
        ][: self.transport.poll_max]
        self.positions.update((message.queue, message.offset + 1) for message in messages)
        return messages

    def ack(self, message: Incoming) -> None:
        self.acked.append((message.queue, message.offset))

    def seek(self, queue: QueueId, offset: int) -> None:
        if queue in self.taken:
            return
        self.seeks.append((queue, offset))
        self.positions[queue] = offset
        self.transport.arrived.set()

    async def aclose(self) -> None:
        self.closed = True


class FakeTransport:
    """A topic in lists, with everything that a test wants to decide in its hands."""

    def __init__(self, serializer: JsonSerializer, queues: int = 2) -> None:
        self._serializer = serializer
        self.logs: dict[QueueId, list[Incoming]] = {(TOPIC, number): [] for number in range(queues)}
        self.arrived = asyncio.Event()
        # Set when a subscriber has taken everything and waits.
        self.parked = asyncio.Event()
        self.subscriptions: list[FakeSubscription] = []
        self.groups: list[str] = []
        self.broken: list[str] = []
        self.poll_max = 1_000

    def put(self, stream: EventStream, queue: int | None = None) -> Incoming:
        """Appends a stream to its queue, or to the one given."""
        number = sum(map(ord, stream.aggregate_id)) % len(self.logs) if queue is None else queue
        headers = {
            "kind": "events" if stream.rejection is None else "rejection",
            "version": "" if stream.version is None else str(stream.version),
            "command": stream.command_id,
        }
        return self.put_raw(
            (TOPIC, number), stream.aggregate_id, self._serializer.encode_stream(stream), headers
        )

    def put_raw(
        self, queue: QueueId, key: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Incoming:
        log = self.logs[queue]
        message = Incoming(
            queue=queue,
            offset=log[-1].offset + 1 if log else 0,
            key=key,
            tag="",
            headers=headers or {"kind": "events"},
            body=body,
        )
        log.append(message)
        self.parked.clear()
        self.arrived.set()
        return message

    def ends(self) -> dict[QueueId, int]:
        return {queue: log[-1].offset + 1 for queue, log in self.logs.items() if log}

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> FakeSubscription:
        assert list(topics) == [TOPIC]
        loaded = await offsets(list(self.logs)) if offsets else {}
        subscription = FakeSubscription(self, dict(loaded))
        self.groups.append(group)
        self.subscriptions.append(subscription)
        return subscription

    async def publish(self, message: Outgoing) -> None:
        raise NotImplementedError


@pytest.fixture
def transport(serializer: JsonSerializer) -> FakeTransport:
    return FakeTransport(serializer)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What is logged, as dictionaries."""
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def make_parts(
    serializer: JsonSerializer,
) -> Callable[[], tuple[Projection[Total], FakeStore, FakeTransport]]:
    """Makes a projection, a store and a topic for each example of a property."""
    return lambda: (make_totals(), FakeStore(), FakeTransport(serializer))


class Copying(BaseModel):
    """What an instance of `make_copies` remembers."""

    sum: int = 0
    trouble: str = ""


def make_copies(
    refuses: Iterable[int] = (), *, state_version: int = 1, factor: int = 1
) -> Process[Copying]:
    """A process that adds what is added to another counter, until it is cleared.

    It counts what it has seen, so that a second reaction shows; it raises at what it `refuses`.
    """
    copies = Process("copies", state=Copying, state_version=state_version)
    unbearable = set(refuses)

    @copies.on
    def added(state: Copying | None, event: Added, context: EventContext) -> Iterator[Any]:
        if event.amount in unbearable:
            raise RuntimeError(f"{event.amount} is not bearable")
        state = state or Copying()
        total = state.sum + event.amount * factor
        yield state.model_copy(update={"sum": total})
        yield Add(counter_id=f"{context.aggregate_id}-copy", amount=total)
        yield Undo(Add(counter_id=f"{context.aggregate_id}-copy", amount=-event.amount))

    @copies.on(key="text")
    def noted(state: Copying, event: Noted, context: EventContext) -> Iterator[Any]:
        yield Later(Add(counter_id="reminders", amount=1), at=context.recorded_at)
        yield Compensate()

    @copies.on
    def cleared(state: Copying, event: Cleared, context: EventContext) -> Iterator[Any]:
        yield Add(counter_id=f"{context.aggregate_id}-copy", amount=-state.sum)
        yield End()

    @copies.on_rejection
    def refused(state: Copying, command: Add, rejection: Rejection) -> Iterator[Any]:
        yield state.model_copy(update={"trouble": f"{command.amount}: {rejection.sentence}"})
        yield Compensate()

    return copies


@pytest.fixture
def make_process() -> Callable[..., Process[Copying]]:
    return make_copies


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
