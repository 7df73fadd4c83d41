"""Event streams on a socket: rows and pages at each change, reconnection, limits, and an orderly end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from starlette.requests import Request
from structlog.testing import capture_logs

from headrace.gateway import certificate as certificate_module
from headrace.gateway.server import serving
from headrace.gateway.settings import GatewaySettings
from headrace.gateway.sse.stream import wants_events
from samples.bank import app

QUICK = GatewaySettings(port=0, stream_look_ms=1)
SECONDS_MAX = 100
EVENTS = {"Accept": "text/event-stream"}


class Source:
    """What a browser's EventSource does with a response: it takes events apart."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, str]:
        """Returns the fields of the next event; of a comment the field is empty."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(SECONDS_MAX):
            async for line in self._lines:
                if not line:
                    return fields
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
        return fields

    async def data(self) -> tuple[str, Any]:
        """Returns name and value of the next event with data."""
        while "data" not in (fields := await self.next()):
            assert fields, "the stream has ended"
        return fields["event"], json.loads(fields["data"])


@pytest.fixture
async def client(bank: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway that listens."""
    async with (
        serving(app, bank, QUICK) as served,
        httpx.AsyncClient(base_url=f"http://{served.address}", timeout=SECONDS_MAX) as client,
    ):
        yield client


@asynccontextmanager
async def stream(client: httpx.AsyncClient, path: str, **headers: str) -> AsyncIterator[Source]:
    async with client.stream("GET", path, headers=EVENTS | headers) as response:
        yield Source(response)


async def post(client: httpx.AsyncClient, name: str, **fields: Any) -> None:
    assert (await client.post(f"/commands/{name}", json=fields)).status_code == 200


async def test_an_event_comes_with_the_row_and_at_each_change_of_it(
    client: httpx.AsyncClient,
) -> None:
    async with stream(client, "/projections/balances/ada") as source:
        assert source.response.headers["content-type"].startswith("text/event-stream")
        assert await source.next() == {"retry": "1000"}
        assert await source.data() == ("gone", None)
        await post(client, "OpenAccount", account_id="ada", owner="Ada")
        name, row = await source.data()
        assert (name, row["balance"]) == ("row", 0)
        await post(client, "Deposit", account_id="ada", transaction_id="t", amount=5)
        name, row = await source.data()
        assert (name, row["balance"]) == ("row", 5)


async def test_a_page_comes_again_when_one_of_its_rows_changes(
    client: httpx.AsyncClient,
) -> None:
    await post(client, "OpenAccount", account_id="ada", owner="Ada")
    async with stream(client, "/projections/balances?owner=Ada&seen=ada@1") as source:
        name, page = await source.data()
        assert (name, [row["account_id"] for row in page["rows"]]) == ("page", ["ada"])
        await post(client, "OpenAccount", account_id="bob", owner="Bob")
        await post(client, "OpenAccount", account_id="eve", owner="Ada")
        _, page = await source.data()
        assert [row["account_id"] for row in page["rows"]] == ["ada", "eve"]


async def test_a_client_that_knows_the_last_event_gets_the_next_one(
    client: httpx.AsyncClient,
) -> None:
    await post(client, "OpenAccount", account_id="ada", owner="Ada")
    row = await client.get("/projections/balances/ada?seen=ada@1")
    known = {"Last-Event-ID": row.headers["etag"]}
    async with stream(client, "/projections/balances/ada", **known) as source:
        await source.next()
        await post(client, "Deposit", account_id="ada", transaction_id="t", amount=5)
        assert (await source.data())[1]["balance"] == 5


async def test_a_silent_stream_sends_comments(bank: Any) -> None:
    silent = QUICK.model_copy(update={"stream_beat_ms": 1})
    async with (
        serving(app, bank, silent) as served,
        httpx.AsyncClient(base_url=f"http://{served.address}") as client,
        stream(client, "/projections/balances/ada") as source,
    ):
        await source.data()
        assert await source.next() == {"": ""}


async def test_streams_end_when_the_service_stops(bank: Any) -> None:
    async with httpx.AsyncClient(timeout=SECONDS_MAX) as client:
        block = serving(app, bank, QUICK)
        served = await block.__aenter__()
        async with stream(client, f"http://{served.address}/projections/balances") as source:
            await source.data()
            stopping = asyncio.create_task(block.__aexit__(None, None, None))
            while await source.next():
                pass
            async with asyncio.timeout(SECONDS_MAX):
                await stopping


async def test_more_streams_than_streams_max_are_refused(bank: Any) -> None:
    one = QUICK.model_copy(update={"streams_max": 1})
    async with (
        serving(app, bank, one) as served,
        httpx.AsyncClient(base_url=f"http://{served.address}") as client,
        stream(client, "/projections/balances") as source,
    ):
        await source.data()
        refused = await client.get("/projections/balances", headers=EVENTS)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "streams_max" in refused.json()["detail"]


async def test_a_database_that_is_away_does_not_end_a_stream(bank: Any) -> None:
    read, failing = bank.read, True

    def sometimes(*arguments: Any, **named: Any) -> Any:
        if failing:
            raise OperationalError("select", {}, ConnectionRefusedError("no"))
        return read(*arguments, **named)

    bank.read = sometimes
    async with (
        serving(app, bank, QUICK) as served,
        httpx.AsyncClient(base_url=f"http://{served.address}") as client,
    ):
        with capture_logs() as logs:
            async with stream(client, "/projections/balances/ada") as source:
                assert await source.next() == {"retry": "1000"}
                assert await source.next() == {"": ""}
                failing = False
                assert await source.data() == ("gone", None)
    assert "rows cannot be read" in {each["event"] for each in logs}


@pytest.mark.parametrize(
    ("accept", "method", "wanted"),
    [("text/event-stream", "GET", True), ("application/json, Text/Event-Stream;q=0.5", "GET", True),
     ("*/*", "GET", False), ("text/html", "GET", False), ("text/event-stream", "HEAD", False)],
)  # fmt: skip
def test_only_a_request_that_names_event_streams_gets_one(
    accept: str, method: str, wanted: bool
) -> None:
    scope = {"type": "http", "method": method, "headers": [(b"accept", accept.encode())]}
    assert wants_events(Request(scope)) is wanted


async def test_a_stream_ends_when_its_token_is_taken_away(
    bank: Any, clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_module, "_LOOK_MS", 1)
    settings = GatewaySettings(port=0, stream_look_ms=1, stream_beat_ms=1, tokens=clients.path)
    async with (
        serving(app, bank, settings) as served,
        httpx.AsyncClient(base_url=f"http://{served.address}", timeout=SECONDS_MAX) as client,
    ):
        path, headers = "/projections/balances/ada", EVENTS | clients.headers("bob")
        assert (await client.get(path, headers=EVENTS)).status_code == 401
        async with client.stream("GET", path, headers=headers) as response:
            source = Source(response)
            assert await source.data() == ("gone", None)
            clients.remove("bob")
            while await source.next():
                pass
        assert (await client.get(path, headers=headers)).status_code == 401
