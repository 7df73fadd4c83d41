"""A small bank and a command side whose store and transport fail, wait and crash on demand."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from types import SimpleNamespace

import pytest

from headrace.bus import CommandBus
from headrace.commands.command_handlers import CommandContext, HandlerTable
from headrace.commands.processor import CommandProcessor
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import AggregateId, ApplicationMessage, Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream
from headrace.errors import DamagedStream, DomainError
from headrace.letters import CommandLetters
from headrace.serialization import JsonSerializer
from headrace.settings import Settings
from headrace.stores.base import AppendOutcome, CommandLetter, Snapshot, StoredByCommand
from headrace.stores.memory.letters import MemoryCommandLetters
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.history import FakeClock
from headrace.transports.base import Incoming, Outgoing, Place, Report
from headrace.transports.local import LocalTransport


class Open(Command):
    account_id: AggregateId
    owner: str = "Ann"


class Deposit(Command):
    account_id: AggregateId
    amount: int


class Withdraw(Command):
    account_id: AggregateId
    amount: int


class Look(Command):
    account_id: AggregateId


class Close(Look):
    """Changes nothing the second time."""


class DepositTwice(Command):
    """Records an event and only then finds out that it may not."""

    account_id: AggregateId
    amount: int


class Opened(DomainEvent):
    owner: str


class Deposited(DomainEvent):
    amount: int
    balance: int


class Withdrawn(DomainEvent):
    amount: int
    balance: int


class Closed(DomainEvent):
    pass


class Told(ApplicationMessage):
    text: str


class Tell(Command):
    """Publishes a message; deposits as well when there is an amount."""

    account_id: AggregateId
    text: str
    amount: int = 0


class Overdrawn(DomainError):
    code = "overdrawn"


class Account(Aggregate):
    balance: int
    owner: str
    closed: bool

    def initial_state(self) -> None:
        self.balance = 0
        self.owner = ""
        self.closed = False

    @classmethod
    def open(cls, account_id: str, owner: str) -> "Account":
        account = cls(account_id)
        account.record(Opened(owner=owner))
        return account

    def deposit(self, amount: int) -> None:
        self.record(Deposited(amount=amount, balance=self.balance + amount))

    def withdraw(self, amount: int) -> None:
        if amount > self.balance:
            raise Overdrawn(f"{self.id} holds {self.balance}, {amount} is too much")
        self.record(Withdrawn(amount=amount, balance=self.balance - amount))

    def close(self) -> None:
        if not self.closed:
            self.record(Closed())

    @applies
    def _closed(self, event: Closed) -> None:
        self.closed = True

    @applies
    def _opened(self, event: Opened) -> None:
        self.owner = event.owner

    @applies
    def _deposited(self, event: Deposited) -> None:
        self.balance = event.balance

    @applies
    def _withdrawn(self, event: Withdrawn) -> None:
        self.balance = event.balance


async def open_account(command: Open, context: CommandContext) -> None:
    context.add(Account.open(command.account_id, command.owner))


async def deposit(command: Deposit, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.deposit(command.amount)
    context.set_result({"balance": account.balance})


async def withdraw(command: Withdraw, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.withdraw(command.amount)
    context.set_result({"balance": account.balance})


async def look(command: Look, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    context.set_result({"balance": account.balance})


async def close(command: Close, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.close()
    context.set_result({"closed": True})


async def deposit_twice(command: DepositTwice, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.deposit(command.amount)
    raise Overdrawn("changed its mind")


async def tell(command: Tell, context: CommandContext) -> None:
    context.publish(Told(text=command.text))
    context.set_result({"told": command.text})
    if command.amount:
        account = await context.get(Account, command.account_id)
        account.deposit(command.amount)


HANDLERS = (open_account, deposit, withdraw, look, close, deposit_twice, tell)


@pytest.fixture
def bank() -> SimpleNamespace:
    """The bank's classes by name."""
    classes = (
        *(Open, Deposit, Withdraw, Look, Close, DepositTwice, Tell, Told),
        *(Opened, Deposited, Withdrawn, Closed, Overdrawn, Account),
    )
    return SimpleNamespace(handlers=HANDLERS, **{each.__name__: each for each in classes})


class Gate:
    """A place where work waits while it is shut."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()

    def shut(self) -> None:
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def come_through(self) -> None:
        self.reached.set()
        await self._open.wait()


class FaultyStore(MemoryEventStore):
    """Fails and waits on demand; `appends` holds what was handed to every append."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, list[Exception]] = defaultdict(list)
        self.damaged: dict[tuple[str, str], DamagedStream] = {}
        self.before_append = Gate()
        self.after_append = Gate()
        self.before_find = Gate()
        self.before_read = Gate()
        self.appends: list[list[EventStream]] = []
        self.finds = self.reads = 0
        # Given a stream, the error with which it is always refused, or something false.
        self.refuses: Callable[[EventStream], Exception | bool | None] = lambda _: None
        self.before_save = Gate()

    def _fail(self, method: str) -> None:
        if self.failures[method]:
            raise self.failures[method].pop(0)

    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        await self.before_append.come_through()
        self._fail("append")
        for refusal in filter(None, map(self.refuses, streams)):
            raise refusal
        self.appends.append(list(streams))
        outcomes = await super().append(streams)
        await self.after_append.come_through()
        self._fail("after append")
        return outcomes

    async def find_stored(self, commands: Collection[tuple[str, str]]) -> StoredByCommand:
        self.finds += 1
        await self.before_find.come_through()
        self._fail("find_stored")
        damaged = {each: self.damaged[each] for each in commands if each in self.damaged}
        return {**await super().find_stored(commands), **damaged}

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        await self.before_save.come_through()
        self._fail("save_snapshots")
        await super().save_snapshots(snapshots)

    async def read_stream(
        self, aggregate_id: str, *, after_version: int = 0, to_version: int | None = None
    ) -> list[EventStream]:
        self.reads += 1
        await self.before_read.come_through()
        self._fail("read_stream")
        return await super().read_stream(
            aggregate_id, after_version=after_version, to_version=to_version
        )


class FaultyLetters:
    """Letters in memory that fail and wait on demand, by method."""

    def __init__(self) -> None:
        self._kept = MemoryCommandLetters()
        self.failures: dict[str, list[Exception]] = defaultdict(list)
        self.before: dict[str, Gate] = defaultdict(Gate)
        self.after: dict[str, Gate] = defaultdict(Gate)

    @property
    def all(self) -> list[CommandLetter]:
        return list(self._kept._letters.values())

    def __getattr__(self, method: str) -> Callable[..., Awaitable[object]]:
        async def faulty(*arguments: object, **named: object) -> object:
            await self.before[method].come_through()
            if self.failures[method]:
                raise self.failures[method].pop(0)
            done = await getattr(self._kept, method)(*arguments, **named)
            await self.after[method].come_through()
            return done

        return faulty


class FaultyTransport(LocalTransport):
    """Fails and waits on demand; `published` holds what topics took, by topic."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, list[Exception]] = defaultdict(list)
        self.before_publish: dict[str, Gate] = defaultdict(Gate)
        self.after_publish: dict[str, Gate] = defaultdict(Gate)
        self.before_reply = Gate()
        self.published: dict[str, list[Outgoing]] = defaultdict(list)

    async def publish(self, message: Outgoing) -> Place:
        topic = message.topic.partition(".")[2]
        gate = self.before_publish[topic]
        if topic == "commands":
            # The bus relies on the place being taken before the first suspension.
            place = await super().publish(message)
            self.published[topic].append(message)
            return place
        await gate.come_through()
        if self.failures[topic]:
            raise self.failures[topic].pop(0)
        self.published[topic].append(message)
        place = await super().publish(message)
        await self.after_publish[topic].come_through()
        return place

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        """Never has room, so that everything goes through `publish`."""
        return False

    async def reply(self, address: str, correlation: str, body: bytes) -> None:
        await self.before_reply.come_through()
        if self.failures["reply"]:
            raise self.failures["reply"].pop(0)
        await super().reply(address, correlation, body)


class World:
    """One store and one transport, and processors that come and go."""

    def __init__(self) -> None:
        self.store = FaultyStore()
        self.letters = FaultyLetters()
        self.transport = FaultyTransport()
        self.operator = CommandLetters("bank", self.letters, self.transport)
        self.clock = FakeClock()
        self.settings = Settings(retry_ms_min=1, retry_ms_max=2, conflict_retries_max=20)
        self.handlers = HandlerTable()
        self.commands: Registry[Command] = Registry("command")
        self.events: Registry[DomainEvent] = Registry("event")
        messages: Registry[ApplicationMessage] = Registry("application message")
        messages.add(Told)
        self.serializer = JsonSerializer(self.commands, self.events, messages)
        for event_type in Account.event_types():
            self.events.add(event_type)
        self.handle(*HANDLERS)
        self.processors: list[asyncio.Task[None]] = []

    def handle(self, *handlers: Callable[..., object]) -> None:
        for handler in handlers:
            self.handlers.add(handler)  # type: ignore[type-var]  # plain callables in tests
        for command_type in self.handlers.by_type:
            self.commands.add(command_type)

    async def begin(self) -> "World":
        await self.transport.ensure_topic("bank.commands", queues=2, forever=False)
        named = {"name": "bank", "serializer": self.serializer, "settings": self.settings}
        self.bus = CommandBus(transport=self.transport, **named)
        return self

    def start(self) -> asyncio.Task[None]:
        self.processor = CommandProcessor(
            name="bank",
            handlers=self.handlers,
            store=self.store,
            letters=self.letters,
            transport=self.transport,
            serializer=self.serializer,
            settings=self.settings,
            clock=self.clock,
        )
        task = asyncio.create_task(self.processor.run())
        self.processors.append(task)
        return task

    async def stop(self) -> None:
        """Stops the newest processor in order."""
        task = self.processors.pop()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()

    async def crash(self) -> None:
        """Ends the newest processor at once, whatever it has under way."""
        self.processors[-1].cancel()
        await self.settle()
        await self.stop()

    async def settle(self, turns: int = 50) -> None:
        """Lets everything that can go on without waiting go on."""
        for _ in range(turns):
            await asyncio.sleep(0)

    async def store_behind(self, *streams: EventStream) -> None:
        """Writes to the store as another process would."""
        outcomes = await MemoryEventStore.append(self.store, streams)
        assert set(outcomes) == {AppendOutcome.APPENDED}

    def stream(
        self, account_id: str, version: int, *events: DomainEvent, command_id: str
    ) -> EventStream:
        return EventStream(
            aggregate_type="Account",
            aggregate_id=account_id,
            version=version,
            command_id=command_id,
            correlation_id=command_id,
            recorded_at=self.clock.now(),
            events=events,
        )

    async def stored(self, account_id: str) -> list[EventStream]:
        """Everything stored of an account, rejections included, in the order of storing."""
        found = await self.store.read_all(limit=1_000_000)
        return [each.stream for each in found if each.stream.aggregate_id == account_id]

    async def account(self, account_id: str) -> Account:
        account = Account(account_id)
        for stream in await MemoryEventStore.read_stream(self.store, account_id):
            account.replay(stream.version or 0, stream.events)
        return account

    def published(self, account_id: str) -> list[EventStream]:
        """What the event topic holds of an account, in its order."""
        return [
            self.serializer.decode_stream(message.body)
            for message in self.transport.published["events"]
            if message.key == account_id
        ]

    async def check(self, account_id: str) -> None:
        """The promises that hold whatever happened.

        One stream per command, versions without a gap, and a topic in which a reader who skips
        what it has seen meets every stored stream in the order of storing.
        """
        stored = await self.stored(account_id)
        command_ids = [stream.command_id for stream in stored]
        assert len(command_ids) == len(set(command_ids))
        versions = [stream.version for stream in stored if stream.version is not None]
        assert versions == list(range(1, len(versions) + 1))
        self.check_sums(stored)
        published = [stream.command_id for stream in self.published(account_id)]
        in_order = list(dict.fromkeys(published))
        assert in_order == [each.command_id for each in stored if each.events or each.rejection]

    def check_sums(self, stored: Sequence[EventStream]) -> None:
        """That every event was decided on the state that the stored ones before it made."""
        balance = 0
        for event in (event for stream in stored for event in stream.events):
            if isinstance(event, Deposited):
                balance += event.amount
                assert event.balance == balance
            elif isinstance(event, Withdrawn):
                balance -= event.amount
                assert event.balance == balance
        assert balance >= 0

    async def check_readable(self, account_id: str) -> None:
        """That a reader who waits at gaps and skips what it has seen meets everything in order."""
        stored = await self.stored(account_id)
        waiting = [each.command_id for each in stored if each.events or each.rejection]
        for stream in self.published(account_id):
            if waiting and stream.command_id == waiting[0]:
                waiting.pop(0)
        assert waiting == []

    async def unfinished(self) -> list[Incoming]:
        """The command messages that a new member of the group would be given."""
        subscription = await self.transport.subscribe("bank.commands", ["bank.commands"])
        polling = asyncio.create_task(subscription.poll())
        await self.settle()
        messages = polling.result() if polling.done() else []
        polling.cancel()
        await asyncio.wait({polling})
        await subscription.aclose()
        return messages


@pytest.fixture
def new_world() -> Callable[[], World]:
    """Makes further worlds, for tests that need one per example."""
    return World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world with nothing running yet."""
    world = await World().begin()
    yield world
    for task in world.processors:
        task.cancel()
        await world.settle()
        task.cancel()
    if world.processors:
        await asyncio.wait(world.processors)
    await world.bus.aclose()
    await world.transport.aclose()
