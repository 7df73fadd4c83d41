"""How a connection shares the loop and the memory with the others; sockets are tested in `test_server`."""

import asyncio
from collections.abc import Callable

import pytest

from headrace_mq._net.connection import TURN_MS, Connection
from headrace_mq._net.server import REFUSED_MAX, FrameServer
from headrace_mq.errors import Overloaded, TooManyConnections
from headrace_mq.protocol.frame import Frame, encode_frame
from tests.unit.headrace_mq._net.test_server import Echo, FakeTransport, limits


class SlowClock:
    """A clock that goes on only while a request is worked on."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Slow(Echo):
    """Takes 2 ms for each request."""

    def __init__(self, clock: SlowClock) -> None:
        super().__init__()
        self._clock = clock

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        self._clock.ms += 2
        super().on_frame(connection, frame)


class Wire(FakeTransport):
    def __init__(self, host: str = "10.0.0.1") -> None:
        super().__init__()
        self._host = host

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self._host, 1) if name == "peername" else default


Made = Callable[..., tuple[Connection, Wire]]


@pytest.fixture
def handler() -> Slow:
    return Slow(SlowClock())


@pytest.fixture
async def server(handler: Slow) -> FrameServer:
    changed = {"requests_bytes_max": 1_000, "answers_bytes_max": 1_000, "connections_max": 5}
    server = FrameServer(limits(**changed), handler, handler._clock)
    server.loop = asyncio.get_running_loop()
    return server


@pytest.fixture
def make(server: FrameServer) -> Made:
    def make(host: str = "10.0.0.1") -> tuple[Connection, Wire]:
        connection, wire = Connection(server), Wire(host)
        connection.connection_made(wire)
        return connection, wire

    return make


async def test_many_requests_of_one_read_are_handled_in_turns(make: Made, handler: Slow) -> None:
    connection, wire = make()
    connection.data_received(b"".join(encode_frame(0, number) for number in range(10)))
    # The one that went over its turn was finished; nothing more is read meanwhile.
    assert len(handler.handled) == TURN_MS // 2 + 1
    assert not wire.reading
    turns = 1
    while len(handler.handled) < 10:
        before = len(handler.handled)
        await asyncio.sleep(0)
        assert len(handler.handled) - before <= TURN_MS // 2 + 1
        turns += 1
    assert turns >= 4
    assert [frame.correlation for frame in handler.handled] == [*range(10)]
    await asyncio.sleep(0)
    assert wire.reading


async def test_connections_share_a_turn_and_have_the_next_in_their_order(
    make: Made, handler: Slow
) -> None:
    made = [make(f"10.0.0.{number}") for number in range(5)]
    for number, (connection, _) in enumerate(made):
        connection.data_received(encode_frame(0, number) + encode_frame(0, number))
    # Two connections fill the turn; the others wait without being read from.
    assert [frame.correlation for frame in handler.handled] == [0, 0, 1, 1]
    assert [wire.reading for _, wire in made] == [True, True, False, False, False]
    await asyncio.sleep(0)
    assert [frame.correlation for frame in handler.handled[4:]] == [2, 2, 3, 3]
    await asyncio.sleep(0)
    assert [frame.correlation for frame in handler.handled[8:]] == [4, 4]
    await asyncio.sleep(0)
    assert all(wire.reading for _, wire in made)


async def test_a_connection_that_ends_while_it_waits_for_its_turn_is_passed_over(
    make: Made, handler: Slow
) -> None:
    first, second, third = (make()[0] for _ in range(3))
    for connection in (first, second, third):
        connection.data_received(encode_frame(0, 1) * 3)
    second.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(handler.handled) == 6


async def test_the_frame_that_arrives_for_longest_gives_way(
    make: Made, handler: Slow, server: FrameServer
) -> None:
    (endless, endless_wire), (honest, honest_wire) = make(), make()
    frame = encode_frame(0, 1, bytes(700))
    endless.data_received(frame[:600])
    honest.data_received(frame[:300])
    honest.data_received(frame[300:] + frame[:350])
    assert not endless_wire.closed
    honest.data_received(frame[350:500])
    assert endless_wire.closed
    (error,) = handler.unreadable
    assert isinstance(error, Overloaded)
    assert "requests_bytes_max" in str(error)
    honest.data_received(frame[500:])
    assert len(handler.handled) == 2
    assert not honest_wire.closed
    assert server.ledger.requests_bytes == 0
    # It is read on, so that it can read why, but holds nothing any more.
    endless.data_received(frame)
    assert server.ledger.requests_bytes == 0
    assert endless._reader.held == b""


async def test_the_heaviest_of_those_that_do_not_read_gives_way(
    make: Made, server: FrameServer
) -> None:
    (first, first_wire), (second, second_wire), (third, third_wire) = make(), make(), make()
    for connection, wire, unsent in ((first, first_wire, 300), (second, second_wire, 600)):
        wire.unsent = unsent
        connection.pause_writing()
    # It has taken most by now, which is found out when somebody must go.
    second_wire.unsent = 100
    third_wire.unsent = 500
    third.pause_writing()
    assert [wire.closed for wire in (first_wire, second_wire, third_wire)] == [False] * 3
    assert server.ledger.answers_bytes == 900
    third_wire.unsent = 700
    third.answer(0, 1, b"x")
    third.flush()
    assert [wire.closed for wire in (first_wire, second_wire, third_wire)] == [False, False, True]
    first_wire.unsent = 0
    first.resume_writing()
    assert server.ledger.answers_bytes == 100


async def test_a_refused_connection_gets_the_reason_for_a_limited_time(
    make: Made, handler: Slow, server: FrameServer
) -> None:
    inside = [make(f"10.0.0.{number}") for number in range(5)]
    refused = [make() for _ in range(REFUSED_MAX + 3)]
    assert all(isinstance(error, TooManyConnections) for error in handler.unreadable)
    assert len(handler.unreadable) == len(refused)
    # Those that linger are bounded too: the oldest were cut off.
    assert len(server._refused) == REFUSED_MAX
    inside[0][0].connection_lost(None)
    newcomer, wire = make()
    assert not wire.closed
    assert newcomer in server.connections


async def test_requests_in_work_are_counted_over_all_connections(
    make: Made, server: FrameServer
) -> None:
    (first, _), (second, _) = make(), make()
    first.charge(10)
    second.charge(20)
    assert server.charged_bytes == 30
    first.discharge(10)
    second.discharge(20)
    assert server.charged_bytes == 0


@pytest.mark.parametrize(
    ("told", "shown", "host"),
    [
        (("127.0.0.1", 5), "127.0.0.1:5", "127.0.0.1"),
        (("::1", 5, 0, 0), "[::1]:5", "::1"),
        ("", "", ""),
        (None, "", ""),
    ],
)
async def test_the_address_of_a_client_is_written_as_one_word(
    make: Made, monkeypatch: pytest.MonkeyPatch, told: object, shown: str, host: str
) -> None:
    connection, wire = make()
    monkeypatch.setattr(wire, "get_extra_info", lambda name: {"peername": told}[name])
    assert (connection.peer, connection.host) == (shown, host)


async def test_a_connection_that_takes_a_descriptor_kept_for_files_is_turned_away(
    make: Made, handler: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = limits().descriptors_max
    monkeypatch.setattr(Connection, "descriptor", last - 1)
    assert not make()[1].closed
    monkeypatch.setattr(Connection, "descriptor", last)
    assert make()[1].closed
    (error,) = handler.unreadable
    assert isinstance(error, TooManyConnections)
    assert "LimitNOFILE" in str(error)


async def test_the_newest_connections_make_room_for_files(
    make: Made, server: FrameServer, handler: Slow
) -> None:
    made = [make(f"10.0.0.{number}") for number in range(4)]
    server.close_newest(0)
    server.close_newest(3)
    assert [wire.closed for _, wire in made] == [False, True, True, True]
    # Those that go already are not counted as gone; the rest has its turn when they are.
    server.close_newest(1)
    assert [wire.closed for _, wire in made] == [False, True, True, True]
    assert len(handler.unreadable) == 3
