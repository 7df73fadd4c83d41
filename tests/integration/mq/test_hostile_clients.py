"""A real broker and clients that misbehave: whatever they do, the others are served."""

import asyncio
import resource
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._net.link import hello_for
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import (
    FrameTooLarge,
    MalformedRequest,
    ResponseCode,
    TooManyConnections,
    UnknownRequest,
)
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import ErrorAnswer, Fetch, FetchFrom, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, FrameReader, encode_frame
from headrace_mq.settings import BrokerSettings, StoreSettings

KIB, MIB = 1 << 10, 1 << 20
IDLE = 1_000
# Far behind the last request.
UNKNOWN_CODE = 250
assert UNKNOWN_CODE not in set(RequestCode)


@asynccontextmanager
async def running(directory: Path, **settings: Any) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=directory, segment_bytes=8 * MIB, disk_refuse_percent=100)
    broker = Broker(BrokerSettings(store=store, port=0, **settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.aclose()


class Raw:
    """A socket that sends whatever the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameReader(64 * MIB)

    @classmethod
    async def dial(cls, broker: Broker, *, hello: bool = True) -> "Raw":
        host, port = broker.address.rsplit(":", 1)
        raw = cls(*await asyncio.open_connection(host, int(port)))
        if hello:
            raw.say(RequestCode.HELLO, encode(hello_for("raw")))
            (answer,) = await raw.frames(1)
            assert answer.code == ResponseCode.OK
        return raw

    def say(self, code: int, *parts: bytes, correlation: int = 1) -> None:
        self.writer.write(encode_frame(code, correlation, *parts))

    async def frames(self, count: int) -> list[Frame]:
        found: list[Frame] = []
        while len(found) < count:
            data = await self.reader.read(256 * KIB)
            assert data, f"the broker closed after {len(found)} of {count} frames"
            found += self._frames.feed(data)
        return found

    async def closed(self) -> list[Frame]:
        """The frames until the broker closed the connection."""
        found: list[Frame] = []
        try:
            while data := await self.reader.read(256 * KIB):
                found += self._frames.feed(data)
        except ConnectionResetError:
            pass
        return found

    def hang_up(self) -> None:
        self.writer.transport.abort()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path / "data", frame_ms_max=50, outgoing_bytes_max=256 * KIB) as broker:
        yield broker


@pytest.fixture
async def served(broker: Broker) -> AsyncIterator[Callable[[], Any]]:
    """Checks that a well-behaved client is served, on a connection from before the trouble."""
    async with Producer(broker.address) as producer:
        await producer.send(Message(topic="t", body=b"before", key="k"))

        async def check() -> None:
            async with asyncio.timeout(40):
                await producer.send(Message(topic="t", body=b"after", key="k"))
                async with Producer(broker.address) as another:
                    await another.send(Message(topic="t", body=b"new", key="k"))

        yield check


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", FrameTooLarge.code),
        (struct.pack("<I", 3) + bytes(20), MalformedRequest.code),
        (struct.pack("<I", (1 << 32) - 1) + bytes(20), FrameTooLarge.code),
        (encode_frame(RequestCode.HELLO, 1, b"\xc1 no msgpack"), MalformedRequest.code),
        (encode_frame(RequestCode.FETCH, 1, b""), MalformedRequest.code),
        (encode_frame(RequestCode.HELLO, 1, bytes(65 * KIB)), FrameTooLarge.code),
    ],
)
async def test_a_connection_without_a_handshake_gets_a_reason_and_is_closed(
    broker: Broker, served: Any, stream: bytes, code: int
) -> None:
    raw = await Raw.dial(broker, hello=False)
    raw.writer.write(stream)
    (told,) = await raw.closed()
    assert told.code == code
    assert decode(ErrorAnswer, told.body).sentence
    raw.hang_up()
    await served()


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.PRODUCE, b"no batch"),
        (RequestCode.PRODUCE, b""),
        (RequestCode.FETCH, b"\x91\x91"),
        (RequestCode.HELLO, encode(hello_for("again"))),
    ],
)
async def test_a_malformed_request_ends_its_connection_alone(
    broker: Broker, served: Any, code: int, body: bytes
) -> None:
    raw = await Raw.dial(broker)
    raw.say(code, body)
    told = await raw.closed()
    assert [frame.code for frame in told] == [MalformedRequest.code]
    raw.hang_up()
    await served()


async def test_an_unknown_request_and_a_damaged_batch_leave_the_connection_open(
    broker: Broker, served: Any
) -> None:
    raw = await Raw.dial(broker)
    raw.say(UNKNOWN_CODE, b"", correlation=2)
    batch = encode_batch(QueueRef("t", 0), Columns([], [], [], [b"x"], []), born_first_ms=1)
    batch[-1] ^= 1
    raw.say(RequestCode.PRODUCE, bytes(batch), correlation=3)
    raw.say(RequestCode.DESCRIBE_BROKER, correlation=4)
    answers = await raw.frames(3)
    codes = {frame.correlation: frame.code for frame in answers}
    assert codes == {2: UnknownRequest.code, 3: ResponseCode.OK, 4: ResponseCode.OK}
    raw.hang_up()
    await served()


async def test_a_huge_frame_is_refused_by_its_length_before_its_bytes_are_held(
    broker: Broker, served: Any
) -> None:
    raw = await Raw.dial(broker)
    raw.writer.write(struct.pack("<IHBBQ", 1 << 31, RequestCode.PRODUCE, 1, 0, 7))
    told = await raw.closed()
    assert [(frame.code, frame.correlation) for frame in told] == [(FrameTooLarge.code, 0)]
    raw.hang_up()
    await served()


async def test_bytes_that_trickle_in_are_cut_off(broker: Broker, served: Any) -> None:
    raw = await Raw.dial(broker)
    frame = encode_frame(RequestCode.PRODUCE, 9, bytes(10_000))
    told: asyncio.Task[list[Frame]] = asyncio.create_task(raw.closed())
    for byte in frame:
        raw.writer.write(bytes([byte]))
        await asyncio.wait([told], timeout=0.001)
        if told.done():
            break
    assert [(frame.code, frame.correlation) for frame in await told] == [(MalformedRequest.code, 0)]
    raw.hang_up()
    await served()


async def test_a_connection_that_says_nothing_is_cut_off(tmp_path: Path) -> None:
    # The least that the settings allow.
    async with running(tmp_path / "data", member_expiry_ms=1_000) as broker:
        raw = await Raw.dial(broker, hello=False)
        raw.writer.write(b"\x1b")
        async with asyncio.timeout(40):
            assert await raw.closed() == []
        raw.hang_up()


async def test_a_client_that_never_reads_its_answers_fills_no_memory(
    broker: Broker, served: Any
) -> None:
    async with Producer(broker.address) as producer:
        await producer.send_many(
            [Message(topic="big", body=bytes(100 * KIB), key="k") for _ in range(20)]
        )
        (queue,) = {
            result.queue
            for result in [await producer.send(Message(topic="big", body=b"", key="k"))]
        }
    raw = await Raw.dial(broker)
    raw.writer.transport.pause_reading()
    fetch = encode(Fetch([FetchFrom(*queue, 0)], 2 * MIB, 0, "g"))
    for number in range(500):
        raw.say(RequestCode.FETCH, fetch, correlation=number)
    state = broker._state
    assert state is not None
    async with asyncio.timeout(40):
        while not any(connection.congested for connection in state.server.connections):
            await asyncio.sleep(0)
    await served()
    (slow,) = [c for c in state.server.connections if c.congested]
    # Its limit, one answer and what the transport holds; 500 answers would be a gigabyte.
    assert slow._out_bytes + slow._transport.get_write_buffer_size() < 8 * MIB
    raw.hang_up()


async def test_clients_that_vanish_with_requests_in_work_leave_nothing_behind(
    broker: Broker, served: Any
) -> None:
    state = broker._state
    assert state is not None
    batch = bytes(encode_batch(QueueRef("t", 0), Columns([], [], [], [b"x"], []), born_first_ms=1))
    fetch = encode(Fetch([FetchFrom("t", 0, 0), FetchFrom("t", 1, 0)], MIB, 60_000, "g"))
    raws = [await Raw.dial(broker) for _ in range(20)]
    for raw in raws:
        raw.say(RequestCode.PRODUCE, batch)
        raw.say(RequestCode.FETCH, fetch, correlation=2)
        raw.say(RequestCode.PRODUCE, batch[:50], correlation=3)
        # A reset instead of a farewell.
        sock: socket.socket = raw.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.hang_up()
    await served()
    async with asyncio.timeout(40):
        while len(state.server.connections) > 1 or len(state.long_poll):
            await asyncio.sleep(0)


async def test_half_open_connections_are_noticed_by_the_kernel(broker: Broker) -> None:
    raw = await Raw.dial(broker)
    state = broker._state
    assert state is not None
    (connection,) = state.server.connections
    sock = connection._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    raw.hang_up()


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as the machine grants; processes that are started have them too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_thousand_idle_connections_cost_the_others_nothing_and_the_limit_holds(
    many_files: None, start_broker: Any
) -> None:
    broker = await start_broker(connections_max=IDLE + 2)
    raws = [await Raw.dial(broker) for _ in range(IDLE)]
    async with Producer(broker.address) as producer, AdminClient(broker.address) as admin:
        result = await producer.send(Message(topic="t", body=b"x", key="k"))
        assert result.offset == 0
        assert len(await admin.connections()) == IDLE + 2
        refused = await Raw.dial(broker, hello=False)
        (told,) = await refused.closed()
        assert told.code == TooManyConnections.code
        refused.hang_up()
    for raw in raws:
        raw.hang_up()
