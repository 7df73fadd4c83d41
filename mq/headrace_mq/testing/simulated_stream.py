"""
One connection of the simulated network: two ends, and a direction of bytes each way.

Used by the simulated network, which says whether packets pass and how long they take. An `End` is the
transport of a protocol.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, NamedTuple, Protocol

from headrace_mq.testing.processes import Process
from headrace_mq.testing.simulated_loop import SimulatedLoop

__all__ = ["End", "Packet", "Packets", "Stream", "Tap"]

# What both kernels take before a transport's own buffer fills.
WINDOW_BYTES = 128 << 10
# asyncio's own limits of a transport's buffer.
HIGH_BYTES = 64 << 10
# A side whose packets did not arrive hears of the reset within this, once packets pass again.
RETRANSMIT_S = (0.01, 1.0)


class Packet(NamedTuple):
    """Bytes of a stream, seen where they leave or where they arrive.

    `upstream` bytes come from the side that connected; `arrives` says at which end they were seen.
    """

    stream: int
    upstream: bool
    arrives: bool
    source: str
    target: str
    data: bytes


Tap = Callable[[Packet], None]


class Packets(Protocol):
    """What a stream asks of its network."""

    def tap(self, packet: Packet) -> None:
        """Shows bytes to the listener."""
        ...

    def latency(self) -> float:
        """The way of one packet, in seconds."""
        ...

    def cut_at(self, size: int) -> int:
        """How many of the bytes that are there arrive together."""
        ...

    def between(self, low: float, high: float) -> float:
        """A number of seconds."""
        ...

    def reaches(self, one: str, other: str) -> bool:
        """Whether packets pass between two hosts."""
        ...

    def ended(self, stream: "Stream") -> None:
        """Forgets a stream."""
        ...


class End(asyncio.Transport):
    """One side of a stream: a transport.

    Args:
        loop: the simulated loop.
        process: whose side; None for the test itself.
        patience_s: how long it takes, at least and at most, to notice that the other is gone.
    """

    def __init__(
        self, loop: SimulatedLoop, process: Process | None, patience_s: tuple[float, float]
    ) -> None:
        super().__init__()
        self._loop = loop
        self._protocol: asyncio.Protocol | None = None
        self._high = HIGH_BYTES
        self._paused = False
        self._closing = False
        self.process = process
        self.patience_s = patience_s
        self.reading = True
        self.lost = False
        self.stream: Stream
        self.out: Direction

    @property
    def host(self) -> str:
        """The machine of this side."""
        return "" if self.process is None else self.process.host

    @property
    def mute(self) -> bool:
        """Whether nothing of this side may be heard any more: its process is a ghost."""
        return self.process is not None and not self.process.alive

    @property
    def gone(self) -> bool:
        """Whether what arrives here is dropped."""
        return self.lost or self.mute

    # --- the transport --------------------------------------------------------------------------

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Sets the protocol that gets the events."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    set_protocol = attach

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that gets the events."""
        assert self._protocol is not None
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The machine at the other side; there is no socket to tell more of."""
        return (self.stream.other(self).host, 0) if name == "peername" else default

    def is_closing(self) -> bool:
        """Whether it was closed, or is about to be."""
        return self._closing or self.lost

    def is_reading(self) -> bool:
        """Whether bytes are handed on."""
        return self.reading

    def pause_reading(self) -> None:
        """Lets bytes wait."""
        self.reading = False

    def resume_reading(self) -> None:
        """Hands bytes on again."""
        self.reading = True
        self.stream.other(self).out.move()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002 - asyncio's
        """Sets the size from which the protocol is asked to pause."""
        self._high = HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Bytes that neither kernel has taken yet."""
        return max(0, self.out.size - WINDOW_BYTES)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes."""
        if data and not self.is_closing() and not self.mute:
            self.out.send(bytes(data))
            if not self._paused and self.get_write_buffer_size() > self._high:
                self._paused = True
                self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Sends bytes."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """One direction can be ended alone."""
        return True

    def write_eof(self) -> None:
        """Ends this direction behind what was written."""
        if not self.is_closing() and not self.mute:
            self.out.end()

    def close(self) -> None:
        """Ends both directions; what was written still arrives."""
        if not self.is_closing():
            self._closing = True
            if not self.mute:
                self.out.end()
            self._loop.call_soon(self.lose, None, context=self.context())

    def abort(self) -> None:
        """Ends the connection; what was written may be lost."""
        if not self.lost:
            self._closing = True
            if not self.mute:
                self.out.reset()
            self._loop.call_soon(self.lose, None, context=self.context())

    # --- for the stream -------------------------------------------------------------------------

    def context(self) -> Context:
        """The context of this side's callbacks."""
        return Context() if self.process is None else self.process.context()

    def receive(self, data: bytes) -> None:
        """Hands bytes to the protocol."""
        if not self.lost and self._protocol is not None:
            self._protocol.data_received(data)

    def receive_end(self) -> None:
        """Tells the protocol that nothing more comes."""
        if not self.lost and self._protocol is not None and not self._protocol.eof_received():
            self.close()

    def lose(self, error: OSError | None) -> None:
        """Tells the protocol that the connection is gone; once."""
        if self.lost:
            return
        self.lost = self._closing = True
        self.stream.side_lost()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def lose_soon(self, error: OSError | None, delay: float = 0.0) -> None:
        """The same, after a while, when the process runs."""
        self._loop.call_later(delay, self.lose, error, context=self.context())

    def drained(self) -> None:
        """Some of what was written has arrived."""
        if self._paused and not self.lost and self.get_write_buffer_size() <= self._high // 4:
            self._paused = False
            self._loop.call_soon(self.get_protocol().resume_writing, context=self.context())


class Direction:
    """The bytes from one end to the other."""

    def __init__(self, stream: "Stream", loop: SimulatedLoop, source: End, target: End) -> None:
        self._stream = stream
        self._loop = loop
        self._source = source
        self._target = target
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._last_due = 0.0
        self._moving = False
        self._ended = False
        self.size = 0

    def send(self, data: bytes) -> None:
        """Takes bytes from the source."""
        self._stream.tell(self._source, data, arrives=False)
        self._last_due = max(self._last_due, self._loop.time() + self._stream.packets.latency())
        self._chunks.append((self._last_due, data))
        self.size += len(data)
        self.move()

    def end(self) -> None:
        """Nothing comes behind what was sent."""
        if not self._ended:
            self._ended = True
            self._last_due = max(self._last_due, self._loop.time() + self._stream.packets.latency())
            self.move()

    def reset(self) -> None:
        """What is on its way is lost, and the target hears of it."""
        self.clear()
        if self._stream.passes:
            reset = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            self._target.lose_soon(reset, self._stream.packets.latency())

    def clear(self) -> None:
        """Loses what is on its way."""
        self._chunks.clear()
        self.size = 0

    def move(self) -> None:
        """Sees to it that what is on its way arrives in time."""
        if self._moving or not (self._chunks or self._ended):
            return
        self._moving = True
        due = self._chunks[0][0] if self._chunks else self._last_due
        self._loop.call_at(max(due, self._loop.time()), self._arrive, context=Context())

    def _arrive(self) -> None:
        self._moving = False
        if not self._stream.passes or self._target.gone or not self._target.reading:
            heard = self._stream.passes and self._target.gone
            if heard and self._chunks and not self._source.gone:
                # A sender to a closed socket learns of it.
                self._source.out.clear()
                self._source.lose_soon(BrokenPipeError(errno.EPIPE, "broken pipe"))
            return
        data = self._take()
        if data:
            self._stream.tell(self._source, data, arrives=True)
            self._loop.call_soon(self._target.receive, data, context=self._target.context())
            self._source.drained()
        elif self._ended and not self._chunks:
            self._ended = False
            self._loop.call_soon(self._target.receive_end, context=self._target.context())
        self.move()

    def _take(self) -> bytes:
        parts: list[bytes] = []
        while self._chunks and self._chunks[0][0] <= self._loop.time():
            parts.append(self._chunks.popleft()[1])
        data = b"".join(parts)
        at = self._stream.packets.cut_at(len(data))
        if at < len(data):
            again = self._loop.time() + self._stream.packets.latency()
            self._chunks.appendleft((again, data[at:]))
            self._last_due = max(self._last_due, again)
        self.size -= at
        return data[:at]


class Stream:
    """A connection.

    Args:
        packets: the network.
        loop: the simulated loop.
        number: tells it from the others.
        ends: the side that connected, and the one that accepted.
    """

    def __init__(
        self, packets: Packets, loop: SimulatedLoop, number: int, ends: tuple[End, End]
    ) -> None:
        self.packets = packets
        self._loop = loop
        self._number = number
        self._ends = client, server = ends
        for end, target in ((client, server), (server, client)):
            end.stream = self
            end.out = Direction(self, loop, end, target)

    @property
    def name(self) -> str:
        """The names of both ends."""
        client, server = self._ends
        return f"{client.process}-{server.process}"

    @property
    def passes(self) -> bool:
        """Whether packets get through now."""
        client, server = self._ends
        return self.packets.reaches(client.host, server.host)

    def other(self, end: End) -> End:
        """The other side."""
        client, server = self._ends
        return server if end is client else client

    def tell(self, source: End, data: bytes, *, arrives: bool) -> None:
        """Shows bytes to the listener."""
        upstream = source is self._ends[0]
        ends = str(source.process), str(self.other(source).process)
        self.packets.tap(Packet(self._number, upstream, arrives, *ends, data))

    def side_lost(self) -> None:
        """One side is gone; called by it."""
        if all(end.lost for end in self._ends):
            self.packets.ended(self)

    # --- faults ---------------------------------------------------------------------------------

    def drop(self) -> None:
        """Resets both sides, each in its own time."""
        for end in self._ends:
            end.out.clear()
            reset = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            end.lose_soon(reset, self.packets.latency())

    def kill(self, process: Process, *, politely: bool) -> None:
        """The process of a side ended: with a last word, or with a reset."""
        for end in self._ends:
            if end.process is process and not end.lost:
                if politely:
                    end.out.end()
                else:
                    end.out.reset()
                end.lose_soon(None)

    def vanish(self, goes: Callable[[Process | None], bool]) -> None:
        """The machine of a side is off: what it sent is lost, and the other side does not learn of it."""
        for end in self._ends:
            if goes(end.process):
                end.out.clear()
                self.other(end).out.clear()
                end.lose_soon(None)

    def doubt(self) -> None:
        """Packets do not pass: each side gives up when its patience ends, if that lasts."""
        if not self.passes:
            for end in self._ends:
                delay = self.packets.between(*end.patience_s)
                self._loop.call_later(delay, self._give_up, end, context=Context())

    def _give_up(self, end: End) -> None:
        if not self.passes and not end.lost:
            end.out.clear()
            end.lose_soon(TimeoutError(errno.ETIMEDOUT, "connection timed out"))

    def retransmit(self) -> None:
        """Packets may pass again: what waits arrives, or one side hears that the other is gone."""
        if not self.passes:
            return
        for end in self._ends:
            delay = self.packets.between(*RETRANSMIT_S)
            if end.gone and not self.other(end).gone:
                reset = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
                self.other(end).lose_soon(reset, delay)
            elif not end.gone:
                self._loop.call_later(delay, end.out.move, context=Context())
