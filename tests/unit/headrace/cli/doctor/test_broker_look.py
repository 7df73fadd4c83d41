"""What a broker is asked, and what becomes of its answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from headrace.cli.doctor.broker_look import (
    _kind,
    look_at_broker,
    look_at_cluster,
    look_at_names,
    look_at_place,
    look_at_places,
)
from headrace_mq import AdminClient, Message, Producer
from headrace_mq._net.address import BrokerAddress
from headrace_mq.broker.registration import Registrar
from headrace_mq.cluster.record import Identity
from headrace_mq.cluster.records.postgres import PostgresRecord
from headrace_mq.errors import LoginFailed, NotLeader, TlsFailed, UnsupportedVersion
from headrace_mq.protocol.names.routes import ALONE, Register
from headrace_mq.testing.clock import ManualClock
from headrace_mq.testing.embedded import broker, name_server


@pytest.fixture
async def address() -> AsyncIterator[BrokerAddress]:
    async with broker() as running:
        yield BrokerAddress.parse(running)


async def test_each_place_answers_for_itself(
    address: BrokerAddress, free_port: Callable[[], int]
) -> None:
    both = address._replace(places=(*address.places, ("127.0.0.1", free_port())))
    first, second = await look_at_places(both)
    assert (first.name, first.kind) == (str(address), "leads")
    assert (second.kind, second.sentence.partition(" (")[0]) == (
        "silent",
        f"no broker answers at {second.name}",
    )


async def test_a_name_that_is_no_address_and_a_host_that_is_none_are_silent(
    address: BrokerAddress,
) -> None:
    assert (await look_at_place(address, "strange")).kind == "silent"
    assert (await look_at_place(address, "no.such.host.invalid:1")).kind == "silent"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotLeader("a replica"), "replica"),
        (LoginFailed("no"), "login"),
        (UnsupportedVersion("other"), "version"),
        (TlsFailed("unknown"), "tls"),
        (ConnectionRefusedError("refused"), "silent"),
    ],
)
def test_the_kind_of_an_answer_is_that_of_its_error(error: Exception, kind: str) -> None:
    assert _kind(error) == kind


async def test_a_broker_tells_what_it_holds(address: BrokerAddress) -> None:
    async with Producer(str(address)) as producer, AdminClient(str(address)) as admin:
        await admin.create_topic("events", 2, "forever")
        await admin.create_topic("orders", 1)
        await producer.send(Message(topic="events", body=b"one"))
        await producer.send(Message(topic="orders", body=b"one"))
        await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
        found = await look_at_broker(address)
    assert found.topics is not None
    assert [one.topic for one in found.topics] == ["events", "orders"]
    assert [one.topic for one in found.forever] == ["events", "events"]
    assert [(one.group, one.lag) for one in found.groups] == [("kitchen", 1)]
    assert 0 <= found.oldest_ms["kitchen"] < 60_000
    assert (found.letters, found.denied) == ({}, ())
    assert abs(found.ahead_ms) <= found.unsure_ms + 1
    assert found.status.topics == 2


@pytest.mark.parametrize("seconds", [-90, 45])
async def test_a_clock_that_is_wrong_is_noticed(seconds: int) -> None:
    clock = ManualClock(time.time_ns() // 1_000_000 + seconds * 1_000)
    async with broker(clock=clock) as running:
        found = await look_at_broker(BrokerAddress.parse(running))
    assert abs(found.ahead_ms - seconds * 1_000) < 5_000


async def test_dead_letters_that_were_not_sent_again_are_counted(address: BrokerAddress) -> None:
    async with Producer(str(address)) as producer, AdminClient(str(address)) as admin:
        await admin.create_topic("%DLQ%kitchen", 1, "forever")
        for body in (b"tea", b"milk"):
            await producer.send(Message(topic="%DLQ%kitchen", body=body))
        assert (await look_at_broker(address)).letters == {"kitchen": 2}
        await admin.purge("kitchen", before_ms=time.time_ns() // 1_000_000 + 60_000)
        assert (await look_at_broker(address)).letters == {}


@pytest.fixture
def away(free_port: Callable[[], int]) -> str:
    return f"127.0.0.1:{free_port()}"


async def test_the_record_and_the_answers_of_its_members_are_found(
    postgres_database: str, away: str
) -> None:
    async with broker() as address:
        record = PostgresRecord(postgres_database, cluster="default", group="g1")
        await record.create(Identity(address, "x"), [Identity(address, "x"), Identity(away, "y")])
        await record.aclose()
        found = await look_at_cluster(
            postgres_database, BrokerAddress.parse(f"{address},h:3"), cluster="default", group="g1", min_in_sync=2
        )  # fmt: skip
    assert found.record.leader == address
    assert {name: one.kind for name, one in found.answers.items()} == {
        address: "leads",
        away: "silent",
    }
    assert (found.named, found.min_in_sync, found.trouble) == ({address, "h:3"}, 2, "")


@pytest.mark.parametrize("group", ["g1", "other"])
async def test_a_record_that_is_not_there_says_what_to_do(
    postgres_database: str, group: str
) -> None:
    found = await look_at_cluster(
        postgres_database, BrokerAddress.parse("h:1"), cluster="default", group=group, min_in_sync=1
    )
    assert found.record is None
    assert "start" in found.trouble


async def test_brokers_are_looked_for_at_name_servers(free_port: Callable[[], int]) -> None:
    said = Register("c", "g1", "h:1", ALONE, 1, ["h:1", "h:2"])
    away = f"127.0.0.1:{free_port()}"
    async with name_server() as server:
        registered = Registrar(server.address, lambda: said)
        registered.start()
        while not server.routes("", "").brokers:
            await asyncio.sleep(0)
        names = f"nameserver://{server.address},{away}"
        found, facts = await look_at_names(BrokerAddress.parse(f"{names}/c/g1"))
        assert found == BrokerAddress((("h", 1), ("h", 2)))
        assert [(one.name, one.brokers) for one in facts] == [(server.address, 2), (away, 0)]
        found, facts = await look_at_names(
            BrokerAddress.parse(f"nameserver://{server.address}/c/g2")
        )
        assert found.places == ()
        assert "knows no broker of group g2" in facts[0].sentence
        found, facts = await look_at_names(BrokerAddress.parse(f"{names}/c/g1,g2"))
        assert found.places == ()
        assert "examine each of them alone" in facts[0].sentence
        await registered.aclose()
    plain = BrokerAddress.parse("h:1")
    assert await look_at_names(plain) == (plain, [])
