import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from headrace_mq._net.ledger import Budgets
from headrace_mq._net.server import Connection, FrameServer, ServerLimits
from headrace_mq.errors import (
    BrokerError,
    FrameTooLarge,
    MalformedRequest,
    MessageQueueError,
    TooManyConnections,
)
from headrace_mq.protocol.frame import FLAG_ANSWER, Frame, FrameReader, encode_frame

MIB = 1 << 20


BUDGETS = Budgets(100, 100, 100, 64 * MIB, 64 * MIB)
NAMES = Budgets._fields


def limits(**changed: int) -> ServerLimits:
    values = {
        "descriptors_max": 1 << 20,
        "frame_bytes_before_hello_max": MIB,
        "outgoing_bytes_max": MIB,
        "hello_ms": 30_000,
        "frame_ms": 30_000,
        "vanished_ms": 60_000,
        "busy_poll_us": 0,
    }
    budgets = BUDGETS._replace(**{name: changed.pop(name) for name in [*changed] if name in NAMES})
    return ServerLimits(budgets=budgets, **(values | changed))


class Echo:
    """Answers each frame with its own body, or with as many bytes as its code says in KiB."""

    def __init__(self) -> None:
        self.handled: list[Frame] = []
        self.unreadable: list[BrokerError] = []
        self.drained: list[Connection] = []
        self.lost: list[Connection] = []

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        self.handled.append(frame)
        body = bytes(frame.code << 10) if frame.code else bytes(frame.body)
        connection.answer(0, frame.correlation, body)

    def on_unreadable(self, connection: Connection, error: BrokerError) -> None:
        self.unreadable.append(error)
        connection.answer(error.code, 0, b"why")

    def on_drained(self, connection: Connection) -> None:
        self.drained.append(connection)

    def on_lost(self, connection: Connection) -> None:
        self.lost.append(connection)


class FakeTransport(asyncio.Transport):
    """Records what a connection does to its socket."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False
        self.wrote = asyncio.Event()
        self.unsent = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        self.wrote.set()

    def writelines(self, list_of_data: list[bytes]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


@pytest.fixture
async def wired() -> AsyncIterator[tuple[Connection, FakeTransport, Echo]]:
    handler = Echo()
    server = FrameServer(limits(outgoing_bytes_max=1_000), handler)
    server.loop = asyncio.get_running_loop()
    connection, transport = Connection(server), FakeTransport()
    connection.connection_made(transport)
    yield connection, transport, handler
    connection.connection_lost(None)


@asynccontextmanager
async def running(handler: Echo, **changed: int) -> AsyncIterator[tuple[FrameServer, str, int]]:
    server = FrameServer(limits(**changed), handler)
    address = await server.listen("127.0.0.1", 0)
    host, port = address.rsplit(":", 1)
    try:
        yield server, host, int(port)
    finally:
        await server.aclose(1_000)


Dial = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    writers: list[asyncio.StreamWriter] = []

    async def open_one(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, port)
        writers.append(writer)
        return reader, writer

    yield open_one
    for writer in writers:
        if not writer.transport.is_closing():
            writer.transport.abort()


async def read_frames(reader: asyncio.StreamReader, count: int) -> list[Frame]:
    frames: list[Frame] = []
    cutter = FrameReader(64 * MIB)
    while len(frames) < count:
        data = await reader.read(1 << 18)
        assert data, f"the server closed after {len(frames)} of {count} frames"
        frames += cutter.feed(data)
    return frames


async def until(holds: Callable[[], object]) -> None:
    """Turns the loop until something holds that no event tells."""
    while not holds():
        await asyncio.sleep(0)


async def congestion(server: FrameServer) -> None:
    await until(lambda: any(connection.congested for connection in server.connections))


def correlations(data: bytes) -> list[int]:
    return [frame.correlation for frame in FrameReader(64 * MIB).feed(data)]


Wired = tuple[Connection, FakeTransport, Echo]


def test_requests_of_one_read_are_answered_in_one_write(wired: Wired) -> None:
    connection, transport, _ = wired
    connection.data_received(b"".join(encode_frame(0, number, b"x") for number in range(10)))
    assert [correlations(write) for write in transport.writes] == [list(range(10))]


async def test_reading_goes_on_when_requests_end_with_answers_over_the_limit(
    wired: Wired,
) -> None:
    connection, transport, handler = wired
    connection.charge(1_001)
    connection.data_received(encode_frame(0, 1))
    assert not transport.reading
    connection.answer(0, 9, bytes(2_000))
    connection.discharge(1_001)
    await until(lambda: transport.reading)
    assert [frame.correlation for frame in handler.handled] == [1]


async def test_answers_given_later_in_one_tick_leave_in_one_write(wired: Wired) -> None:
    connection, transport, _ = wired
    for number in range(10):
        connection.answer(0, number)
    assert transport.writes == []
    await transport.wrote.wait()
    assert [correlations(write) for write in transport.writes] == [list(range(10))]


async def test_gathered_answers_leave_in_one_write_when_they_are_flushed(wired: Wired) -> None:
    connection, transport, _ = wired
    connection.gather()
    connection.answer(0, 1)
    connection.answer(0, 2)
    await asyncio.sleep(0)
    assert transport.writes == []
    connection.flush()
    assert [correlations(write) for write in transport.writes] == [[1, 2]]
    transport.wrote.clear()
    connection.answer(0, 3)
    await transport.wrote.wait()
    assert [correlations(write) for write in transport.writes] == [[1, 2], [3]]


def test_answers_carry_the_flag_and_pushes_do_not(wired: Wired) -> None:
    connection, transport, _ = wired
    connection.answer(0, 1)
    connection.push(128, b"")
    connection.flush()
    frames = list(FrameReader(MIB).feed(transport.writes[0]))
    assert [frame.flags for frame in frames] == [FLAG_ANSWER, 0]


def test_a_large_answer_is_the_same_frame_as_a_small_one(wired: Wired) -> None:
    connection, transport, _ = wired
    parts = (b"a" * 70_000, memoryview(b"b" * 70_000))
    connection.answer(0, 1, *parts)
    connection.flush()
    assert transport.writes == [encode_frame(0, 1, *parts, flags=FLAG_ANSWER)]


def test_nothing_is_read_or_handled_while_the_client_does_not_read(wired: Wired) -> None:
    connection, transport, handler = wired
    transport.unsent = 1_001
    connection.pause_writing()
    assert not transport.reading
    connection.data_received(encode_frame(0, 1) + encode_frame(0, 2))
    connection.data_received(encode_frame(0, 3))
    assert handler.handled == []
    transport.unsent = 0
    connection.resume_writing()
    assert [frame.correlation for frame in handler.handled] == [1, 2, 3]
    assert transport.reading
    assert handler.drained == [connection]


def test_a_frame_that_congests_leaves_the_others_of_its_read_for_later(wired: Wired) -> None:
    connection, transport, handler = wired

    def congest(data: bytes) -> None:
        transport.writes.append(data)
        transport.unsent = 1_001
        connection.pause_writing()

    transport.write = congest  # type: ignore[method-assign]  # a socket that takes nothing more
    connection.data_received(b"".join(encode_frame(1, number) for number in range(5)))
    assert len(handler.handled) < 5
    assert not transport.reading


def test_answers_over_the_limit_that_the_socket_takes_hold_nothing_up(wired: Wired) -> None:
    connection, transport, handler = wired
    connection.data_received(b"".join(encode_frame(1, number) for number in range(5)))
    assert len(handler.handled) == 5
    assert transport.reading


async def test_requests_in_work_count_against_the_limit_until_they_are_done(wired: Wired) -> None:
    connection, transport, handler = wired
    connection.charge(1_001)
    connection.data_received(encode_frame(0, 1) + encode_frame(0, 2))
    assert not transport.reading
    connection.discharge(1_001)
    await until(lambda: transport.reading)
    assert [frame.correlation for frame in handler.handled] == [1, 2]
    assert handler.drained == [connection]


def test_a_closing_connection_handles_and_sends_nothing_more(wired: Wired) -> None:
    connection, transport, handler = wired
    connection.answer(0, 7)
    connection.close()
    connection.data_received(encode_frame(0, 1))
    connection.answer(0, 8)
    connection.flush()
    assert transport.closed
    assert [correlations(write) for write in transport.writes] == [[7]]
    assert handler.handled == []


async def test_frames_come_back_over_a_real_socket(dial: Dial) -> None:
    async with running(Echo()) as (server, host, port):
        reader, writer = await dial(host, port)
        writer.write(encode_frame(0, 1, b"one") + encode_frame(0, 2, b"two"))
        frames = await read_frames(reader, 2)
        (connection,) = server.connections
        assert connection.received_bytes == connection.sent_bytes == 2 * (16 + 3)
        assert connection.peer == ":".join(map(str, writer.get_extra_info("sockname")))
        assert [(frame.correlation, bytes(frame.body)) for frame in frames] == [
            (1, b"one"),
            (2, b"two"),
        ]


async def test_a_client_that_does_not_read_is_not_read_from_until_it_does(dial: Dial) -> None:
    handler = Echo()
    count, answer_kib = 400, 256
    async with running(handler) as (server, host, port):
        reader, writer = await dial(host, port)
        writer.transport.pause_reading()
        writer.write(b"".join(encode_frame(answer_kib, number) for number in range(count)))
        await congestion(server)
        assert len(handler.handled) < count
        writer.transport.resume_reading()
        frames = await read_frames(reader, count)
        assert [frame.correlation for frame in frames] == list(range(count))
        assert handler.drained


async def test_one_connection_too_many_is_refused_and_the_others_are_served(dial: Dial) -> None:
    handler = Echo()
    async with running(handler, connections_max=1) as (server, host, port):
        reader, writer = await dial(host, port)
        writer.write(encode_frame(0, 1))
        await read_frames(reader, 1)
        refused_reader, refused_writer = await dial(host, port)
        refused_writer.write(encode_frame(0, 1))
        (told,) = await read_frames(refused_reader, 1)
        assert (told.code, told.correlation) == (TooManyConnections.code, 0)
        assert await refused_reader.read() == b""
        refused_writer.close()
        writer.write(encode_frame(0, 2))
        await read_frames(reader, 1)
        assert [frame.correlation for frame in handler.handled] == [1, 2]
        assert len(server.connections) <= 2


async def test_a_place_that_became_free_is_given_to_the_next(dial: Dial) -> None:
    async with running(Echo(), connections_max=1) as (server, host, port):
        _, first = await dial(host, port)
        await until(lambda: server.connections)
        first.close()
        await until(lambda: not server.connections)
        reader, writer = await dial(host, port)
        writer.write(encode_frame(0, 5))
        (frame,) = await read_frames(reader, 1)
        assert frame.correlation == 5


async def test_a_client_that_never_says_hello_is_closed(dial: Dial) -> None:
    handler = Echo()
    async with running(handler, hello_ms=1) as (_, host, port):
        reader, _ = await dial(host, port)
        assert await reader.read() == b""
    assert len(handler.lost) == 1


async def test_after_the_greeting_a_silent_client_stays() -> None:
    handler = Echo()
    server = FrameServer(limits(hello_ms=0), handler)
    server.loop = asyncio.get_running_loop()
    connection, transport = Connection(server), FakeTransport()
    connection.connection_made(transport)
    connection.greet("client", 1)
    connection.admit(MIB)
    passed = asyncio.Event()
    server.loop.call_later(0.001, passed.set)
    await passed.wait()
    assert not transport.closed
    connection.connection_lost(None)


async def test_a_frame_that_does_not_end_is_refused_at_the_second_look(dial: Dial) -> None:
    handler = Echo()
    async with running(handler) as (server, host, port):
        reader, writer = await dial(host, port)
        frame = encode_frame(0, 1, bytes(100))
        writer.write(frame + frame[:9])
        await read_frames(reader, 1)
        server.look()
        writer.write(frame[9:20])
        (connection,) = server.connections
        await until(lambda: connection.arriving is not None and len(connection._reader.held) == 20)
        server.look()
        (told,) = await read_frames(reader, 1)
        assert (told.code, told.correlation) == (MalformedRequest.code, 0)
        writer.close()
    assert [type(error) for error in handler.unreadable] == [MalformedRequest]
    assert "took longer than 30000 ms to arrive" in str(handler.unreadable[0])


async def test_frames_that_end_between_two_looks_and_silence_are_no_offence(dial: Dial) -> None:
    handler = Echo()
    async with running(handler) as (server, host, port):
        reader, writer = await dial(host, port)
        frame = encode_frame(0, 1, bytes(100))
        for _ in range(3):
            writer.write(frame[9:] + frame[:9] if handler.handled else frame + frame[:9])
            await read_frames(reader, 1)
            server.look()
        writer.write(frame[9:])
        await read_frames(reader, 1)
        for _ in range(3):
            server.look()
        writer.write(frame)
        await read_frames(reader, 1)
    assert handler.unreadable == []


def test_a_frame_that_is_not_read_on_purpose_is_not_waited_for(wired: Wired) -> None:
    connection, transport, _ = wired
    connection.data_received(encode_frame(0, 1)[:5])
    assert connection.arriving is not None
    transport.unsent = 1_001
    connection.pause_writing()
    assert connection.arriving is None


async def test_looks_come_by_themselves(dial: Dial) -> None:
    handler = Echo()
    async with running(handler, frame_ms=1) as (_, host, port):
        reader, writer = await dial(host, port)
        writer.write(encode_frame(0, 1)[:5])
        (told,) = await read_frames(reader, 1)
        assert told.code == MalformedRequest.code
        writer.close()


async def test_a_frame_over_the_limit_is_answered_and_the_connection_closed(dial: Dial) -> None:
    handler = Echo()
    async with running(handler, frame_bytes_before_hello_max=100) as (_, host, port):
        reader, writer = await dial(host, port)
        # More than the sockets hold: the client is still sending when the answer comes.
        writer.write(encode_frame(0, 1) + encode_frame(0, 2, bytes(8 * MIB)))
        answered, told = await read_frames(reader, 2)
        assert answered.correlation == 1
        assert (told.code, told.correlation) == (FrameTooLarge.code, 0)
        assert await reader.read() == b""
        writer.close()
    assert [type(error) for error in handler.unreadable] == [FrameTooLarge]


async def test_an_address_in_use_is_an_error_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = FrameServer(limits(), Echo())
        with pytest.raises(MessageQueueError, match="choose another one"):
            await server.listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
async def test_an_address_of_another_machine_is_reported_as_such(host: str) -> None:
    with pytest.raises(MessageQueueError, match="name an address of this machine"):
        await FrameServer(limits(), Echo()).listen(host, 0)


async def test_closing_sends_what_is_queued(dial: Dial) -> None:
    handler = Echo()
    async with running(handler) as (server, host, port):
        reader, writer = await dial(host, port)
        writer.write(encode_frame(0, 1))
        await read_frames(reader, 1)
        (connection,) = server.connections
        connection.answer(0, 2)
        await server.aclose(1_000)
        (frame,) = await read_frames(reader, 1)
        assert frame.correlation == 2
        assert await reader.read() == b""
    assert handler.lost == [connection]


async def test_closing_does_not_wait_for_a_client_that_does_not_read(dial: Dial) -> None:
    handler = Echo()
    async with running(handler) as (server, host, port):
        _, writer = await dial(host, port)
        writer.transport.pause_reading()
        writer.write(b"".join(encode_frame(1_024, number) for number in range(50)))
        await congestion(server)
        await server.aclose(1)
        assert not server.connections
    assert len(handler.lost) == 1


async def test_no_new_connections_are_taken_while_the_old_ones_are_served(dial: Dial) -> None:
    async with running(Echo()) as (server, host, port):
        reader, writer = await dial(host, port)
        writer.write(encode_frame(0, 1))
        await read_frames(reader, 1)
        server.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await dial(host, port)
        writer.write(encode_frame(0, 2))
        (frame,) = await read_frames(reader, 1)
        assert frame.correlation == 2
