"""A blocking connection goes to the first broker that serves, and says why none does."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.client.sync.connection import BlockingConnection
from headrace_mq.errors import Closed, ConnectionLost, RequestTimeout
from headrace_mq.protocol.bodies import QueueRange, QueueRanges, QueueRangesAnswer, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.names.routes import LEADER, Register
from headrace_mq.testing.embedded import name_server


def ranges_of(connection: BlockingConnection) -> QueueRangesAnswer:
    return connection.ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, QueueRanges(["t"]))


def test_without_a_broker_it_says_what_to_check(free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionLost, match=f"no broker answers at {address} .*firewall"):
        BlockingConnection(address, timeout_ms=10_000)


async def test_of_several_addresses_the_first_that_answers_is_read(
    broker: Any, free_port: Callable[[], int]
) -> None:
    broker.topics["t"] = 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # Of the first two one is away, and one takes connections and says nothing.
        mute = f"127.0.0.1:{silent.getsockname()[1]}"
        places = f"127.0.0.1:{free_port()},{mute},{broker.address}"
        connection = await asyncio.to_thread(lambda: BlockingConnection(places, timeout_ms=3_000))
    answer = await asyncio.to_thread(ranges_of, connection)
    assert answer.ranges == [QueueRange("t", 0, 0, 0, epoch=1)]
    connection.close()
    with pytest.raises(Closed):
        ranges_of(connection)


async def test_an_answer_that_was_given_up_is_forgotten(broker: Any) -> None:
    broker.topics["t"] = 1

    def ask() -> int:
        connection = BlockingConnection(broker.address, timeout_ms=20_000)
        given_up = connection.send(RequestCode.QUEUE_RANGES, QueueRanges(["t"]))
        connection.forget(given_up)
        found = len(ranges_of(connection).ranges)
        connection.close()
        return found + len(connection._arrived) + len(connection._expected)

    assert await asyncio.to_thread(ask) == 1


def test_without_any_broker_all_addresses_are_named(free_port: Callable[[], int]) -> None:
    one, other = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    told = rf"no broker answers at {one},{other} \({one}: .*refused; {other}: .*refused\)"
    with pytest.raises(ConnectionLost, match=told):
        BlockingConnection(f"{one},{other}", timeout_ms=10_000)


def test_a_broker_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RequestTimeout, match=f"no answer from {address} within 500 ms"):
            BlockingConnection(address, timeout_ms=500)


async def test_a_broker_is_found_by_name_servers_and_remembered_while_they_are_away(
    broker: Any, free_port: Callable[[], int]
) -> None:
    broker.topics["t"] = 1
    async with name_server() as server:
        address = f"nameserver://127.0.0.1:{free_port()},{server.address}/c"

        def read() -> QueueRangesAnswer:
            connection = BlockingConnection(address, timeout_ms=20_000)
            try:
                return ranges_of(connection)
            finally:
                connection.close()

        with pytest.raises(ConnectionLost, match="knows no broker of cluster c"):
            await asyncio.to_thread(read)
        link = Link(server.address, client_id="broker", settings=LinkSettings((1, 5)))
        await link.start(60_000)
        here = Register("c", "g1", broker.address, LEADER, 1, [broker.address])
        await link.request(RequestCode.REGISTER, encode(here), timeout_ms=60_000)
        assert (await asyncio.to_thread(read)).ranges == [QueueRange("t", 0, 0, 0, epoch=1)]
        await link.aclose()
    assert (await asyncio.to_thread(read)).ranges == [QueueRange("t", 0, 0, 0, epoch=1)]
