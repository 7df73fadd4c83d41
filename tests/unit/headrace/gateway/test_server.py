"""The gateway on a socket: it listens where it says, leaves signals alone, and stops in order."""

import asyncio
import signal
import socket
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from headrace.errors import HeadraceError, ProjectionError
from headrace.gateway.server import serving
from headrace.gateway.settings import GatewaySettings
from headrace.watch.alarms import Alarm
from samples.bank import app

FREE = GatewaySettings(port=0)


async def get(address: str, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://{address}") as client:
        return await client.get(path)


async def test_the_server_serves_on_the_address_it_prints_until_the_block_ends(bank: Any) -> None:
    async with serving(app, bank, FREE) as served:
        assert (await get(served.address, "/ready")).json()["parts"]["parts"] == "ready"
    with pytest.raises(httpx.ConnectError):
        await get(served.address, "/health")


async def test_signals_stay_with_the_owner_of_the_process(bank: Any) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(app, bank, FREE):
        during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert during == before


async def test_the_server_finishes_requests_under_way_before_it_stops(bank: Any, held: Any) -> None:
    begun, let_go = held
    async with httpx.AsyncClient() as client:
        block = serving(app, bank, FREE)
        served = await block.__aenter__()
        url = f"http://{served.address}/commands/OpenAccount"
        body = {"account_id": "ada", "owner": "x"}
        request = asyncio.create_task(client.post(url, json=body))
        await begun.wait()
        stop = asyncio.create_task(block.__aexit__(None, None, None))
        await asyncio.sleep(0)
        let_go.set()
        answer = await request
        await stop
    assert (answer.status_code, answer.json()["version"]) == (200, 1)


async def test_a_request_that_takes_too_long_is_cut_off_with_an_answer(bank: Any) -> None:
    begun = asyncio.Event()

    async def never(*_: Any, **__: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    bank.bus.execute = never
    async with httpx.AsyncClient() as client:
        async with serving(app, bank, GatewaySettings(port=0, stop_ms=1)) as served:
            url = f"http://{served.address}/commands/OpenAccount"
            body = {"account_id": "ada", "owner": "x"}
            request = asyncio.create_task(client.post(url, json=body))
            await begun.wait()
        answer = await request
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "same Idempotency-Key is safe" in answer.json()["detail"]


async def test_a_failed_part_makes_the_application_not_ready(bank: Any) -> None:
    async def broken() -> None:
        raise HeadraceError("the part broke")

    bank.failed = broken
    async with serving(app, bank, FREE) as served:
        answer = await get(served.address, "/ready")
    assert (answer.status_code, answer.json()["parts"]["parts"]) == (503, "the part broke")


async def test_a_projection_that_falls_behind_is_not_ready_and_an_alarm_is_shown(bank: Any) -> None:
    async def behind() -> None:
        raise ProjectionError("projection balances is 7 messages and 70.0 s behind")

    alarm = Alarm(projection="balances", kind="letters", value=3, bound=1)
    bank.watch = SimpleNamespace(check_lag=behind, alarms=SimpleNamespace(current=(alarm,)))
    async with serving(app, bank, FREE) as served:
        answer = await get(served.address, "/ready")
        health = await get(served.address, "/health")
    assert (answer.status_code, answer.json()["parts"]["lag"]) == (
        503,
        "projection balances is 7 messages and 70.0 s behind",
    )
    assert health.json()["alarms"] == [
        {"projection": "balances", "kind": "letters", "value": 3, "bound": 1}
    ]


async def test_an_address_in_use_is_an_error_at_once(bank: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = GatewaySettings(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            async with serving(app, bank, settings):
                pass


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_an_open_address_is_warned_of(bank: Any, host: str, warned: bool) -> None:
    with capture_logs() as logs:
        async with serving(app, bank, GatewaySettings(host=host, port=0)):
            pass
    assert any("no authentication" in line["event"] for line in logs) == warned


async def test_headers_beyond_the_limit_end_the_connection_and_not_the_server(bank: Any) -> None:
    async with serving(app, bank, FREE) as served:
        host, _, port = served.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health HTTP/1.1\r\nA: " + b"x" * 200_000 + b"\r\n\r\n")
        assert (await reader.read(100)).startswith(b"HTTP/1.1 400")
        writer.close()
        assert (await get(served.address, "/health")).status_code == 200
