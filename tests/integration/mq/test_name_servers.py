"""Clients find brokers by name servers: brokers that moved, brokers that are new, and while no name server answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headrace_mq._net import name_servers
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker import registration
from headrace_mq.broker.registration import Registrar
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import ConnectionLost, InvalidArgument
from headrace_mq.message import Message
from headrace_mq.nameserver.name_server import NameServer
from headrace_mq.protocol.names.routes import ALONE, Register
from headrace_mq.testing.embedded import broker, memory_disk, name_server


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers and clients ask as often as they can."""
    monkeypatch.setattr(registration, "REGISTER_MS", 1)
    for name in ("SOON_MS", "AGAIN_MS"):
        monkeypatch.setattr(name_servers, name, 10)


@asynccontextmanager
async def registered(server: NameServer, address: str, group: str = "g1") -> AsyncIterator[None]:
    """Keeps a broker registered, as its process does."""
    said = Register("c", group, address, ALONE, 1, [address])
    registering = Registrar(server.address, lambda: said)
    registering.start()
    while address not in {one.broker for one in server.routes("", "").brokers}:
        await asyncio.sleep(0)
    try:
        yield
    finally:
        await registering.aclose()


async def test_clients_of_every_kind_find_a_broker_by_the_name_of_its_cluster() -> None:
    async with name_server() as server, broker() as place, registered(server, place):
        address = f"nameserver://{server.address}/c"
        async with Producer(address) as producer, AdminClient(address) as admin:
            await producer.send(Message(topic="t", body=b"one"))
            assert (await admin.describe()).broker == place

        def ends() -> int:
            with BlockingReader(address) as reader:
                return sum(found.end for found in reader.ranges(["t"]))

        assert await asyncio.to_thread(ends) == 1


async def test_a_client_follows_a_broker_that_moved_to_an_address_it_never_had() -> None:
    disk = memory_disk()
    async with name_server() as server:
        async with broker(disk=disk) as place, registered(server, place):
            producer = Producer(f"nameserver://{server.address}/c")
            await producer.start()
            await producer.send(Message(topic="t", body=b"one"))
        async with broker(disk=disk) as moved, registered(server, moved):
            assert moved != place
            await producer.send(Message(topic="t", body=b"two"))
            await producer.aclose()
            async with AdminClient(moved) as admin:
                assert sum(one.end for one in await admin.ranges(["t"])) == 2


async def test_a_client_goes_on_while_no_name_server_answers(
    free_port: Callable[[], int],
) -> None:
    port, disk = free_port(), memory_disk()
    async with name_server(port=port) as server, broker(disk=disk) as place:
        async with registered(server, place):
            producer = Producer(f"nameserver://{server.address}/c/g1")
            await producer.start()
        await server.aclose()
        await producer.send(Message(topic="t", body=b"one"))
        link = producer._link
        link.drop("a cable was pulled")
        await producer.send(Message(topic="t", body=b"two"))
        assert link.connections == 2
        await producer.aclose()


async def test_a_client_says_why_an_address_of_name_servers_leads_nowhere(
    free_port: Callable[[], int],
) -> None:
    async def look(address: str, timeout_ms: int = 60_000) -> None:
        async with AdminClient(address, timeout_ms=timeout_ms) as admin:
            await admin.describe()

    async with name_server() as server, broker() as place:
        with pytest.raises(ConnectionLost, match="knows no broker of cluster c; check the name"):
            await look(f"nameserver://{server.address}/c", 3_000)  # it looks for all of this time
        async with registered(server, place), registered(server, "127.0.0.1:1", "g2"):
            with pytest.raises(InvalidArgument, match="groups g1, g2: name one"):
                await look(f"nameserver://{server.address}/c")
            await look(f"nameserver://{server.address}/c/g1", 60_000)
        with pytest.raises(InvalidArgument, match="this is a broker, and no name server"):
            await look(f"nameserver://{place}/c")
    with pytest.raises(ConnectionLost, match="no broker answers at nameserver://"):
        await look(f"nameserver://127.0.0.1:{free_port()}/c", 200)
