import asyncio
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.supervisor.question import is_answered


async def test_a_broker_answers_even_where_it_has_no_place_for_one_more(tmp_path: Path) -> None:
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    async with Broker(BrokerSettings(store=store, port=0, connections_max=1)) as broker:
        assert await is_answered(broker.address, timeout_ms=20_000)
        host, port = broker.address.rsplit(":", 1)
        while broker._state is not None and broker._state.server.connections:
            await asyncio.sleep(0)
        _, writer = await asyncio.open_connection(host, int(port))
        for _ in range(100):
            assert await is_answered(broker.address, timeout_ms=20_000)
        writer.transport.abort()


async def test_a_connection_that_is_cut_off_is_an_answer(free_port: Callable[[], int]) -> None:
    def cut_off(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    port = free_port()
    async with await asyncio.start_server(cut_off, "127.0.0.1", port):
        assert await is_answered(f"127.0.0.1:{port}", timeout_ms=20_000)


async def test_who_accepts_nothing_or_is_not_there_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stuck:
        address = f"127.0.0.1:{stuck.getsockname()[1]}"
        assert not await is_answered(address, timeout_ms=50)
    assert not await is_answered(address, timeout_ms=20_000)
