"""The bank behind FastAPI, over a real broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace import Settings
from headrace_mq import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app
from samples.web.bank_api import make_web


@asynccontextmanager
async def calling(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the web application, which lives as long as it would in a server."""
    web = make_web(settings)
    async with web.router.lifespan_context(web) as state:

        async def served(scope: Any, receive: Any, send: Any) -> None:
            await web({**scope, "state": dict(state or {})}, receive, send)

        transport = httpx.ASGITransport(app=served)
        async with httpx.AsyncClient(transport=transport, base_url="http://bank") as client:
            yield client


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    async with Broker(BrokerSettings(port=0, store=store)) as broker:
        settings = Settings(broker=broker.address, read_models=f"sqlite:///{tmp_path}/read.db")
        async with app.run(settings), calling(settings) as client:
            yield client


async def test_accounts_are_opened_paid_into_and_shown(client: httpx.AsyncClient) -> None:
    opening, open_key = {"owner": "Ann"}, {"Idempotency-Key": "open-ann"}
    for _ in range(2):  # the same key again is the same command
        opened = await client.put("/accounts/ann", json=opening, headers=open_key)
        assert (opened.status_code, opened.json()) == (201, {"version": 1})
    again = await client.put("/accounts/ann", json=opening, headers={"Idempotency-Key": "other"})
    assert (again.status_code, again.json()["detail"]["error"]) == (409, "AggregateExists")

    key = {"Idempotency-Key": "t-1"}
    for _ in range(2):
        paid = await client.post("/accounts/ann/deposits", json={"amount": 5}, headers=key)
        assert paid.json() == {"balance": 5}
    assert (await client.get("/accounts/ann")).json()["balance"] == 5


async def test_what_does_not_fit_is_refused(client: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "t-1"}
    assert (await client.get("/accounts/bob")).status_code == 404
    nothing = await client.post("/accounts/ann/deposits", json={"amount": 0}, headers=key)
    keyless = await client.post("/accounts/ann/deposits", json={"amount": 5})
    missing = await client.post("/accounts/ann/deposits", json={"amount": 5}, headers=key)
    assert (nothing.status_code, keyless.status_code, missing.status_code) == (422, 422, 409)
