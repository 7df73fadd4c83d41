"""Slow clients hold up themselves: each address has its share of connections, each head its time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest

from headrace.gateway.server import Serving, serving
from headrace.gateway.settings import GatewaySettings
from samples.bank import app

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
SLOW_BODY = (
    b"POST /commands/OpenAccount HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Awaitable[Streams]]]:
    """Opens connections that have said something, and closes them."""
    writers = []

    async def open_one(served: Serving, said: bytes = b"", *, of: str = "127.0.0.1") -> Streams:
        host, _, port = served.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(of, 0))
        writers.append(writer)
        writer.write(said)
        return reader, writer

    yield open_one
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def status(streams: Streams) -> int:
    line = await streams[0].readline()
    return int(line.split()[1])


async def is_closed(streams: Streams) -> bool:
    """Waits for the end of a connection that was cut or closed, whatever was said before."""
    try:
        await streams[0].read()
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("said", [GET, SLOW_BODY], ids=["head", "body"])
async def test_many_slow_clients_of_an_address_leave_room_for_other_clients(
    bank: Any, connect: Any, said: bytes
) -> None:
    settings = GatewaySettings(port=0, connections_max=12, connections_per_address_max=4)
    async with serving(app, bank, settings) as served:
        slow = [await connect(served, said) for _ in range(40)]
        for address in ("127.0.0.1", "127.0.0.2"):
            quick = await connect(served, GET + b"\r\n", of=address)
            assert await status(quick) == 200
        # The oldest were closed; the last ones still stand.
        assert all([await is_closed(each) for each in slow[:36]])
        # Their requests, which do not end, would hold up the end of the gateway.
        for each in slow[36:]:
            each[1].close()


async def test_the_client_with_the_last_request_stays_connected(bank: Any, connect: Any) -> None:
    settings = GatewaySettings(port=0, connections_per_address_max=2)
    async with serving(app, bank, settings) as served:
        first = await connect(served, GET)
        second = await connect(served, GET)
        first[1].write(b"\r\n")
        assert await status(first) == 200
        third = await connect(served, GET + b"\r\n")
        assert await status(third) == 200
        assert await is_closed(second)
        first[1].write(GET + b"\r\n")
        assert b"alive" in await first[0].readuntil(b"alive")


async def test_requests_at_work_are_not_closed_for_a_newcomer(bank: Any, held: Any) -> None:
    begun, let_go = held
    settings = GatewaySettings(port=0, connections_per_address_max=1)
    async with serving(app, bank, settings) as served, httpx.AsyncClient() as client:
        url = f"http://{served.address}/commands/OpenAccount"
        working = asyncio.create_task(client.post(url, json={"account_id": "a", "owner": "x"}))
        await begun.wait()
        async with httpx.AsyncClient() as newcomer:
            answer = await newcomer.get(f"http://{served.address}/health")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "connections_per_address_max" in answer.json()["detail"]
        let_go.set()
        assert (await working).status_code == 200


@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["first", "second"])
async def test_a_head_that_does_not_end_is_408(bank: Any, connect: Any, before: bytes) -> None:
    async with serving(app, bank, GatewaySettings(port=0, head_ms=50)) as served:
        streams = await connect(served, before)
        if before:
            assert await status(streams) == 200
            await streams[0].readuntil(b"}")
        streams[1].write(GET)
        told = await streams[0].read()
        assert b"408 Request Timeout" in told
        assert b"head_ms" in told


async def test_a_connection_without_a_word_is_closed(bank: Any, connect: Any) -> None:
    async with serving(app, bank, GatewaySettings(port=0, head_ms=50)) as served:
        streams = await connect(served)
        assert await streams[0].read() == b""


async def test_a_body_with_two_lengths_is_refused_and_what_follows_is_not_read(
    bank: Any, connect: Any
) -> None:
    body = b"0\r\n\r\nGET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(app, bank, GatewaySettings(port=0)) as served:
        streams = await connect(
            served,
            b"POST /commands/OpenAccount HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
            + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        )  # fmt: skip
        told = await streams[0].read()
        assert told.startswith(b"HTTP/1.1 400")
        assert told.count(b"HTTP/1.1 ") == 1
        assert b"not both" in told
