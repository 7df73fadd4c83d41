"""
One connection of a client: requests out, answers and what the broker sends unasked in.

Answers find their requests by number. Frames handed over in one tick of the loop leave in one write. Used
by `link`, which makes one after the other; uses the socket. Knows frames, and of bodies only the error
answer.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from headrace_mq._net.busy_poll import BusyPoll
from headrace_mq._net.keepalive import notice_vanished
from headrace_mq._net.tls_stream import TlsStream
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import (
    ConnectionLost,
    MessageQueueError,
    ResponseCode,
    error_for,
)
from headrace_mq.protocol.bodies import ErrorAnswer, HelloAnswer, decode
from headrace_mq.protocol.frame import (
    FLAG_ANSWER,
    FLAG_ONEWAY,
    Frame,
    FrameReader,
    encode_frame_head,
)

__all__ = [
    "ANSWER_BYTES_BEFORE_HELLO_MAX",
    "ANSWER_BYTES_MAX",
    "Answer",
    "ClientConnection",
    "guarded",
]

# The farewell on close: what was written is flushed, then the socket goes.
CLOSE_TIMEOUT_MS = 1_000
# Before the handshake a peer may be anything that listens on the port.
ANSWER_BYTES_BEFORE_HELLO_MAX = 64 << 10
# An answer carries at most what the client asked for and one batch; a broken peer may not fill
# the memory.
ANSWER_BYTES_MAX = 64 << 20

Answer = memoryview | MessageQueueError

_log = get_logger(__name__)


def guarded(receive: Callable[..., None], *arguments: object) -> None:
    """Calls a receiver of the connection's news, and survives it."""
    try:
        receive(*arguments)
    except Exception:  # noqa: BLE001 - a receiver's defect must not end the connection
        _log.exception("a callback of a connection failed")


class ClientConnection(asyncio.Protocol):
    """One TCP connection: frames out, answers and pushes in.

    Attributes:
        writable: whether a request is written without filling memory.
        hello: of the broker; None before the handshake is done.
        lost: ended with the reason when the connection is.
        tls: what is between it and the socket, set by its maker; None: nothing.
    """

    def __init__(
        self,
        on_push: Callable[[Frame], None],
        on_writable: Callable[[], None],
        on_end: Callable[["ClientConnection"], None],
        vanished_ms: int,
        busy_poll: BusyPoll | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._busy_poll = busy_poll
        self._vanished_ms = vanished_ms
        self._on_push = on_push
        self._on_writable = on_writable
        self._on_end = on_end
        self._reader = FrameReader(ANSWER_BYTES_BEFORE_HELLO_MAX)
        self._pending: dict[int, Callable[[Answer], None]] = {}
        self._next_correlation = 1
        self._outgoing: list[bytes | bytearray] = []
        self._transport: asyncio.Transport | None = None
        self.writable = True
        self.hello: HelloAnswer | None = None
        self.tls: TlsStream | None = None
        self.lost: asyncio.Future[str] = self._loop.create_future()
        # Why the broker will close the connection, where it said so.
        self._farewell = ""

    @property
    def progress(self) -> tuple[int, int]:
        """Changes with what arrives."""
        return self._reader.cuts, len(self._reader.held)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            notice_vanished(sock, self._vanished_ms)

    def data_received(self, data: bytes) -> None:
        if self._busy_poll is not None:
            self._busy_poll.arrived()
        try:
            for frame in self._reader.feed(data):
                self._receive(frame)
        except MessageQueueError as error:
            self.end(f"the broker sent what is no frame: {error}")

    def _receive(self, frame: Frame) -> None:
        if not frame.flags & FLAG_ANSWER:
            guarded(self._on_push, frame)
            return
        receive = self._pending.pop(frame.correlation, None)
        if receive is None:
            if frame.correlation == 0:
                self._farewell = decode(ErrorAnswer, frame.body).sentence
            return
        if frame.code == ResponseCode.OK:
            guarded(receive, frame.body)
        else:
            sentence = decode(ErrorAnswer, frame.body).sentence
            guarded(receive, error_for(frame.code, sentence))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._farewell:
            self.end(f"the broker closed it: {self._farewell}")
        else:
            self.end(str(exc) if exc is not None else "the broker closed the connection")

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        guarded(self._on_writable)

    def submit(
        self,
        code: int,
        *parts: bytes | bytearray,
        receive: Callable[[Answer], None],
        at_once: bool = False,
    ) -> int:
        """Queues a request for this tick's write; `receive` is called exactly once."""
        correlation = self._next_correlation
        self._next_correlation += 1
        if self.lost.done():
            raise ConnectionLost(f"the connection ended: {self.lost.result()}")
        self._pending[correlation] = receive
        head = encode_frame_head(code, correlation, sum(map(len, parts)))
        if at_once:
            self._outgoing += (head, *parts)
            self.flush()
        else:
            self._queue(head, *parts)
        return correlation

    def tell(self, code: int, body: bytes | bytearray) -> None:
        """Queues a request that wants no answer for this tick's write."""
        correlation = self._next_correlation
        self._next_correlation += 1
        self._queue(encode_frame_head(code, correlation, len(body), FLAG_ONEWAY), body)

    def _queue(self, *parts: bytes | bytearray) -> None:
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        self._outgoing.extend(parts)

    async def request(
        self, code: int, *parts: bytes | bytearray, at_once: bool = False
    ) -> memoryview:
        """Sends a request, with others at the end of this tick or `at_once`, and waits for its answer's body."""
        answer: asyncio.Future[memoryview] = self._loop.create_future()

        def receive(outcome: Answer) -> None:
            if answer.done():
                return
            if isinstance(outcome, MessageQueueError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        correlation = self.submit(code, *parts, receive=receive, at_once=at_once)
        try:
            return await answer
        finally:
            self._pending.pop(correlation, None)

    def flush(self) -> None:
        """Writes what was submitted in this tick."""
        if self._outgoing and self._transport is not None and not self.lost.done():
            outgoing, self._outgoing = self._outgoing, []
            self._transport.write(b"".join(outgoing))

    def ready(self, hello: HelloAnswer) -> None:
        """Lifts the limits of the time before the handshake."""
        self.hello = hello
        self._reader.frame_bytes_max = ANSWER_BYTES_MAX

    def end(self, reason: str) -> None:
        """Ends the connection; every pending request fails with `ConnectionLost`."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        if self._transport is not None:
            self._transport.abort()
        # First, so that a receiver that reacts by sending again does not find this connection.
        self._on_end(self)
        pending, self._pending = self._pending, {}
        for receive in pending.values():
            lost = ConnectionLost(f"the connection ended before an answer came: {reason}")
            guarded(receive, lost)

    async def close(self) -> None:
        """Flushes what was written and closes."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
        await asyncio.wait([self.lost], timeout=CLOSE_TIMEOUT_MS / 1_000)
        self.end("closed")
