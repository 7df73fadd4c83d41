"""Two processes on two machines, and protocols that note what happens to them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace_mq.testing.simulation import Simulation


class Noted(asyncio.Protocol):
    """Notes what it is told; may answer every byte."""

    def __init__(self, *, echoes: bool = False) -> None:
        self.echoes = echoes
        self.data = b""
        self.pieces = 0
        self.ended = False
        self.paused = False
        self.pauses = 0
        self.error: Exception | None = None
        self.lost_at: float | None = None
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1
        if self.echoes:
            self.transport.write(data)

    def eof_received(self) -> None:
        self.ended = True

    def pause_writing(self) -> None:
        self.paused = True
        self.pauses += 1

    def resume_writing(self) -> None:
        self.paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.lost_at = asyncio.get_running_loop().time()
        self.lost.set()


class Pair:
    """A client and a server that are connected."""

    def __init__(self, seed: int) -> None:
        self.sim = Simulation(seed)
        self.client_process, _ = self.sim.start("client", "c")
        self.server_process, _ = self.sim.start("server", "s")
        self.client: Noted
        self.served: list[Noted] = []
        self.listener: asyncio.AbstractServer

    @property
    def server(self) -> Noted:
        return self.served[-1]

    async def listen(self, *, echoes: bool = False, port: int = 1) -> asyncio.AbstractServer:
        def accept() -> Noted:
            self.served.append(Noted(echoes=echoes))
            return self.served[-1]

        async def start() -> asyncio.AbstractServer:
            return await asyncio.get_running_loop().create_server(accept, "s", port)

        self.listener = await self.server_process.spawn(start())
        return self.listener

    async def connect(self, port: int = 1) -> Noted:
        async def start() -> Noted:
            loop = asyncio.get_running_loop()
            _, protocol = await loop.create_connection(Noted, "s", port)
            assert isinstance(protocol, Noted)
            return protocol

        self.client = await self.client_process.spawn(start())
        return self.client


Story = Callable[[Pair], Coroutine[Any, Any, None]]


@pytest.fixture
def play() -> Callable[..., Pair]:
    """Plays a story between two connected processes, in a simulation of its own."""

    def run(story: Story, *, seed: int = 0, echoes: bool = False) -> Pair:
        pair = Pair(seed)

        async def main() -> None:
            await pair.listen(echoes=echoes)
            await pair.connect()
            await story(pair)

        pair.sim.run(main())
        assert pair.sim.loop.failures == []
        return pair

    return run
