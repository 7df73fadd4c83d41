"""
One client's socket at the server: frames in, answers out, and how much of both may wait.

All frames of one read are handled before one write, so what they answer leaves together; but one
connection has the loop for a few milliseconds at a time. Reading stops while more than
`outgoing_bytes_max` wait for it: answers that its client does not read, and requests it sent that
are still being made durable.

Used by `server`, which holds all connections; uses a socket. It never knows what a frame means.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from headrace_mq._net.certificates import subject_of
from headrace_mq._net.ledger import Budgets
from headrace_mq.errors import BrokerError
from headrace_mq.protocol.frame import (
    FLAG_ANSWER,
    Frame,
    FrameReader,
    encode_frame_head,
)

if TYPE_CHECKING:
    from headrace_mq._net.server import FrameServer

__all__ = ["TURN_MS", "Connection", "FrameHandler", "ServerLimits"]

Part = bytes | bytearray | memoryview

# How long the loop works for one connection, and in one go for all that take long; then the others, and
# timers, have their turn. A request that has begun is finished.
TURN_MS = 5
# What a closed connection may take to read its last answers.
_LINGER_S = 5.0
# Joining small parts costs less than the kernel's work for a vector of them.
_JOIN_BYTES_MAX = 64 << 10
# Answers of one read leave early when they reach this size: larger writes were not faster.
_FLUSH_BYTES = 256 << 10
# A client that has not taken so much is slow: what it leaves unread is counted.
_SLOW_BYTES = 128 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What a server grants its clients.

    Args:
        budgets: what all connections may take up together, and those of one address.
        descriptors_max: the lowest number of a socket's descriptor that is refused, because from there
            on they are for files.
        frame_bytes_before_hello_max: largest frame until the client is known.
        outgoing_bytes_max: bytes waiting for a connection, above which it is not read from.
        hello_ms: how long a new connection may stay silent, in milliseconds.
        frame_ms: how long one frame may take to arrive, in milliseconds; noticed after twice that
            at the latest.
        vanished_ms: when a client that acknowledges nothing is given up, in milliseconds.
        busy_poll_us: how long the loop stays awake behind what arrives, in microseconds.
    """

    budgets: Budgets
    descriptors_max: int
    frame_bytes_before_hello_max: int
    outgoing_bytes_max: int
    hello_ms: int
    frame_ms: int
    vanished_ms: int
    busy_poll_us: int


class FrameHandler(Protocol):
    """Acts on frames. All calls come from the event loop's thread and must not block."""

    def on_frame(self, connection: "Connection", frame: Frame) -> None:
        """Takes one whole frame; must not raise."""
        ...

    def on_unreadable(self, connection: "Connection", error: BrokerError) -> None:
        """The connection will be closed because of `error`; the last moment to tell its client."""
        ...

    def on_drained(self, connection: "Connection") -> None:
        """The client of a congested connection has caught up."""
        ...

    def on_lost(self, connection: "Connection") -> None:
        """The connection is gone. Called once for each one that was made."""
        ...


class Connection(asyncio.Protocol):
    """One client's socket.

    Attributes:
        client_id: who the client says it is; empty until the handler set it.
        received_bytes: read from the socket so far.
        sent_bytes: handed to the socket so far.
        user: who has logged in; empty until the handler set it.
        version: the protocol version it speaks, once agreed.
    """

    __slots__ = (
        "_charged",
        "_chunks",
        "_closing",
        "_deadline",
        "_flushing",
        "_frames",
        "_held",
        "_later",
        "_out",
        "_out_bytes",
        "_reader",
        "_reading",
        "_server",
        "_slow",
        "_transport",
        "_working",
        "client_id",
        "received_bytes",
        "sent_bytes",
        "user",
        "version",
    )

    def __init__(self, server: "FrameServer") -> None:
        self.client_id = ""
        self.user = ""
        self.version = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self._server = server
        self._reader = FrameReader(server.limits.frame_bytes_before_hello_max)
        self._frames: Iterator[Frame] = iter(())
        self._chunks: deque[bytes] = deque()
        self._out: list[Part] = []
        self._out_bytes = 0
        self._charged = 0
        self._held = 0
        self._later = False
        self._reading = True
        self._working = False
        self._slow = False
        self._closing = False
        self._flushing = False
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle

    @property
    def peer(self) -> str:
        """The client's host and port as the socket tells them; empty if it does not."""
        name = self._transport.get_extra_info("peername")
        if not isinstance(name, tuple):
            return ""
        host, port = name[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def host(self) -> str:
        """The client's address without a port, as the socket tells it; empty if it does not."""
        name = self._transport.get_extra_info("peername")
        return name[0] if isinstance(name, tuple) else ""

    @property
    def principal(self) -> str:
        """The subject of the client's certificate, `CN=reports,O=Bank`; empty where it showed none."""
        return subject_of(self._transport.get_extra_info("peercert"))

    @property
    def descriptor(self) -> int:
        """The number of the socket's descriptor; -1 where there is none."""
        sock = self._transport.get_extra_info("socket")
        return -1 if sock is None else sock.fileno()

    @property
    def unread_bytes(self) -> int:
        """What the client has not taken of what was sent, as far as this process holds it."""
        return self._transport.get_write_buffer_size()

    @property
    def congested(self) -> bool:
        """Whether more waits for this connection than its limit allows."""
        limit = self._server.limits.outgoing_bytes_max
        waiting = self._out_bytes + self._charged
        return waiting + (self.unread_bytes if self._slow else 0) > limit

    @property
    def closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._closing

    @property
    def arriving(self) -> int | None:
        """A number that stays while the same frame is arriving; None while none is waited for."""
        waiting = self._reading and not self._closing and not self._chunks
        return self._reader.cuts if waiting and self._reader.held else None

    def greet(self, client_id: str, version: int) -> None:
        """Notes who the client says it is; its limits stay those of a stranger."""
        self.client_id = client_id
        self.version = version

    def admit(self, frame_bytes_max: int) -> None:
        """Raises the frame limit of a client that is let in, and lets it stay."""
        self._reader.frame_bytes_max = frame_bytes_max
        self._deadline.cancel()
        self._server.ledger.greet(self)

    def push(self, code: int, body: Part) -> None:
        """Queues what the client did not ask for; it leaves with the answers of this tick."""
        self.answer(code, 0, body, flags=0)

    def answer(self, code: int, correlation: int, *parts: Part, flags: int = FLAG_ANSWER) -> None:
        """Queues an answer, which leaves with the others of this tick.

        It is dropped in silence when the connection is closing.
        """
        if self._closing:
            return
        size = sum(map(len, parts))
        head = encode_frame_head(code, correlation, size, flags)
        if size <= _JOIN_BYTES_MAX:
            self._out.append(b"".join((head, *parts)))
        else:
            self._out += (head, *parts)
        self._out_bytes += len(head) + size
        if not (self._working or self._flushing):
            self._flushing = True
            self._server.loop.call_soon(self.flush)

    def gather(self) -> None:
        """Holds back what is queued from now on until `flush`, which the caller promises.

        Else it leaves at the end of the tick, behind all that the sockets bring until then.
        """
        self._flushing = True

    def flush(self) -> None:
        """Writes what was queued, in one write."""
        self._flushing = False
        out, size = self._out, self._out_bytes
        if not out or self._transport.is_closing():
            return
        self._out, self._out_bytes = [], 0
        self.sent_bytes += size
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= _JOIN_BYTES_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        if self._slow:
            self._server.note_unread(self, self.unread_bytes)
        if not self._reading:
            self._consider_resuming()

    def charge(self, size: int) -> None:
        """Counts bytes of a request that is in work against the connection's limit."""
        self._charged += size
        self._server.charged_bytes += size

    def discharge(self, size: int) -> None:
        """Gives back what `charge` took."""
        self._charged -= size
        self._server.charged_bytes -= size
        if not self._reading:
            self._consider_resuming()

    def close(self) -> None:
        """Sends what is queued, then closes; nothing more is handled."""
        if self._shut():
            self._transport.close()

    def refuse(self) -> None:
        """Like `close`, but swallows what the client is still sending.

        Closing a socket with unread bytes resets it, and a reset takes the answer that says why
        from a client that is busy sending.
        """
        if self._shut():
            self._transport.write_eof()
            if not self._reading:
                self._reading = True
                self._transport.resume_reading()

    def abort(self) -> None:
        """Closes at once, dropping what is queued."""
        self._closing = True
        self._transport.abort()

    def _shut(self) -> bool:
        if self._closing:
            return False
        self.flush()
        self._closing = True
        # What it has sent is not looked at any more.
        self._chunks.clear()
        self._frames = iter(())
        self._reader.forget()
        self._deadline.cancel()
        self._deadline = self._server.loop.call_later(_LINGER_S, self._transport.abort)
        return True

    # --- called by the event loop -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greets a new socket, or turns it away above the limit."""
        server = self._server
        # uvloop's transports have the methods of asyncio's without being one.
        self._transport = cast("asyncio.Transport", transport)
        # An early notice, so that the bytes of all slow readers can be counted.
        self._transport.set_write_buffer_limits(
            high=min(_SLOW_BYTES, server.limits.outgoing_bytes_max)
        )
        self._deadline = server.loop.call_later(server.limits.hello_ms / 1_000, self.close)
        server.enter(self)

    def data_received(self, data: bytes) -> None:
        """Takes one read."""
        if self._server.busy_poll is not None:
            self._server.busy_poll.arrived()
        if not self._closing:
            self._chunks.append(data)
            self.received_bytes += len(data)
            # A read that was under way when reading stopped may still arrive.
            if self._reading:
                self._work()
            else:
                self._note_held()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered."""
        self._slow = True
        self._server.note_unread(self, self.unread_bytes)
        if self.congested:
            self._pause()

    def resume_writing(self) -> None:
        """The client has read most of what waited."""
        self._slow = False
        self._server.note_unread(self, 0)
        self._resume()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The socket is closed, by either side."""
        self._closing = True
        self._deadline.cancel()
        self._chunks.clear()
        self._frames = iter(())
        self._out.clear()
        self._slow = False
        self._server.leave(self)

    # --- frames ------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._working:
            return
        server = self._server
        if server.worked_ms > TURN_MS:
            self._pause()
            self._go_on_later()
            self._note_held()
            return
        self._working = True
        began_ms = server.now_ms()
        try:
            self._handle_frames(began_ms + TURN_MS)
        except BrokerError as error:
            self._server.handler.on_unreadable(self, error)
            self.refuse()
        finally:
            self._working = False
        if self._out:
            self.flush()
        spent_ms = server.now_ms() - began_ms
        if spent_ms:
            server.worked(spent_ms)
        if self._held or self._chunks or self._reader.held:
            self._note_held()

    def _handle_frames(self, until_ms: int) -> None:
        # The reader hands out frames one by one because HELLO raises the limit of those behind it;
        # a congested connection leaves the rest where it is, and so does one that had its turn.
        server, is_first = self._server, True
        on_frame = server.handler.on_frame
        # Below this, answers wait for those behind them, and a client that reads is not congested.
        little = min(_FLUSH_BYTES, server.limits.outgoing_bytes_max)
        while True:
            for frame in self._frames:
                on_frame(self, frame)
                if self._closing:
                    return
                if self._slow or self._out_bytes + self._charged >= little:
                    if self._out_bytes >= _FLUSH_BYTES or self.congested:
                        self.flush()
                    if self.congested:
                        self._pause()
                        return
                # Most reads are one frame: they need no look at the time.
                if not is_first and server.now_ms() > until_ms:
                    self._pause()
                    self._go_on_later()
                    return
                is_first = False
            if not self._chunks:
                return
            self._frames = self._reader.feed(self._chunks.popleft())

    def _go_on_later(self) -> None:
        if not self._later:
            self._later = True
            self._server.waiting.append(self)
            self._server.breathe_soon()

    def go_on(self) -> None:
        """Takes the next turn; called by the server when it is this connection's."""
        self._later = False
        self._resume()

    def _note_held(self) -> None:
        if self._closing:
            return
        held = len(self._reader.held)
        if self._chunks:
            held += sum(map(len, self._chunks))
        if held or self._held:
            self._held = held
            self._server.note_held(self, self._reader.cuts, held)

    def _pause(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self._transport.pause_reading()

    def _consider_resuming(self) -> None:
        if not self.congested:
            self._server.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._reading or self._closing or self._later or self.congested:
            return
        self._reading = True
        self._transport.resume_reading()
        # Handling what was left behind may congest the connection again.
        self._work()
        if self._reading and not self._closing:
            self._server.handler.on_drained(self)
