"""A broker is registered at each name server for as long as it runs, and says what it is."""

import asyncio
from collections.abc import Callable

import pytest

from headrace_mq._net.address import parse_address
from headrace_mq.broker import registration
from headrace_mq.broker.registration import Registrar, member, single
from headrace_mq.broker.replicas.figures import GroupFigures
from headrace_mq.errors import MessageQueueError
from headrace_mq.name_settings import NamesSettings
from headrace_mq.nameserver.name_server import NameServer
from headrace_mq.protocol.names.routes import ALONE, LEADER, REPLICA, Register
from headrace_mq.testing.embedded import name_server

HERE = Register("c", "g1", "a:1", LEADER, 1, ["a:1"])


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTER_MS", "REFUSED_MS"):
        monkeypatch.setattr(registration, name, 1)


async def known(server: NameServer, *roles: str) -> None:
    while [one.role for one in server.routes("", "").brokers] != list(roles):
        await asyncio.sleep(0)


async def test_a_broker_is_registered_at_each_name_server_until_it_stops() -> None:
    async with name_server() as one, name_server() as other:
        registered = Registrar(f"{one.address},{other.address}", lambda: HERE)
        registered.start()
        await known(one, LEADER)
        await known(other, LEADER)
        await registered.aclose()
        await known(one)
        await known(other)


async def test_a_name_server_that_was_started_again_knows_the_broker_again() -> None:
    async with name_server() as one:
        registered = Registrar(one.address, lambda: HERE)
        registered.start()
        await known(one, LEADER)
    async with name_server(port=parse_address(one.address)[1]) as again:
        await known(again, LEADER)
        await registered.aclose()


async def test_a_name_server_that_is_away_does_not_hinder_the_other(
    free_port: Callable[[], int],
) -> None:
    async with name_server() as one:
        registered = Registrar(f"127.0.0.1:{free_port()},{one.address}", lambda: HERE)
        registered.start()
        await known(one, LEADER)
        await registered.aclose()


async def test_a_registration_changes_with_its_broker() -> None:
    said: list[Register | None] = [None]
    async with name_server() as one:
        registered = Registrar(one.address, lambda: said[-1])
        registered.start()
        while not one.connections:
            await asyncio.sleep(0)
        assert one.routes("", "").brokers == []
        said.append(HERE)
        await known(one, LEADER)
        said.append(Register("c", "g1", "a:1", REPLICA, 2, ["a:1"]))
        await known(one, REPLICA)
        await registered.aclose()


async def test_a_broker_that_is_refused_tries_again() -> None:
    first = Register("c", "g1", "b:1", ALONE, 1, ["b:1"])
    async with name_server() as one:
        taken = Registrar(one.address, lambda: first)
        taken.start()
        await known(one, ALONE)
        registered = Registrar(one.address, lambda: HERE)
        registered.start()
        while not one.refused:
            await asyncio.sleep(0)
        await taken.aclose()
        await known(one, LEADER)
        await registered.aclose()


@pytest.mark.parametrize("servers", ["nowhere", "nameserver://ns:1/c", "a:1,"])
async def test_a_wrong_address_of_name_servers_is_refused(servers: str) -> None:
    with pytest.raises(MessageQueueError, match="--nameservers"):
        Registrar(servers, lambda: HERE)


async def test_a_broker_that_is_alone_says_where_it_listens_unless_it_is_reached_elsewhere(
    broker,
) -> None:
    names = NamesSettings(servers="ns:1", cluster="c", name="g7")
    said = single(names, broker.address, broker.state)
    assert (said.cluster, said.group, said.broker, said.role) == ("c", "g7", broker.address, ALONE)
    assert said.epoch == broker.state.epoch
    elsewhere = NamesSettings(servers="ns:1", advertise="q.example:1")
    assert single(elsewhere, broker.address, broker.state).addresses == ["q.example:1"]


def test_a_broker_of_a_group_says_what_the_group_calls_it() -> None:
    figures = GroupFigures(
        "c", "g1", "a:1", True, "a:1", 4, ("a:1",), 1, False, 0, (), position=512
    )
    assert member(figures) == Register("c", "g1", "a:1", LEADER, 4, ["a:1"], 512)
    assert member(figures._replace(leads=False)).role == REPLICA
