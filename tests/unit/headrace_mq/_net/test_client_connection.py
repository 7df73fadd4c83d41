"""One connection of a client, its transport being a list of what was written."""

import asyncio
from typing import Any

import pytest

from headrace_mq._net.client_connection import ClientConnection
from headrace_mq.errors import ConnectionLost, InvalidArgument, ResponseCode
from headrace_mq.protocol.bodies import ErrorAnswer, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import (
    FLAG_ANSWER,
    FLAG_ONEWAY,
    Frame,
    FrameReader,
    encode_frame,
)

PING = RequestCode.HEARTBEAT


class Transport(asyncio.Transport):
    """Keeps what is written, one entry for each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True

    def frames(self) -> list[Frame]:
        return list(FrameReader(1 << 20).feed(b"".join(self.writes)))


class Wired:
    """A connection, and the news it gave."""

    def __init__(self) -> None:
        self.pushed: list[bytes] = []
        self.ended = 0
        self.outcomes: list[Any] = []
        self.transport = Transport()
        self.connection = ClientConnection(self._push, lambda: None, self._end, 10_000, None)
        self.connection.connection_made(self.transport)

    def _push(self, frame: Frame) -> None:
        self.pushed.append(bytes(frame.body))
        raise LookupError("a defect of the receiver")

    def _end(self, _: ClientConnection) -> None:
        self.ended += 1

    def ask(self, body: bytes = b"", *, at_once: bool = False) -> int:
        return self.connection.submit(PING, body, receive=self.outcomes.append, at_once=at_once)

    def hear(self, correlation: int, body: bytes, code: int = ResponseCode.OK) -> None:
        frame = encode_frame(code, correlation, body, flags=FLAG_ANSWER)
        self.connection.data_received(bytes(frame))


@pytest.fixture
async def wired() -> Wired:
    return Wired()


async def test_requests_submitted_in_one_tick_leave_in_one_write(wired: Wired) -> None:
    for n in range(50):
        wired.ask(b"%d" % n)
    wired.connection.tell(PING, b"and this")
    assert wired.transport.writes == []
    await asyncio.sleep(0)
    assert len(wired.transport.writes) == 1
    *asked, told = wired.transport.frames()
    assert [bytes(frame.body) for frame in asked] == [b"%d" % n for n in range(50)]
    assert (bytes(told.body), told.flags) == (b"and this", FLAG_ONEWAY)


async def test_an_urgent_request_takes_earlier_ones_along(wired: Wired) -> None:
    wired.ask(b"before")
    wired.ask(b"now", at_once=True)
    assert [bytes(frame.body) for frame in wired.transport.frames()] == [b"before", b"now"]
    await asyncio.sleep(0)
    assert len(wired.transport.writes) == 1


async def test_answers_find_their_requests_in_any_order_and_only_once(
    wired: Wired,
) -> None:
    first, second = wired.ask(), wired.ask()
    wired.hear(second, b"to the second")
    wired.hear(first, encode(ErrorAnswer("no such thing")), InvalidArgument.code)
    wired.hear(first, b"once more")
    answered, refused = wired.outcomes
    assert bytes(answered) == b"to the second"
    assert isinstance(refused, InvalidArgument)
    assert str(refused) == "no such thing"


async def test_a_failing_receiver_does_not_stop_the_other_receivers(wired: Wired) -> None:
    pushed = encode_frame(RequestCode.PUSHED_REPLY, 0, b"1")
    answer = encode_frame(ResponseCode.OK, wired.ask(), b"2", flags=FLAG_ANSWER)
    wired.connection.data_received(bytes(pushed + pushed + answer))
    assert wired.pushed == [b"1", b"1"]
    assert [bytes(outcome) for outcome in wired.outcomes] == [b"2"]


async def test_the_end_of_a_connection_reaches_every_receiver_once_with_the_brokers_reason(
    wired: Wired,
) -> None:
    wired.ask()
    wired.ask()
    wired.hear(0, encode(ErrorAnswer("send smaller batches")), ResponseCode.FRAME_TOO_LARGE)
    wired.connection.connection_lost(None)
    wired.connection.connection_lost(OSError("again"))
    assert [str(outcome) for outcome in wired.outcomes] == [
        "the connection ended before an answer came: the broker closed it: send smaller batches"
    ] * 2
    assert wired.ended == 1
    with pytest.raises(ConnectionLost, match="send smaller batches"):
        wired.ask()


async def test_bytes_that_are_no_frame_end_the_client_connection(wired: Wired) -> None:
    wired.connection.data_received(b"\x00" * 16)
    assert wired.transport.aborted
    assert wired.connection.lost.done()
