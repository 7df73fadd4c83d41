"""The gateway on a socket: it listens where it says, leaves signals alone, and stops in order."""

import asyncio
import signal
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from headrace.errors import HeadraceError, ProjectionError
from headrace.gateway import certificate as certificate_module
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


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.0.1", "Address already in use"), ("no.such.invalid", "Name")]
)
async def test_an_address_that_cannot_be_had_is_one_sentence(
    bank: Any, host: str, reason: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = GatewaySettings(host=host, port=other.getsockname()[1], insecure=True)
        with pytest.raises(HeadraceError, match=rf"cannot serve HTTP on {host}:\d+ \({reason}"):
            async with serving(app, bank, taken):
                pass


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


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_an_open_address_is_warned_of(bank: Any, host: str, warned: bool) -> None:
    with capture_logs() as logs:
        async with serving(app, bank, GatewaySettings(host=host, port=0, insecure=True)):
            pass
    assert any("asks for no tokens" in line["event"] for line in logs) == warned


async def test_headers_beyond_the_limit_end_the_connection_and_not_the_server(bank: Any) -> None:
    async with serving(app, bank, FREE) as served:
        host, _, port = served.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health HTTP/1.1\r\nA: " + b"x" * 200_000 + b"\r\n\r\n")
        assert (await reader.read(100)).startswith(b"HTTP/1.1 400")
        writer.close()
        assert (await get(served.address, "/health")).status_code == 200


async def test_an_open_address_without_tls_is_refused(bank: Any) -> None:
    with pytest.raises(HeadraceError, match=r"reach 0.0.0.0.*http.tls_certificate.*http.insecure"):
        async with serving(app, bank, GatewaySettings(host="0.0.0.0", port=0)):
            pass


async def test_the_gateway_speaks_https_alone_with_a_certificate(
    bank: Any, tmp_path: Path, authority: Any, clients: Any
) -> None:
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    tls = {"tls_certificate": certificate, "tls_key": key}
    settings = GatewaySettings(host="0.0.0.0", port=0, tokens=clients.path, **tls)
    context = ssl.create_default_context(cafile=authority.write(tmp_path))
    async with serving(app, bank, settings) as served:
        address = served.address.replace("0.0.0.0", "127.0.0.1")
        assert served.scheme == "https"
        async with httpx.AsyncClient(verify=context) as client:
            answer = await client.get(f"https://{address}/health")
            assert answer.status_code == 200
        with pytest.raises(httpx.TransportError):
            await get(address, "/health")


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="go together"):
        GatewaySettings(tls_certificate=tmp_path / "server.pem")


async def test_an_open_address_without_tokens_is_refused_also_with_tls(
    bank: Any, tmp_path: Path, authority: Any
) -> None:
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    settings = GatewaySettings(host="0.0.0.0", port=0, tls_certificate=certificate, tls_key=key)
    with pytest.raises(HeadraceError, match=r"reach 0.0.0.0.*http.tokens.*http.insecure"):
        async with serving(app, bank, settings):
            pass


async def test_a_file_of_tokens_that_cannot_be_used_ends_the_start(
    bank: Any, tmp_path: Path
) -> None:
    with pytest.raises(HeadraceError, match="cannot be read"):
        async with serving(app, bank, GatewaySettings(port=0, tokens=tmp_path / "none")):
            pass


async def test_a_server_takes_a_new_file_of_tokens_while_it_runs(
    bank: Any, clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_module, "_LOOK_MS", 1)
    async with (
        serving(app, bank, GatewaySettings(port=0, tokens=clients.path)) as served,
        httpx.AsyncClient(base_url=f"http://{served.address}") as client,
    ):
        headers = clients.headers("bob")
        assert (await client.get("/docs", headers=headers)).status_code == 200
        clients.remove("bob")
        while (await client.get("/docs", headers=headers)).status_code == 200:
            await asyncio.sleep(0)
        assert (await client.get("/docs", headers=clients.headers("ann"))).status_code == 200
