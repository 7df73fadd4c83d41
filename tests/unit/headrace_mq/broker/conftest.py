"""A real broker on its real store, and a client that speaks frames and nothing more."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.metadata import schedule_file, timeline_file, topics_file, transactions_file
from headrace_mq.broker.schedule.scheduler import Scheduler
from headrace_mq.broker.server import Broker
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.broker.transactions.coordinator import TransactionCoordinator
from headrace_mq.errors import BrokerError, ResponseCode, StoreFull, error_for
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, read_header
from headrace_mq.protocol.bodies import (
    CreateTopic,
    ErrorAnswer,
    Hello,
    HelloAnswer,
    ProduceAnswer,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, Frame, FrameReader, encode_frame
from headrace_mq.protocol.scheduled import AT_HEADER, DELAY_HEADER, SCHEDULE_QUEUE, TOPIC_HEADER
from headrace_mq.protocol.transactions import (
    TRANSACTION_QUEUE,
    Bundle,
    BundleEnds,
    Check,
    EndTransactions,
    TakeChecks,
    TransactionsEnded,
)
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.store.message_store import MessageStore
from tests.unit.headrace_mq.conftest import uvloop_of_a_test


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What a broker runs on."""
    return {"uvloop": uvloop_of_a_test}


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.monotonic = 1_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.monotonic

    def boot_id(self) -> str:
        return "boot"


class RawClient:
    """One connection; answers and pushes are kept apart as they arrive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.answers: dict[int, Frame] = {}
        self.pushes: list[Frame] = []
        self._cutter = FrameReader(64 << 20)
        self._correlation = 0

    def send(self, code: int, body: Any = b"", *, flags: int = 0) -> int:
        """Sends a request and returns its correlation id."""
        self._correlation += 1
        data = body if isinstance(body, bytes | bytearray) else encode(body)
        self.writer.write(encode_frame(code, self._correlation, data, flags=flags))
        return self._correlation

    async def receive(self) -> None:
        """Takes one read; raises ConnectionError when the broker has closed."""
        data = await self.reader.read(1 << 20)
        if not data:
            raise ConnectionError("the broker closed the connection")
        for frame in self._cutter.feed(data):
            if frame.flags & FLAG_ANSWER:
                assert frame.correlation not in self.answers, "answered twice"
                self.answers[frame.correlation] = frame
            else:
                self.pushes.append(frame)

    async def answer(self, correlation: int) -> Frame:
        """Waits for the answer to one request."""
        while correlation not in self.answers:
            await self.receive()
        return self.answers.pop(correlation)

    async def push(self) -> Frame:
        """Waits for the next push."""
        while not self.pushes:
            await self.receive()
        return self.pushes.pop(0)

    async def ask(self, code: int, body: Any = b"") -> memoryview:
        """Sends a request and returns the body of its answer; raises what the broker raised."""
        frame = await self.answer(self.send(code, body))
        if frame.code != ResponseCode.OK:
            raise error_for(frame.code, decode(ErrorAnswer, frame.body).sentence)
        return frame.body

    async def refusal(self, code: int, body: Any = b"") -> BrokerError:
        """Sends a request that must be refused and returns the error, which must say something."""
        with pytest.raises(BrokerError) as caught:
            await self.ask(code, body)
        assert len(str(caught.value)) > 20
        return caught.value

    async def hello(self, client_id: str = "client") -> HelloAnswer:
        """Shakes hands."""
        return decode(HelloAnswer, await self.ask(RequestCode.HELLO, Hello(client_id, 1, 1)))

    async def create(self, topic: str, queues: int = 1, retention: str = "transient") -> None:
        """Creates a topic."""
        body = await self.ask(RequestCode.CREATE_TOPIC, CreateTopic(topic, queues, retention))
        assert decode(TopicsAnswer, body).topics[0].topic == topic

    async def produce(self, *batches: bytearray) -> ProduceAnswer:
        """Sends batches in one request."""
        return decode(ProduceAnswer, await self.ask(RequestCode.PRODUCE, b"".join(batches)))

    async def closed(self) -> bool:
        """Waits until the broker closes the connection; True, so that it can be asserted."""
        try:
            while True:
                await self.receive()
        except ConnectionError:
            return True


Connect = Callable[..., Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]
MakeBatch = Callable[..., bytearray]


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Turns the loop until something holds that no event tells."""

    async def wait(holds: Callable[[], object]) -> None:
        while not holds():
            await asyncio.sleep(0)

    return wait


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., BrokerSettings]:
    """Makes settings of a broker whose files are the test's own."""

    def make(*, stored: Mapping[str, Any] | None = None, **changed: Any) -> BrokerSettings:
        store = StoreSettings(
            **{"directory": tmp_path / "store", "segment_bytes": 1 << 20, **(stored or {})}
        )
        return BrokerSettings(**{"store": store, "port": 0, **changed})

    return make


@pytest.fixture
async def start(settings: Callable[..., BrokerSettings]) -> AsyncIterator[Start]:
    """Starts brokers, all on the same directory: one at a time."""
    brokers: list[Broker] = []

    async def start_one(
        *, clock: FakeClock | None = None, disk: Any = None, **changed: Any
    ) -> Broker:
        broker = Broker(settings(**changed), clock=clock, disk=disk)
        await broker.start()
        brokers.append(broker)
        return broker

    yield start_one
    for broker in brokers:
        await broker.aclose()


@pytest.fixture
async def broker(start: Start) -> Broker:
    return await start()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections; says hello unless `client_id` is empty."""
    clients: list[RawClient] = []

    async def open_one(broker: Broker | str, client_id: str = "client") -> RawClient:
        address = broker if isinstance(broker, str) else broker.address
        host, port = address.rsplit(":", 1)
        client = RawClient(*await asyncio.open_connection(host, int(port)))
        clients.append(client)
        if client_id:
            await client.hello(client_id)
        return client

    yield open_one
    for client in clients:
        if not client.writer.transport.is_closing():
            client.writer.transport.abort()


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> RawClient:
    return await connect(broker)


@pytest.fixture
def batch() -> MakeBatch:
    """Builds a record batch."""

    def build(topic: str = "t", queue_id: int = 0, *bodies: bytes, **fields: int) -> bytearray:
        columns = Columns([], [], [], list(bodies) or [b"body"], [])
        return encode_batch(
            QueueRef(topic, queue_id), columns, born_first_ms=1_700_000_000_000, **fields
        )

    return build


T, KEPT = QueueRef("t", 0), QueueRef("kept", 0)


class Rig:
    """A store and its topics, as a broker has them, and a disk that may be full."""

    def __init__(self, directory: Path, clock: Any, *, epoch: int) -> None:
        self.settings = StoreSettings(directory=directory, segment_bytes=64 << 10)
        self.directory, self.clock = directory, clock
        self.store = MessageStore(self.settings, epoch=epoch, clock=clock)
        self.store.open()
        self.topics = Topics(topics_file(directory), default_queues=1, auto_create=True)
        held = self.store.queues()
        self.topics.load((ref, log, self.store.range(ref)[1]) for ref, log in held)
        self.topics.create(CreateTopic("t", 1))
        self.topics.create(CreateTopic("kept", 1, "forever"))
        self.full = False

    def check_room(self) -> None:
        if self.full:
            raise StoreFull("full")

    def records(self, queue: QueueRef = T) -> list[Record]:
        found: list[Record] = []
        offset, end = self.store.range(queue)
        while offset < end:
            for batch in self.store.read(queue, offset, 1 << 20):
                found += decode_records(batch)
                offset = found[-1].offset + 1
        return found

    def bodies(self, queue: QueueRef = T) -> list[bytes]:
        return [record.body for record in self.records(queue)]

    def killed(self, into: str) -> str:
        """Copies the files as they are: what a killed process leaves behind."""
        shutil.copytree(self.directory, self.directory.parent / into)
        return into


class ScheduleRig(Rig):
    """With a schedule."""

    def __init__(
        self, directory: Path, clock: Any, *, epoch: int = 1, pending_max: int = 100
    ) -> None:
        super().__init__(directory, clock, epoch=epoch)
        self.steady = SteadyClock(clock, timeline_file(directory), self.settings)
        self.schedule = Scheduler(
            self.store,
            self.topics,
            clock=self.steady,
            file=schedule_file(directory),
            epoch=epoch,
            pending_max=pending_max,
            check_room=self.check_room,
        )
        self.schedule.load()
        self.store.on_visible = self.visible

    def visible(self, queues: Any) -> None:
        if SCHEDULE_QUEUE in queues:
            self.schedule.journal_grew()

    async def enter(self, *bodies: bytes, topic: str = "t", **when: int) -> int:
        """Schedules messages as a producer does; returns the number of the first."""
        ((name, ms),) = when.items()
        header = {"at_ms": AT_HEADER, "delay_ms": DELAY_HEADER}[name]
        headers = [{TOPIC_HEADER: topic, header: str(ms)}] * len(bodies)
        batch = encode_batch(
            SCHEDULE_QUEUE, Columns([], [], headers, list(bodies), []), born_first_ms=1
        )
        self.schedule.check(read_header(batch), memoryview(batch))
        number = self.store.append(batch, retention="transient").base_offset
        await self.store.durable()
        return number

    def stored(self) -> int:
        """How many messages both topics hold."""
        return self.store.range(T)[1] + self.store.range(KEPT)[1]

    async def aclose(self) -> None:
        await self.schedule.aclose()
        await self.steady.keep(always=True)
        await self.store.aclose()


class TransactionRig(Rig):
    """With transactions."""

    def __init__(self, directory: Path, clock: Any, *, epoch: int = 1, **changed: Any) -> None:
        super().__init__(directory, clock, epoch=epoch)
        self.transactions: TransactionCoordinator[str] = TransactionCoordinator(
            self.store,
            self.topics,
            clock=SteadyClock(clock, timeline_file(directory), self.settings),
            file=transactions_file(directory),
            epoch=epoch,
            settings=BrokerSettings(store=self.settings, **changed),
            check_room=self.check_room,
        )
        self.transactions.load()
        self.store.on_visible = self.visible

    def visible(self, queues: Any) -> None:
        if TRANSACTION_QUEUE in queues:
            self.transactions.journal_grew()

    def offer(self, *bundles: Bundle) -> bytearray:
        """A batch that a producer sends, checked."""
        bodies = [encode(bundle) for bundle in bundles]
        batch = encode_batch(TRANSACTION_QUEUE, Columns([], [], [], bodies, []), born_first_ms=1)
        self.transactions.check(read_header(batch), memoryview(batch))
        return batch

    async def prepare(self, *bundles: Bundle) -> int:
        """Prepares bundles as a producer does; returns the number of the first."""
        number = self.store.append(self.offer(*bundles), retention="transient").base_offset
        await self.store.durable()
        return number

    def end(
        self, number: int, commit: Any = (), roll_back: Any = (), group: str = "g"
    ) -> "asyncio.Future[TransactionsEnded]":
        ends = [BundleEnds(number, list(commit), list(roll_back))]
        return self.transactions.end(EndTransactions(group, ends))

    def wait_for_checks(self, session: str = "s", client_id: str = "client") -> list[list[Check]]:
        """Waits for questions; the list gets what is asked."""
        asked: list[list[Check]] = []
        self.transactions.take_checks(session, TakeChecks("g", client_id, 1_000), asked.append)
        return asked

    def undecided(self) -> int:
        return self.transactions.describe().undecided

    async def aclose(self) -> None:
        await self.transactions.aclose()
        await self.store.aclose()


@pytest.fixture
async def open_schedule(tmp_path: Path, clock: Any) -> AsyncIterator[Callable[..., ScheduleRig]]:
    rigs: list[ScheduleRig] = []

    def make(directory: str = "a", **options: Any) -> ScheduleRig:
        rigs.append(ScheduleRig(tmp_path / directory, clock, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        await rig.aclose()


@pytest.fixture
def move(clock: Any) -> Callable[[ScheduleRig, int], None]:
    def move(rig: ScheduleRig, ms: int) -> None:
        clock.now += ms
        clock.monotonic += ms
        rig.schedule.look()

    return move


@pytest.fixture
async def open_transactions(
    tmp_path: Path, clock: Any
) -> AsyncIterator[Callable[..., TransactionRig]]:
    rigs: list[TransactionRig] = []

    def make(directory: str = "a", *, start: bool = True, **options: Any) -> TransactionRig:
        rigs.append(TransactionRig(tmp_path / directory, clock, **options))
        if start:
            rigs[-1].transactions.start()
        return rigs[-1]

    yield make
    for rig in rigs:
        await rig.aclose()
