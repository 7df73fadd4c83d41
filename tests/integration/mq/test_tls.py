"""A broker that speaks TLS, and every kind of client: they understand each other, or say why they do not."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq import (
    AdminClient,
    BlockingReader,
    Consumer,
    Message,
    Producer,
    QueueRef,
)
from headrace_mq.broker.registration import Registrar
from headrace_mq.broker.server import Broker
from headrace_mq.errors import MalformedRequest, MessageQueueError, TlsFailed
from headrace_mq.protocol.names.routes import ALONE, Register
from headrace_mq.settings import BrokerSettings, ConsumerSettings, ProducerSettings, StoreSettings
from headrace_mq.supervisor.supervisor import is_answered
from headrace_mq.testing.embedded import DIRECTORY, SEGMENT_BYTES, memory_disk, name_server

PRODUCERS, RENEWALS = 4, 5
Ask = Callable[[str], Awaitable[object]]
PAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)


@asynccontextmanager
async def secured(certificate: Path | None, key: Path | None, ca: Path | None = None) -> Any:
    disk = memory_disk()
    store = StoreSettings(
        directory=DIRECTORY, segment_bytes=SEGMENT_BYTES, compact_segment_bytes=SEGMENT_BYTES
    )
    settings = BrokerSettings(
        store=store, port=0, tls_certificate=certificate, tls_key=key, tls_client_ca=ca
    )
    broker = Broker(settings, disk=disk, files=disk.mount())
    async with broker:
        yield broker


@pytest.fixture
async def broker(tmp_path: Path, authority: Any) -> AsyncIterator[Broker]:
    async with secured(*authority.issue(tmp_path, "localhost", "127.0.0.1")) as running:
        yield running


@pytest.fixture
def ca(tmp_path: Path, authority: Any) -> Path:
    path: Path = authority.write(tmp_path)
    return path


async def produce(address: str) -> None:
    settings = ProducerSettings(reconnect_ms_min=1, reconnect_ms_max=1)
    async with Producer(address, settings) as producer:
        await producer.send(Message(topic="orders", key="ann", body=b"tea"))


async def consume(address: str) -> None:
    settings = ConsumerSettings(reconnect_ms_min=1, reconnect_ms_max=1)
    async with Consumer(address, group="kitchen", topics=["orders"], settings=settings) as consumer:
        while not await consumer.poll():
            pass


async def administer(address: str) -> None:
    async with AdminClient(address) as admin:
        await admin.topics()


async def read(address: str) -> None:
    def in_a_thread() -> None:
        with BlockingReader(address) as reader:
            ranges = reader.ranges(["orders"])
            for each in ranges:
                for _ in reader.read(QueueRef(each.topic, each.queue_id), each.first, each.end):
                    pass

    await asyncio.to_thread(in_a_thread)


KINDS: tuple[Ask, ...] = (produce, consume, administer, read)


async def test_every_kind_of_client_works_over_tls(broker: Broker, ca: Path) -> None:
    port = broker.address.rpartition(":")[2]
    for host in ("localhost", "127.0.0.1"):
        for kind in KINDS:
            await kind(f"tls://{host}:{port}?ca={ca}")


async def test_many_and_large_messages_arrive(broker: Broker, ca: Path) -> None:
    address = f"tls://{broker.address}?ca={ca}"
    bodies = [bytes([n % 256]) * (40_000 if n % 10 == 0 else 100) for n in range(500)]
    async with Producer(address) as producer:
        await producer.create_topic("large", queues=1)
        await producer.send_many([Message(topic="large", body=body) for body in bodies])
        await producer.send(Message(topic="large", body=bytes(3_000_000)))
    found: list[bytes] = []
    async with Consumer(address, group="all", topics=["large"]) as consumer:
        while len(found) < 501:
            found += [record.body for record in await consumer.poll()]
    assert found == [*bodies, bytes(3_000_000)]


async def failure(kind: Ask, address: str) -> MessageQueueError:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(MessageQueueError) as raised:
        await kind(address)
    # At once, and not after the time that a client waits for a broker.
    assert loop.time() - began < 15
    return raised.value


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_does_not_believe_the_broker_says_why_at_once(
    kind: Ask, ca: Path, tmp_path: Path, authority: Any, other_authority: Any
) -> None:
    (tmp_path / "other").mkdir()
    other = other_authority.write(tmp_path / "other")
    async with secured(*authority.issue(tmp_path, "broker.example")) as broker:
        address = f"tls://{broker.address}"
        for options, sentence in (
            (f"?ca={ca}", "is not for 127.0.0.1; connect to a name"),
            (f"?ca={other}", "not known here; name its certificate with ca=FILE"),
            ("", "not known here; name its certificate with ca=FILE"),
            (f"?ca={tmp_path}/absent.pem", "absent.pem cannot be used: No such"),
        ):
            error = await failure(kind, address + options)
            assert isinstance(error, TlsFailed)
            assert sentence in str(error)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_expired_certificate_is_named(
    kind: Ask, ca: Path, tmp_path: Path, authority: Any
) -> None:
    files = authority.issue(tmp_path, "127.0.0.1", not_before=PAST[0], not_after=PAST[1])
    async with secured(*files) as broker:
        error = await failure(kind, f"tls://{broker.address}?ca={ca}")
        assert (
            f"certificate of the broker at {broker.address.partition(':')[0]} has expired"
            in str(error)
        )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_plain_client_learns_that_the_broker_speaks_tls(kind: Ask, broker: Broker) -> None:
    with capture_logs() as logs:
        error = await failure(kind, broker.address)
    assert isinstance(error, MalformedRequest)
    assert "speaks TLS alone; write its address as tls://HOST:PORT?ca=FILE" in str(error)
    assert "it does not speak TLS" in [each.get("reason") for each in logs]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_with_tls_learns_that_the_broker_does_not_speak_it(kind: Ask) -> None:
    async with secured(None, None) as broker:
        error = await failure(kind, f"tls://{broker.address}")
        assert isinstance(error, TlsFailed)
        assert "does not speak TLS; leave tls:// out" in str(error)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_broker_that_asks_for_certificates_lets_in_clients_that_have_one(
    kind: Ask, ca: Path, tmp_path: Path, authority: Any, other_authority: Any
) -> None:
    certificate, key = authority.issue(tmp_path, common_name="reports", file="client")
    unknown = other_authority.issue(tmp_path, common_name="eve", file="eve")
    (tmp_path / "old").mkdir()
    old = authority.issue(
        tmp_path / "old", common_name="old", not_before=PAST[0], not_after=PAST[1]
    )
    async with secured(*authority.issue(tmp_path, "127.0.0.1"), ca) as broker:
        address = f"tls://{broker.address}?ca={ca}"
        await produce(f"{address}&certificate={certificate}&key={key}")
        await kind(f"{address}&certificate={certificate}&key={key}")
        for mine, sentence in (
            ("", "asks for a client's certificate; name yours"),
            (f"&certificate={unknown[0]}&key={unknown[1]}", "does not know the authority"),
            (f"&certificate={old[0]}&key={old[1]}", "has expired; renew it"),
        ):
            with capture_logs() as logs:
                error = await failure(kind, address + mine)
            assert isinstance(error, TlsFailed)
            assert sentence in str(error)
            assert any(str(each.get("reason")).startswith("TLS: ") for each in logs)


async def test_the_subject_of_a_certificate_is_the_principal(
    ca: Path, tmp_path: Path, authority: Any
) -> None:
    certificate, key = authority.issue(tmp_path, common_name="reports", file="client")
    async with (
        secured(*authority.issue(tmp_path, "127.0.0.1"), ca) as broker,
        Producer(f"tls://{broker.address}?ca={ca}&certificate={certificate}&key={key}") as producer,
    ):
        state = broker._state
        assert state is not None
        connection = state.clients[producer.client_id]
        assert connection.principal == "CN=reports,OU=Branch 7,O=Bank"


async def test_new_certificates_count_for_new_connections_and_drop_no_old_one(
    broker: Broker, ca: Path, tmp_path: Path, other_authority: Any
) -> None:
    address = f"tls://{broker.address}?ca={ca}"
    async with Producer(address) as producer:
        await producer.send(Message(topic="orders", body=b"before"))
        connections = producer._link.connections
        other_authority.issue(tmp_path, "127.0.0.1")
        broker.renew_certificates()
        await producer.send(Message(topic="orders", body=b"after"))
        assert producer._link.connections == connections
        assert "not known here" in str(await failure(administer, address))
        (tmp_path / "other").mkdir()
        await administer(f"tls://{broker.address}?ca={other_authority.write(tmp_path / 'other')}")


async def test_certificates_renewed_under_load_drop_no_connection(
    tmp_path: Path, authority: Any
) -> None:
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    ca = authority.write(tmp_path)
    async with secured(certificate, key) as broker, AsyncExitStack() as stack:
        address = f"tls://{broker.address}?ca={ca}"
        producers = [await stack.enter_async_context(Producer(address)) for _ in range(PRODUCERS)]
        settings = ConsumerSettings(start="earliest")
        consumer = await stack.enter_async_context(
            Consumer(address, group="g", topics=["orders"], settings=settings)
        )
        sent, stop = 0, asyncio.Event()

        async def send(producer: Producer, number: int) -> None:
            nonlocal sent
            while not stop.is_set():
                await producer.send(Message(topic="orders", key=str(number), body=b"%d" % sent))
                sent += 1

        tasks = [asyncio.create_task(send(one, number)) for number, one in enumerate(producers)]
        serials = set()
        with capture_logs() as logs:
            for _ in range(RENEWALS):
                authority.issue(tmp_path, "127.0.0.1")
                broker.renew_certificates()
                goal = sent + 20
                while sent < goal:
                    await asyncio.sleep(0)
                serials.add(await asyncio.to_thread(shown, broker.address))
        stop.set()
        await asyncio.gather(*tasks)
        found = 0
        while found < sent:
            found += len(await consumer.poll())
        links = [*(one._link for one in producers), consumer._link]
        assert [one.connections for one in links] == [1] * len(links)
        assert len(serials) == RENEWALS
        assert [one for one in logs if one["log_level"] in {"warning", "error"}] == []


def shown(address: str) -> bytes:
    """The certificate that a new connection gets."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


async def test_a_client_that_says_nothing_counts_before_its_handshake(broker: Broker) -> None:
    state = broker._state
    assert state is not None
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port))):
        while not state.server.connections:
            await asyncio.sleep(0)
    while state.server.connections:
        await asyncio.sleep(0)


async def test_a_supervisor_without_certificates_sees_that_the_broker_is_alive(
    broker: Broker,
) -> None:
    with capture_logs() as logs:
        assert await is_answered(broker.address, timeout_ms=60_000)
    assert [each for each in logs if each["log_level"] == "warning"] == []


async def test_name_servers_and_brokers_are_reached_with_the_same_files(
    tmp_path: Path, authority: Any, ca: Path
) -> None:
    certificate, key = authority.issue(tmp_path, "localhost", "127.0.0.1")
    files = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": ca}
    mine = f"ca={ca}&certificate={certificate}&key={key}"
    async with secured(certificate, key, ca) as broker, name_server(**files) as server:
        said = Register("c", "g1", broker.address, ALONE, 1, [broker.address])
        registrar = Registrar(f"tls://{server.address}?{mine}", lambda: said)
        registrar.start()
        while not server.routes("", "").brokers:
            await asyncio.sleep(0)
        async with AdminClient(f"nameserver://{server.address}/c?{mine}") as admin:
            assert (await admin.describe()).broker == broker.address
        with pytest.raises(TlsFailed, match="asks for a client's certificate"):
            async with AdminClient(f"nameserver://{server.address}/c?ca={ca}"):
                pass
        with pytest.raises(MalformedRequest, match="speaks TLS alone"):
            async with AdminClient(f"nameserver://{server.address}/c"):
                pass
        await registrar.aclose()
