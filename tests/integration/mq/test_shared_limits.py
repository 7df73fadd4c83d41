"""A real broker in a process of its own, and clients that pile up what they can: the others are served."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._net.link import hello_for
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import (
    InvalidArgument,
    Overloaded,
    ResponseCode,
    Throttled,
    TooManyConnections,
)
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.bodies import (
    CreateTopic,
    ErrorAnswer,
    Fetch,
    FetchFrom,
    JoinGroup,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, FrameReader, encode_frame

KIB, MIB = 1 << 10, 1 << 20
# Says its address, and what it takes of memory whenever a line comes.
BROKER = """
import json, resource, sys, threading
from pathlib import Path
from headrace_mq.broker.process import run
from headrace_mq.settings import BrokerSettings, StoreSettings

files = int(sys.argv[3])
if files:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
store = StoreSettings(
    directory=Path(sys.argv[1]), segment_bytes=64 << 10, disk_refuse_percent=100
)

def tell():
    for _ in sys.stdin:
        for line in open("/proc/self/status"):
            if line.startswith("VmRSS"):
                print("memory", int(line.split()[1]) // 1024, flush=True)

threading.Thread(target=tell, daemon=True).start()
run(
    BrokerSettings(store=store, port=0, **json.loads(sys.argv[2])),
    ready=lambda address: print("ready", address, flush=True),
)
"""


class Process:
    """A broker, and how much memory it has."""

    def __init__(self, child: Any, address: str) -> None:
        self._child = child
        self.address = address

    async def memory_mib(self) -> int:
        await self._child.tell("")
        return int(await self._child.heard("memory"))


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
def start(start_child: Any, tmp_path: Path) -> Start:
    async def start(settings: str = "{}", files: int = 0) -> Process:
        child = await start_child(BROKER, str(tmp_path / "data"), settings, str(files))
        return Process(child, await child.heard("ready"))

    return start


class Raw:
    """A socket that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader(64 * MIB)
        self._kept: list[Frame] = []

    @classmethod
    async def dial(cls, address: str, name: str = "raw", *, hello: bool = True) -> "Raw":
        host, port = address.rsplit(":", 1)
        raw = cls(*await asyncio.open_connection(host, int(port)))
        if hello:
            assert (await raw.ask(RequestCode.HELLO, encode(hello_for(name)))).code == 0
        return raw

    async def ask(self, code: int, body: bytes) -> Frame:
        self.writer.write(encode_frame(code, 1, body))
        return await self.frame()

    async def frame(self) -> Frame:
        """The next one; raises ConnectionResetError where there is none any more."""
        while not self._kept:
            data = await self.reader.read(256 * KIB)
            if not data:
                raise ConnectionResetError
            self._kept += self._frames.feed(data)
        return self._kept.pop(0)

    def hang_up(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def served(broker: Process) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Checks that clients from before the trouble, and new ones, are served."""
    async with Producer(broker.address) as producer:
        await producer.send(Message(topic="honest", body=b"before", key="k"))

        async def check() -> None:
            async with asyncio.timeout(40):
                await producer.send(Message(topic="honest", body=bytes(MIB), key="k"))
                async with Producer(broker.address) as another:
                    await another.send(Message(topic="honest", body=b"new", key="k"))
                async with Consumer(broker.address, group="new", topics=["honest"]) as consumer:
                    assert await consumer.poll()

        yield check


async def test_sixty_frames_that_never_end_take_no_more_than_their_budget(start: Start) -> None:
    broker = await start(f'{{"requests_bytes_max": {32 * MIB}}}')
    async with served(broker) as check:
        before = await broker.memory_mib()
        frame = encode_frame(RequestCode.PRODUCE, 1, bytes(4 * MIB))[:-KIB]
        raws = []
        for number in range(60):
            raws.append(await Raw.dial(broker.address, f"endless {number}"))
            raws[-1].writer.write(frame)
            # Refused ones read no more, so that not all of it may leave.
            await asyncio.wait([asyncio.create_task(raws[-1].writer.drain())], timeout=0.2)
            if number % 20 == 0:
                await check()
        await check()
        # Without the budget it would be 240 MiB. A buffer grows ahead of what it holds.
        assert await broker.memory_mib() - before < 90
        told = await raws[0].frame()
        assert told.code == Overloaded.code
        for raw in raws:
            raw.hang_up()


async def test_forty_readers_that_never_drain_take_no_more_than_their_budget(start: Start) -> None:
    broker = await start(f'{{"answers_bytes_max": {48 * MIB}}}')
    async with served(broker) as check, Producer(broker.address) as producer:
        bodies = [Message(topic="big", body=bytes(MIB), key="k") for _ in range(4)]
        (queue,) = {result.queue for result in await producer.send_many(bodies)}
        before = await broker.memory_mib()
        fetch = encode_frame(
            RequestCode.FETCH, 1, encode(Fetch([FetchFrom(*queue, 0)], 4 * MIB, 0))
        )
        raws = [await Raw.dial(broker.address, f"slow {number}") for number in range(40)]
        for number, raw in enumerate(raws):
            raw.writer.transport.pause_reading()
            raw.writer.write(fetch * 100)
            if number % 10 == 0:
                await check()
        await check()
        # Without the budget it would be 18 MiB for each of them, 720 in all. What is read for answers
        # that are thrown away again takes some as well.
        assert await broker.memory_mib() - before < 48 + 150
        for raw in raws:
            raw.hang_up()


async def test_memberships_have_a_budget_and_give_their_memory_back(start: Start) -> None:
    broker = await start()
    async with served(broker) as check:
        before = await broker.memory_mib()
        outcomes = set()
        for number in range(8):
            raw = await Raw.dial(broker.address, f"joiner {number}")
            for member in range(1_024):
                topics = [f"topic-{number}-{member}-{name}" for name in range(256)]
                request = JoinGroup(f"group {number} {member}", "m", topics)
                outcomes.add((await raw.ask(RequestCode.JOIN_GROUP, encode(request))).code)
            if number % 4 == 3:
                await check()
            raw.hang_up()
        assert outcomes == {ResponseCode.OK, InvalidArgument.code}
        # Each of them alone took 48 MiB, which stayed.
        assert await broker.memory_mib() - before < 40
        await check()


async def test_one_address_does_not_take_all_connections(start: Start) -> None:
    broker = await start('{"connections_max": 40, "connections_per_address_max": 20}')
    raws = [await Raw.dial(broker.address, f"idle {number}") for number in range(20)]
    refused = await Raw.dial(broker.address, hello=False)
    assert (await refused.frame()).code == TooManyConnections.code
    # Another address of this machine.
    host, port = broker.address.rsplit(":", 1)
    other = Raw(*await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0)))
    assert (await other.ask(RequestCode.HELLO, encode(hello_for("other")))).code == ResponseCode.OK
    for raw in [*raws, refused, other]:
        raw.hang_up()


async def test_a_silent_connection_makes_room_for_one_that_says_hello(start: Start) -> None:
    broker = await start('{"connections_before_hello_max": 10}')
    silent = [await Raw.dial(broker.address, hello=False) for _ in range(30)]
    async with served(broker) as check:
        await check()
    assert (await silent[0].frame()).code == TooManyConnections.code
    for raw in silent:
        raw.hang_up()


async def test_descriptors_are_kept_for_segments_however_many_clients_connect(start: Start) -> None:
    broker = await start(files=200)
    async with served(broker) as check, Producer(broker.address) as producer:
        crowd = []
        refused = 0
        for number in range(250):
            try:
                raw = await Raw.dial(broker.address, f"crowd {number}", hello=False)
                crowd.append(raw)
                answer = await raw.ask(RequestCode.HELLO, encode(hello_for(f"crowd {number}")))
                refused += answer.code == TooManyConnections.code
            except OSError:
                refused += 1
        assert refused > 100
        # Some thirty segments are made while they stay: each has a file, and an index beside it.
        for _ in range(30):
            await producer.send(Message(topic="honest", body=bytes(60 * KIB), key="k"))
        for raw in crowd:
            raw.hang_up()
        await check()


async def test_queues_and_offsets_are_not_used_up_by_one_client_in_a_second(start: Start) -> None:
    broker = await start('{"address_queues_per_minute": 600, "address_offsets_per_minute": 600}')
    async with AdminClient(broker.address) as admin:
        await admin.create_topic("wide", 500)
        raw = await Raw.dial(broker.address)
        answers = [
            await raw.ask(RequestCode.CREATE_TOPIC, encode(CreateTopic(f"t{number}", 50)))
            for number in range(20)
        ]
        assert answers[0].code == ResponseCode.OK
        assert answers[-1].code == Throttled.code
        assert "address_queues_per_minute" in decode(ErrorAnswer, answers[-1].body).sentence
        raw.hang_up()
        status = await admin.status()
        assert status.queues <= 650
        offsets = {QueueRef("wide", number): 0 for number in range(500)}
        await admin.set_offsets("first", offsets)
        with pytest.raises(Throttled, match="address_offsets_per_minute"):
            await admin.set_offsets("second", offsets)
        # Who is there moves on all the same.
        await admin.set_offsets("first", offsets)
