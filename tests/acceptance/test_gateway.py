"""The bank by HTTP, as its users meet it: real processes, a real broker, a real kill."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 60
ACCOUNTS = 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Process:
    """One process of the command line; it can be started again after its end."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._arguments = arguments
        self._log = folder / f"{arguments[0]}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Starts it and returns the address at the end of its ready line."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headrace", *self._arguments,
                stdout=asyncio.subprocess.PIPE, stderr=log, cwd=ROOT,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), SECONDS_MAX)
        assert b"ready" in line, self._log.read_text()
        return line.decode().split()[-1]

    async def end(self, number: signal.Signals) -> int:
        """Sends a signal, waits for the end and returns the exit status."""
        assert self._process is not None
        if self._process.returncode is None:
            os.kill(self._process.pid, number)
        return await asyncio.wait_for(self._process.wait(), SECONDS_MAX)


class Bank:
    """A broker, and a service with HTTP in front of it."""

    def __init__(self, folder: Path, files: Path | None = None) -> None:
        self._folder = folder
        self._files = files or folder
        self.broker = Process(folder, "broker", "--data", str(folder / "broker"), "--port", "0")
        self.service: Process

    async def start(self) -> httpx.AsyncClient:
        """Starts both."""
        address = await self.broker.start()
        folder, files = self._folder, self._files
        self.service = Process(
            folder, "run", "samples.bank:app", "--http", "127.0.0.1:0", "--broker", address,
            "--event-store", f"sqlite:///{files / 'events.db'}",
            "--read-models", f"sqlite:///{files / 'read.db'}",
        )  # fmt: skip
        return await self.start_service()

    async def start_service(self) -> httpx.AsyncClient:
        """Starts the service, again, and returns a client of it."""
        url = await self.service.start()
        return httpx.AsyncClient(base_url=url, timeout=SECONDS_MAX)


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Bank]:
    """A bank that is killed in the end, whatever happened."""
    one = Bank(tmp_path)
    yield one
    await kill(one)


@pytest.fixture
async def cramped_bank(tmp_path: Path, small_disk: Any) -> AsyncIterator[Bank]:
    """A bank whose databases have a small disk of their own."""
    one = Bank(tmp_path, small_disk.path)
    yield one
    await kill(one)


async def kill(bank: Bank) -> None:
    for process in (getattr(bank, "service", None), bank.broker):
        if process is not None and process._process is not None:
            await process.end(signal.SIGKILL)


async def post(client: httpx.AsyncClient, name: str, key: str, **fields: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    return await client.post(f"/commands/{name}", json=fields, headers=headers)


async def test_the_bank_by_http_from_its_first_account_to_an_orderly_end(bank: Bank) -> None:
    async with await bank.start() as client:
        ready = await client.get("/ready")
        assert ready.json()["parts"] == {
            "broker": "ready", "event_store": "ready", "lag": "ready", "lineage": "ready",
            "parts": "ready", "read_models": "ready",
        }  # fmt: skip
        validate((await client.get("/openapi.json")).json())

        await post(client, "OpenAccount", "open", account_id="ada", owner="Ada")
        first = await post(client, "Deposit", "d", account_id="ada", transaction_id="d", amount=5)
        again = await post(client, "Deposit", "d", account_id="ada", transaction_id="d", amount=5)
        assert (first.status_code, first.json()["value"]) == (200, {"balance": 5})
        assert (again.status_code, again.content) == (200, first.content)
        no = await post(client, "Withdraw", "w", account_id="ada", transaction_id="w", amount=6)
        assert (no.status_code, no.json()["error"]) == (409, "InsufficientFunds")

        row = await client.get(f"/projections/balances/ada?seen=ada@{first.json()['version']}")
        assert row.json().items() >= {"balance": 5, "transactions": 1}.items()
        assert await bank.service.end(signal.SIGTERM) == 0


async def test_a_service_killed_with_requests_in_flight_applies_each_key_once(bank: Bank) -> None:
    async with await bank.start() as client:
        names = [f"a{number}" for number in range(ACCOUNTS)]
        opened = [post(client, "OpenAccount", "open", account_id=n, owner="x") for n in names]
        assert {answer.status_code for answer in await asyncio.gather(*opened)} == {200}
        deposits = [
            asyncio.create_task(deposit(client, name, number))
            for number in range(10)
            for name in names
        ]
        done, _ = await asyncio.wait(deposits, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) < len(deposits)
        await bank.service.end(signal.SIGKILL)
        before = await asyncio.gather(*deposits, return_exceptions=True)
    lost = [answer for answer in before if isinstance(answer, httpx.TransportError)]
    assert lost, "every request had its answer before the kill"

    async with await bank.start_service() as client:
        again = [deposit(client, name, number) for number in range(10) for name in names]
        after = await asyncio.gather(*again)
        assert {answer.status_code for answer in after} == {200}
        for first, second in zip(before, after, strict=True):
            if isinstance(first, httpx.Response):
                assert first.json() == second.json()
        for name in names:
            row = await client.get(f"/projections/balances/{name}?seen={name}@11")
            assert row.json().items() >= {"balance": 10, "transactions": 10}.items(), name


async def deposit(client: httpx.AsyncClient, account: str, number: int) -> httpx.Response:
    fields = {"account_id": account, "transaction_id": f"{account}-{number}", "amount": 1}
    return await post(client, "Deposit", f"d{number}", **fields)


async def test_a_broker_that_is_away_is_503_and_not_ready(bank: Bank) -> None:
    async with await bank.start() as client:
        await bank.broker.end(signal.SIGKILL)
        ready = await client.get("/ready")
        assert ready.status_code == 503
        assert ready.json()["parts"]["broker"] != "ready"
        health = (await client.get("/health")).json()
        assert (health["status"], health["alarms"]) == ("alive", [])
        body = {"account_id": "ada", "owner": "Ada"}
        answer = await client.post("/commands/OpenAccount?wait_ms=100", json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_an_address_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", "run", "samples.bank:app", "--http", "8080",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    assert (process.returncode, output) == (2, b"")
    assert "write HOST:PORT" in " ".join(errors.decode().split())
    assert "Traceback" not in errors.decode()


async def test_a_killed_service_answers_from_a_full_disk_and_goes_on_when_there_is_room(
    cramped_bank: Bank, small_disk: Any
) -> None:
    async with await cramped_bank.start() as client:
        opened = await post(client, "OpenAccount", "open", account_id="ada", owner="Ada")
        seen = f"ada@{opened.json()['version']}"
        assert (await client.get(f"/projections/balances/ada?seen={seen}")).status_code == 200
    await cramped_bank.service.end(signal.SIGKILL)
    small_disk.fill()
    async with await cramped_bank.start_service() as client:
        row = await client.get("/projections/balances/ada")
        assert row.json().items() >= {"owner": "Ada", "balance": 0}.items()
        paying = asyncio.create_task(
            post(client, "Deposit", "d", account_id="ada", transaction_id="d", amount=5)
        )
        # It waits at the event store, while others read.
        assert (await client.get("/projections/balances?limit=10")).json()["rows"]
        assert not paying.done()
        small_disk.free()
        assert (await paying).json()["value"] == {"balance": 5}


async def test_a_killed_service_on_a_disk_that_became_read_only_answers_and_refuses(
    cramped_bank: Bank, small_disk: Any
) -> None:
    async with await cramped_bank.start() as client:
        opened = await post(client, "OpenAccount", "open", account_id="ada", owner="Ada")
        seen = f"ada@{opened.json()['version']}"
        assert (await client.get(f"/projections/balances/ada?seen={seen}")).status_code == 200
    await cramped_bank.service.end(signal.SIGKILL)
    small_disk.forbid()
    async with await cramped_bank.start_service() as client:
        row = await client.get("/projections/balances/ada")
        assert row.json().items() >= {"owner": "Ada", "balance": 0}.items()
        refused = await post(client, "OpenAccount", "new", account_id="ben", owner="Ben")
        assert (refused.status_code, refused.json()["title"]) == (503, "Read-only service")
        ready = await client.get("/ready")
        assert ready.status_code == 503
        assert ready.json()["parts"]["parts"].startswith("read-only: the file of the event store")
    assert await cramped_bank.service.end(signal.SIGTERM) == 0
    small_disk.allow()
    async with await cramped_bank.start_service() as client:
        assert (await client.get("/ready")).status_code == 200
        opened = await post(client, "OpenAccount", "new", account_id="ben", owner="Ben")
        assert opened.status_code == 200
