"""A history and its checker, two samples that make one, and real brokers to make it over."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from headrace import App, Command, CommandBus, CommandResult
from headrace._runtime.backoff import Backoff
from headrace.domain.stream import EventStream
from headrace.errors import CommandRefused, CommandTimeout
from headrace.processes.overview import Processes
from headrace.processes.process import Process, Progress
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.stores.database.tables import process_commands
from headrace.stores.open import open_event_store
from headrace.transports.queue import QueueTransport
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.application import app as bank_app
from samples.bank.transfers import RequestTransfer
from samples.conference.application import app as conference_app
from samples.conference.orders import PayOrder, PlaceOrder
from samples.conference.seats import PlanConference

# Between two looks at what nobody tells by himself.
LOOKS = Backoff(ms_min=20, ms_max=50)
# Bounds a hang; the queues of a member that was killed take their time to find another one.
TIMEOUT_MS = 150_000


@dataclass
class History:
    """Everything that happened, and what was made of it.

    Attributes:
        streams: of the event store, in its order, rejections among them.
        rows: of each projection, by key.
        instances: of each process: state, whether it has ended, how much it has seen.
    """

    app: App
    streams: list[EventStream] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    instances: dict[str, dict[str, tuple[Any, bool, int]]] = field(default_factory=dict)

    @classmethod
    async def read(cls, app: App, settings: Settings) -> "History":
        history = cls(app)
        store = await open_event_store(settings.event_store, app.serializer)
        history.streams = [one.stream for one in await store.read_all(limit=100_000)]
        await store.aclose()
        models = ReadModels(settings.read_models)
        for name, projection in app.projections.items():
            reader = models.reader(projection)
            rows = [row async for row in reader.rows()]
            history.rows[name] = {getattr(row, projection.key): row for row in rows}
        for process in history.processes:
            found = await Processes(models).all(process.name, ended=True)
            history.instances[process.name] = {
                one.key: (one.state, one.ended, one.seen) for one in found
            }
        await models.aclose()
        return history

    @property
    def processes(self) -> list[Process[Any]]:
        managers = self.app._process_managers.values()
        return [each for each in managers if isinstance(each, Process)]

    @property
    def happened(self) -> Counter[str]:
        """How often which event happened."""
        return Counter(event.message_name for one in self.streams for event in one.events)

    def faults(self) -> list[str]:
        """Compares what is there with one sequential fold; each difference is a sentence."""
        events = [one for one in self.streams if one.version is not None]
        found = []
        last: Counter[str] = Counter()
        for one in events:
            last[one.aggregate_id] += 1
            if one.version != last[one.aggregate_id]:
                found.append(f"version {one.version} of {one.aggregate_id} is out of order")
        causes = Counter((one.aggregate_id, one.command_id) for one in self.streams)
        found += [f"{command} had its effect {n} times" for command, n in causes.items() if n > 1]
        for name, projection in self.app.projections.items():
            folded = fold_streams(projection, {}, events)
            expected = {key: row for key, row in folded.items() if row is not None}
            found += _differences(f"row of {name}", expected, self.rows[name])
        for process in self.processes:
            expected = self._fold(process)
            found += _differences(
                f"instance of {process.name}", expected, self.instances[process.name]
            )
        return found

    def _fold(self, process: Process[Any]) -> dict[str, tuple[Any, bool, int]]:
        progress: dict[str, Progress[Any]] = {}
        seen: Counter[str] = Counter()
        senders: dict[str, str] = {}
        for stream in self.streams:
            keys = list(process.keys_of(stream))
            if stream.rejection is not None:
                keys = [senders[stream.command_id]] if stream.command_id in senders else []
            for key in keys:
                before = progress.get(key)
                if before is not None and before.ended:
                    continue
                done = process.react(before, key, stream)
                if done is not None:
                    progress[key], envelopes = done
                    seen[key] += 1
                    senders |= {one.command_id: key for one in envelopes}
        return {
            key: (one.state.model_dump(mode="json"), one.ended, seen[key])
            for key, one in progress.items()
            if one.state is not None
        }


def _differences(what: str, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [
        f"{what} {key!r} is {found.get(key)!r}, not {expected.get(key)!r}"
        for key in sorted(expected.keys() | found.keys())
        if expected.get(key) != found.get(key)
    ]


async def insist(bus: CommandBus, command: Command, command_id: str) -> CommandResult:
    """Executes a command until there is a result; with its id again it is the same command."""
    attempt = 0
    while True:
        try:
            return await bus.execute(command, command_id=command_id)
        except (CommandTimeout, CommandRefused):
            attempt += 1
            await LOOKS.pause(attempt)


class Bank:
    """Transfers between accounts, some of which the bank refuses: a process manager at work."""

    accounts, good, bad = 4, 20, 4

    def __init__(self) -> None:
        self.app = bank_app

    async def begin(self, bus: CommandBus) -> None:
        for number in range(self.accounts):
            account = f"a{number}"
            await insist(bus, OpenAccount(account_id=account, owner=account), account)
            deposit = Deposit(account_id=account, transaction_id=f"in-{account}", amount=100)
            await insist(bus, deposit, f"in-{account}")

    async def go_on(self, bus: CommandBus, part: int = 0, parts: int = 1) -> None:
        wishes = []
        for number in range(part, self.good + self.bad, parts):
            source, target = f"a{number % self.accounts}", f"a{(number + 1) % self.accounts}"
            wish = RequestTransfer(
                transfer_id=f"t{number}",
                source=source,
                target=target,
                amount=number + 1 if number < self.good else 10_000,
            )
            wishes.append(insist(bus, wish, f"wish-{number}"))
        results = await asyncio.gather(*wishes)
        assert {one.status for one in results} == {"executed"}

    @property
    def expected(self) -> Counter[str]:
        return Counter(
            AccountOpened=self.accounts,
            Deposited=self.accounts,
            TransferRequested=self.good + self.bad,
            MoneySent=self.good,
            MoneyReceived=self.good,
            TransferCompleted=self.good,
            TransferCancelled=self.bad,
        )


class Conference:
    """Orders for more seats than there are: a process with states, rejections and timeouts."""

    seats, orders = 5, 12

    def __init__(self) -> None:
        self.app = conference_app

    async def begin(self, bus: CommandBus) -> None:
        await insist(bus, PlanConference(conference_id="c", seats=self.seats), "plan")

    async def go_on(self, bus: CommandBus, part: int = 0, parts: int = 1) -> None:
        names = [f"o{number}" for number in range(part, self.orders, parts)]
        wishes = [PlaceOrder(order_id=name, conference_id="c", seats=1) for name in names]
        await asyncio.gather(*(insist(bus, wish, f"place-{wish.order_id}") for wish in wishes))
        # An order is paid once it is held; those that were refused stay so.
        await asyncio.gather(*(self._paid(bus, name) for name in names))

    async def _paid(self, bus: CommandBus, name: str) -> None:
        attempt = 0
        while True:
            attempt += 1
            paid = await insist(bus, PayOrder(order_id=name), f"pay-{name}-{attempt}")
            if not paid.error or "is refused" in paid.sentence:
                return
            await LOOKS.pause(attempt)

    @property
    def expected(self) -> Counter[str]:
        refused = self.orders - self.seats
        each = dict.fromkeys(("SeatsReserved", "OrderHeld", "OrderPaid", "SeatsSold"), self.seats)
        return Counter(
            each | {"SeatsAdded": 1, "OrderPlaced": self.orders, "OrderRefused": refused}
        )


@pytest.fixture(params=[Bank, Conference], ids=["bank", "conference"])
def world(request: pytest.FixtureRequest) -> Any:
    """A sample, what is asked of it, and what has to come of that."""
    return request.param()


@pytest.fixture
def read_history() -> Callable[[App, Settings], Awaitable[History]]:
    return History.read


@pytest.fixture
def settled() -> Callable[..., Awaitable[None]]:
    """Waits until everything in the queue was handled, and nothing more comes of it."""

    async def wait(app: App, settings: Settings, twins: Sequence[str] = ("",)) -> None:
        transport, models = QueueTransport(settings.broker or ""), ReadModels(settings.read_models)
        await transport.start()
        try:
            while True:
                ends = await _ends(app, transport)
                for twin in twins:
                    await _handled(app, ends, transport, models, twin)
                if await _ends(app, transport) == ends:
                    return
        finally:
            await transport.aclose()
            await models.aclose()

    return wait


Ends = dict[str, dict[int, int]]


async def _ends(app: App, transport: QueueTransport) -> Ends:
    return {
        topic: {one.queue[1]: one.end for one in await transport.waiting(topic, {}) if one.end}
        for topic in (f"{app.name}.commands", f"{app.name}.events")
    }


async def _handled(
    app: App, ends: Ends, transport: QueueTransport, models: ReadModels, twin: str
) -> None:
    commands, events = f"{app.name}.commands", f"{app.name}.events"
    groups = {f"{app.name}.process.{name}": events for name in app._process_managers}
    for group, topic in {commands: commands, **groups}.items():
        attempt, behind = 0, True
        while behind:
            committed = await transport.committed(f"{group}{twin}", topic)
            behind = any(committed.get(each, 0) < end for each, end in ends[topic].items())
            attempt += behind
            await LOOKS.pause(max(1, attempt))
    # What somebody kept who was killed before he sent it, the others send after a while.
    attempt = 0
    while await models.transact(_count_unsent):
        attempt += 1
        await LOOKS.pause(attempt)
    queues = {(events, number): end for number, end in ends[events].items()}
    for projection in app.projections.values():
        await models.wait_for_offsets(projection, queues, timeout_ms=TIMEOUT_MS)


def _count_unsent(connection: Connection) -> int:
    unsent = select(func.count()).select_from(process_commands).where(~process_commands.c.sent)
    return connection.execute(unsent).scalar_one()


class Restarting:
    """A broker that may be away, behind an address that stays.

    Attributes:
        refused: connections that found nobody.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker: Broker | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self.address = ""
        self.refused = 0

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = "{}:{}".format(*server.sockets[0].getsockname())
        return server

    async def come(self) -> None:
        store = StoreSettings(directory=self._folder, segment_bytes=8 << 20)
        broker = Broker(BrokerSettings(store=store, port=0))
        await broker.start()
        self._broker = broker

    async def go(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.aclose()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._broker is None:
            self.refused += 1
            writer.close()
            return
        host, _, port = self._broker.address.rpartition(":")
        there, here = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_pipe(reader, here), _pipe(there, writer))


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with closing(target):
        try:
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        except OSError:
            pass  # one side is gone; the other one hears of it


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Restarting]:
    """A real broker on real files, which the test may stop and start."""
    restarting = Restarting(tmp_path / "broker")
    server = await restarting.listen()
    await restarting.come()
    yield restarting
    await restarting.go()
    server.close()


@pytest.fixture
def settings(broker: Restarting, tmp_path: Path) -> Settings:
    return Settings(
        broker=broker.address,
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
        retry_ms_min=1,
        retry_ms_max=20,
        result_timeout_ms=TIMEOUT_MS,
        result_resend_ms=200,
        # Two members by mistake on one queue race for each version, whoever of them is slower.
        conflict_retries_max=10_000,
    )


@pytest.fixture
def live(
    settled: Callable[..., Awaitable[None]],
) -> Callable[..., Any]:
    """Runs an application until the block ends and everything has settled; then it has stopped."""

    @asynccontextmanager
    async def run(app: App, settings: Settings) -> AsyncIterator[Any]:
        async with app.run(settings) as running:
            yield running
            await settled(app, settings)

    return run
