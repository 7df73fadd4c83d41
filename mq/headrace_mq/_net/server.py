"""
The listening side of the wire: accepts connections and moves their frames, both ways bounded.

All frames of one read are handled before one write, so what they answer leaves together. Reading
from a connection stops while more than `outgoing_bytes_max` wait for it: answers that its client
does not read, and requests it sent that are still being made durable.

Sits between: the sockets of the machine and a `FrameHandler`. Must never know what a frame means.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

from headrace_mq._net.busy_poll import BusyPoll, busy_poll_of
from headrace_mq._net.vanishing import notice_vanished
from headrace_mq.errors import (
    BrokerError,
    MalformedRequest,
    MessageQueueError,
    TooManyConnections,
)
from headrace_mq.protocol.frame import (
    FLAG_ANSWER,
    Frame,
    FrameReader,
    encode_frame_head,
)

__all__ = ["Connection", "FrameHandler", "FrameServer", "ServerLimits"]

Part = bytes | bytearray | memoryview

# Connections the kernel completes while the loop is busy; usual for servers on Linux.
_BACKLOG = 1_024
# What a closed connection may take to read its last answers.
_LINGER_S = 5.0
# Joining small parts costs less than the kernel's work for a vector of them.
_JOIN_BYTES_MAX = 64 << 10
# Answers of one read leave early when they reach this size: larger writes were not faster.
_FLUSH_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What a server grants its clients.

    Args:
        connections_max: connections served at a time.
        frame_bytes_before_hello_max: largest frame until the client is known.
        outgoing_bytes_max: bytes waiting for a connection, above which it is not read from.
        hello_ms: how long a new connection may stay silent, in milliseconds.
        frame_ms: how long one frame may take to arrive, in milliseconds; noticed after twice that
            at the latest.
        vanished_ms: when a client that acknowledges nothing is given up, in milliseconds.
        busy_poll_us: how long the loop stays awake behind what arrives, in microseconds.
    """

    connections_max: int
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
        version: the protocol version it speaks, once agreed.
    """

    __slots__ = (
        "_charged",
        "_chunks",
        "_closing",
        "_deadline",
        "_flushing",
        "_frames",
        "_out",
        "_out_bytes",
        "_reader",
        "_reading",
        "_server",
        "_transport",
        "_working",
        "_write_paused",
        "client_id",
        "received_bytes",
        "sent_bytes",
        "version",
    )

    def __init__(self, server: "FrameServer") -> None:
        self.client_id = ""
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
        self._reading = True
        self._working = False
        self._write_paused = False
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
    def congested(self) -> bool:
        """Whether more waits for this connection than its limit allows."""
        limit = self._server.limits.outgoing_bytes_max
        return self._write_paused or self._out_bytes + self._charged > limit

    @property
    def closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._closing

    @property
    def arriving(self) -> int | None:
        """A number that stays while the same frame is arriving; None while none is waited for."""
        waiting = self._reading and not self._closing and not self._chunks
        return self._reader.arriving if waiting else None

    def greet(self, client_id: str, version: int, frame_bytes_max: int) -> None:
        """Notes who the client is and raises its frame limit."""
        self.client_id = client_id
        self.version = version
        self._reader.frame_bytes_max = frame_bytes_max
        self._deadline.cancel()

    def answer(self, code: int, correlation: int, *parts: Part) -> None:
        """Queues an answer; it leaves with the others of this tick."""
        self.send(code, correlation, *parts, flags=FLAG_ANSWER)

    def send(self, code: int, correlation: int, *parts: Part, flags: int = 0) -> None:
        """Queues a frame; silently dropped when the connection is closing."""
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

        Else it leaves at the end of the tick, behind whatever the sockets bring until then.
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
        self._consider_resuming()

    def charge(self, size: int) -> None:
        """Counts bytes of a request that is in work against the connection's limit."""
        self._charged += size

    def discharge(self, size: int) -> None:
        """Gives back what `charge` took."""
        self._charged -= size
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
        self._deadline.cancel()
        self._deadline = self._server.loop.call_later(_LINGER_S, self._transport.abort)
        return True

    # --- called by the event loop -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greets a new socket, or turns it away above the limit."""
        server = self._server
        # uvloop's transports have the methods of asyncio's without being one.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=server.limits.outgoing_bytes_max)
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

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._write_paused = True
        self._pause()

    def resume_writing(self) -> None:
        """The client has read most of what waited."""
        self._write_paused = False
        self._resume()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The socket is closed, by either side."""
        self._closing = True
        self._deadline.cancel()
        self._chunks.clear()
        self._frames = iter(())
        self._out.clear()
        self._server.leave(self)

    # --- frames ------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._working:
            return
        self._working = True
        try:
            self._handle_frames()
        except BrokerError as error:
            self._server.handler.on_unreadable(self, error)
            self.refuse()
        finally:
            self._working = False
        self.flush()

    def _handle_frames(self) -> None:
        # The reader hands out frames one by one because HELLO raises the limit of those behind it;
        # a congested connection leaves the rest where it is.
        on_frame = self._server.handler.on_frame
        while True:
            for frame in self._frames:
                on_frame(self, frame)
                if self._closing:
                    return
                if self._out_bytes >= _FLUSH_BYTES or self.congested:
                    self.flush()
                    if self.congested:
                        self._pause()
                        return
            if not self._chunks:
                return
            self._frames = self._reader.feed(self._chunks.popleft())

    def _pause(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self._transport.pause_reading()

    def _consider_resuming(self) -> None:
        if not self._reading and not self.congested:
            self._server.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._reading or self._closing or self.congested:
            return
        self._reading = True
        self._transport.resume_reading()
        # Handling what was left behind may congest the connection again.
        self._work()
        if self._reading and not self._closing:
            self._server.handler.on_drained(self)


class FrameServer:
    """Listens, and holds the connections that are open.

    Args:
        limits: what each connection is granted.
        handler: acts on the frames.
    """

    def __init__(self, limits: ServerLimits, handler: FrameHandler) -> None:
        self.limits = limits
        self.handler = handler
        # A dict as an ordered set.
        self.connections: dict[Connection, None] = {}
        self.loop: asyncio.AbstractEventLoop
        self.busy_poll: BusyPoll | None = None
        self._listener: asyncio.Server | None = None
        self._arriving: dict[Connection, int] = {}
        self._looker: asyncio.TimerHandle | None = None
        self._all_lost = asyncio.Event()
        self._all_lost.set()

    async def listen(self, host: str, port: int) -> str:
        """Begins to accept connections; returns the address it is bound to.

        Raises:
            MessageQueueError: the address cannot be bound.
        """
        self.loop = asyncio.get_running_loop()
        self.busy_poll = busy_poll_of(self.loop, self.limits.busy_poll_us)
        try:
            self._listener = await self.loop.create_server(
                lambda: Connection(self),
                host,
                port,
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise MessageQueueError(
                f"cannot listen on {host}:{port} ({_reason(error)}); {_remedy(error)}"
            ) from error
        for listener in self._listener.sockets:
            notice_vanished(listener, self.limits.vanished_ms)
        self._look_soon()
        bound_host, bound_port = self._listener.sockets[0].getsockname()[:2]
        return f"[{bound_host}]:{bound_port}" if ":" in bound_host else f"{bound_host}:{bound_port}"

    def stop_accepting(self) -> None:
        """Closes the listening socket; connections stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._looker is not None:
            self._looker.cancel()
            self._looker = None

    async def aclose(self, grace_ms: int) -> None:
        """Sends what is queued and closes all connections, by force after `grace_ms`."""
        self.stop_accepting()
        for stop in (Connection.close, Connection.abort):
            for connection in list(self.connections):
                stop(connection)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_lost.wait(), grace_ms / 1_000)

    def look(self) -> None:
        """Refuses the connections whose frame was arriving at the last look already.

        A client that sends byte by byte would otherwise hold a connection and its buffer for good.
        """
        arriving: dict[Connection, int] = {}
        for connection in list(self.connections):
            number = connection.arriving
            if number is None:
                continue
            if self._arriving.get(connection) == number:
                sentence = (
                    f"a frame took longer than {self.limits.frame_ms} ms to arrive; send smaller"
                    " batches over a slow network"
                )
                self.handler.on_unreadable(connection, MalformedRequest(sentence))
                connection.refuse()
            else:
                arriving[connection] = number
        self._arriving = arriving

    def _look_soon(self) -> None:
        self._looker = self.loop.call_later(self.limits.frame_ms / 1_000, self._look_again)

    def _look_again(self) -> None:
        self.look()
        self._look_soon()

    def enter(self, connection: Connection) -> None:
        """Counts a new connection in, or refuses it; called by the connection."""
        self.connections[connection] = None
        self._all_lost.clear()
        if len(self.connections) > self.limits.connections_max:
            sentence = (
                f"this broker serves {self.limits.connections_max} connections and all are taken;"
                " close some, or raise connections_max"
            )
            self.handler.on_unreadable(connection, TooManyConnections(sentence))
            connection.refuse()

    def leave(self, connection: Connection) -> None:
        """Counts a lost connection out; called by the connection."""
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_lost.set()
        self.handler.on_lost(connection)


def _reason(error: OSError) -> str:
    # asyncio's own sentence says no more than ours.
    if error.errno is None or isinstance(error, socket.gaierror):
        return str(error.strerror or error)
    return os.strerror(error.errno)


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "name an address of this machine, 127.0.0.1 or 0.0.0.0 say"
    if error.errno == errno.EACCES:
        return "choose a port from 1024 on"
    return "stop what uses the port, or choose another one"
