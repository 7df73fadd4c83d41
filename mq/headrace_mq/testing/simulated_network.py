"""
A network between simulated processes: streams that keep their order and promise nothing else.

Bytes arrive after a latency, in pieces of any size. Connections are dropped, hosts are cut off from
each other and joined again, machines vanish without closing their connections. Then the other side
learns of it as late as from the keepalive of a real socket.

Used by the simulated loop, which hands over `create_connection` and `create_server`, and by the
simulation, which makes the faults. Does not know what the bytes mean.
"""

import asyncio
import errno
import random
from collections.abc import Callable, Iterable
from contextvars import Context

from headrace_mq.testing.processes import PROCESS, Process
from headrace_mq.testing.simulated_loop import SimulatedLoop
from headrace_mq.testing.simulated_stream import End, Packet, Stream, Tap

__all__ = ["Listener", "SimulatedNetwork"]

# A packet to a host that cannot be reached is sent again after this long, doubled every time.
RETRY_S = 0.5
# Linux gives up a connection attempt after about two minutes.
CONNECT_S_MAX = 127.0
# How long a side that says nothing takes to notice that the other one is gone: the keepalive of
# the client and that of the broker, each between its idle time and its last probe.
CLIENT_PATIENCE_S, SERVER_PATIENCE_S = (5.0, 10.0), (30.0, 60.0)
# The first port that a listener without one gets.
FIRST_PORT = 20_000


class _ListeningSocket:
    """What a server tells of its socket."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def setsockopt(self, *_option: object) -> None:
        """Options change nothing here."""


class Listener:
    """One address that is listened on: what `create_server` returns."""

    def __init__(
        self,
        network: "SimulatedNetwork",
        factory: Callable[[], asyncio.Protocol],
        address: tuple[str, int],
        process: Process | None,
    ) -> None:
        self._network = network
        self._address = address
        self.factory = factory
        self.process = process
        self.sockets = (_ListeningSocket(*address),)

    def close(self) -> None:
        """Listens no more; connections stay."""
        self._network.forget(self._address, self)


class SimulatedNetwork:
    """All hosts and the connections between them.

    Args:
        loop: the simulated loop.
        chosen: decides latencies, and where streams are cut.
        latency_s: shortest and usual longest way of a packet, in seconds.

    Attributes:
        taps: called with every packet that leaves, and again where it arrives, in other pieces.
    """

    def __init__(
        self, loop: SimulatedLoop, chosen: random.Random, *, latency_s: tuple[float, float]
    ) -> None:
        self._loop = loop
        self._chosen = chosen
        self._latency_s = latency_s
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._streams: dict[Stream, None] = {}
        self._apart: set[frozenset[str]] = set()
        self._off: set[str] = set()
        self._next_port = FIRST_PORT
        self._next_stream = 0
        self.taps: list[Tap] = []

    # --- for the loop ---------------------------------------------------------------------------

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connects to a listener; as `create_connection` of a loop."""
        process = PROCESS.get()
        here = "" if process is None else process.host
        await self._reach(here, host)
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no listener on {host}:{port}")
        client = End(self._loop, process, CLIENT_PATIENCE_S)
        server = End(self._loop, listener.process, SERVER_PATIENCE_S)
        self._next_stream += 1
        self._streams[Stream(self, self._loop, self._next_stream, (client, server))] = None
        protocol = factory()
        client.attach(protocol)
        # The listening side's kernel accepts; its process hears of it when it runs.
        context = Context() if listener.process is None else listener.process.context()
        self._loop.call_soon(_accept, listener.factory, server, context=context)
        protocol.connection_made(client)
        return client, protocol

    def listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Listener:
        """Listens on an address; port 0 takes a free one.

        Raises:
            OSError: another server listens there.
        """
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        listener = Listener(self, factory, (host, port), PROCESS.get())
        self._listeners[host, port] = listener
        return listener

    def forget(self, address: tuple[str, int], listener: Listener) -> None:
        """Ends a listener; called by it."""
        if self._listeners.get(address) is listener:
            del self._listeners[address]

    # --- for streams ----------------------------------------------------------------------------

    def latency(self) -> float:
        """Draws the way of one packet, in seconds: mostly short, now and then long."""
        shortest, longest = self._latency_s
        return shortest + (longest - shortest) * self._chosen.random() ** 3

    def cut_at(self, size: int) -> int:
        """Draws how many of the bytes that are there arrive together."""
        if size > 1 and self._chosen.random() < 0.2:
            return self._chosen.randrange(1, size)
        return size

    def between(self, low: float, high: float) -> float:
        """Draws a number of seconds."""
        return self._chosen.uniform(low, high)

    def reaches(self, one: str, other: str) -> bool:
        """Whether packets pass between two hosts."""
        return frozenset((one, other)) not in self._apart and not {one, other} & self._off

    def tap(self, packet: Packet) -> None:
        """Shows bytes to all who listen in."""
        for tap in self.taps:
            tap(packet)

    def ended(self, stream: Stream) -> None:
        """Forgets a stream; called by it."""
        self._streams.pop(stream, None)

    async def _reach(self, here: str, there: str) -> None:
        await asyncio.sleep(2 * self.latency())
        started, pause = self._loop.time(), RETRY_S
        while not self.reaches(here, there):
            if self._loop.time() - started > CONNECT_S_MAX:
                raise TimeoutError(errno.ETIMEDOUT, f"{there} does not answer")
            await asyncio.sleep(pause)
            pause *= 2

    # --- faults ---------------------------------------------------------------------------------

    def drop_one(self) -> str | None:
        """Resets one connection; returns whose, or None where there is none."""
        if not self._streams:
            return None
        stream = self._chosen.choice(list(self._streams))
        stream.drop()
        return stream.name

    def part(self, one: str, other: str) -> None:
        """Cuts two hosts off from each other; neither side learns of it at once."""
        self._apart.add(frozenset((one, other)))
        self._lose_patience()

    def join(self, one: str, other: str) -> None:
        """Lets packets pass again."""
        self._apart.discard(frozenset((one, other)))
        self._retransmit()

    def power_off(self, host: str) -> None:
        """A machine vanishes: nothing of it is heard any more."""
        self._off.add(host)
        self._stop_listening(lambda process: process is not None and process.host == host)
        for stream in list(self._streams):
            stream.vanish(lambda process: process is not None and process.host == host)
        self._lose_patience()

    def power_on(self, host: str) -> bool:
        """The machine is back, knowing nothing of its old connections; False: it was on."""
        if host not in self._off:
            return False
        self._off.discard(host)
        self._retransmit()
        return True

    def kill(self, process: Process) -> None:
        """A process ends; its kernel closes its sockets, with or without what was on its way."""
        self._stop_listening(lambda owner: owner is process)
        for stream in list(self._streams):
            stream.kill(process, politely=self._chosen.random() < 0.5)

    def _stop_listening(self, goes: Callable[[Process | None], bool]) -> None:
        for address, listener in list(self._listeners.items()):
            if goes(listener.process):
                del self._listeners[address]

    def _lose_patience(self) -> None:
        for stream in self._streams:
            stream.doubt()

    def _retransmit(self) -> None:
        for stream in _copied(self._streams):
            stream.retransmit()


def _copied(streams: Iterable[Stream]) -> list[Stream]:
    return list(streams)


def _accept(factory: Callable[[], asyncio.Protocol], server: End) -> None:
    protocol = factory()
    server.attach(protocol)
    protocol.connection_made(server)
