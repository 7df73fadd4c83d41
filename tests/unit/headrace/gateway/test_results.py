"""The result of a command, asked for later: as JSON, and as an event stream."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from headrace.gateway.server import serving
from headrace.gateway.settings import GatewaySettings
from samples.bank import app

OPEN = {"account_id": "a/b ä", "owner": "Ada"}
ADDRESS = "/results?aggregate_id=a%2Fb+%C3%A4&command_id=open+1%2F2"


async def test_a_command_that_was_handed_over_has_an_address_of_its_result(client: Any) -> None:
    headers = {"Idempotency-Key": "open 1/2", "Prefer": "respond-async"}
    accepted = await client.post("/commands/OpenAccount", json=OPEN, headers=headers)
    assert (accepted.status_code, accepted.headers["location"]) == (202, ADDRESS)
    later = await client.get(accepted.headers["location"])
    same = await client.post(
        "/commands/OpenAccount", json=OPEN, headers={"Idempotency-Key": "open 1/2"}
    )
    assert (later.status_code, later.json()["version"]) == (200, 1)
    assert later.content == same.content


async def test_a_rejection_is_the_same_problem_later(client: Any) -> None:
    no = {"account_id": "ada", "transaction_id": "t", "amount": 5}
    await client.post("/commands/OpenAccount", json={"account_id": "ada", "owner": "Ada"})
    headers = {"Idempotency-Key": "w"}
    first = await client.post("/commands/Withdraw", json=no, headers=headers)
    later = await client.get("/results?aggregate_id=ada&command_id=w")
    assert (later.status_code, later.content) == (409, first.content)


async def test_a_command_without_a_result_is_404(client: Any) -> None:
    answer = await client.get("/results?aggregate_id=ada&command_id=x&wait_ms=1")
    assert (answer.status_code, answer.headers["retry-after"]) == (404, "1")
    assert "never sent" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "fields"),
    [("", ["aggregate_id", "command_id"]), ("aggregate_id=a", ["command_id"]),
     ("aggregate_id=a&command_id=%00", ["command_id"]),
     ("aggregate_id=a&command_id=c&colour=red", ["colour"]),
     ("aggregate_id=a&command_id=c&wait_ms=x", ["wait_ms"])],
)  # fmt: skip
async def test_a_query_that_names_no_command_is_422(
    client: Any, query: str, fields: list[str]
) -> None:
    answer = await client.get(f"/results?{query}")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == fields


async def events_of(client: httpx.AsyncClient, path: str) -> list[str]:
    answer = await client.get(path, headers={"Accept": "text/event-stream"})
    return [line for line in answer.text.splitlines() if line.startswith(("event:", "data:"))]


async def test_an_event_stream_ends_with_the_result(bank: Any) -> None:
    quick = GatewaySettings(port=0, stream_look_ms=1, stream_beat_ms=1)
    async with (
        serving(app, bank, quick) as served,
        httpx.AsyncClient(base_url=f"http://{served.address}", timeout=120) as client,
    ):
        path = "/results?aggregate_id=ada&command_id=open"
        waiting = asyncio.create_task(events_of(client, path))
        body = {"account_id": "ada", "owner": "Ada"}
        headers = {"Idempotency-Key": "open"}
        await client.post("/commands/OpenAccount", json=body, headers=headers)
        name, data = await waiting
        assert name == "event: result"
        assert json.loads(data.removeprefix("data: "))["version"] == 1

        no = {"account_id": "ada", "transaction_id": "t", "amount": 5}
        await client.post("/commands/Withdraw", json=no, headers={"Idempotency-Key": "w"})
        name, data = await events_of(client, "/results?aggregate_id=ada&command_id=w")
        assert name == "event: problem"
        assert json.loads(data.removeprefix("data: "))["error"] == "InsufficientFunds"


async def test_an_event_stream_of_nothing_ends_after_the_longest_wait(bank: Any) -> None:
    quick = GatewaySettings(port=0, stream_look_ms=1, wait_ms=1, wait_ms_max=1)
    async with (
        serving(app, bank, quick) as served,
        httpx.AsyncClient(base_url=f"http://{served.address}", timeout=120) as client,
    ):
        assert await events_of(client, "/results?aggregate_id=ada&command_id=x") == []


async def test_a_result_is_shown_to_its_sender_alone(http: Any, clients: Any) -> None:
    client = http(GatewaySettings(tokens=clients.path))
    ann, bob = clients.headers("ann"), clients.headers("bob")
    sent = {**ann, "Idempotency-Key": "k", "Prefer": "respond-async"}
    accepted = await client.post("/commands/OpenAccount", json=OPEN, headers=sent)
    address = accepted.headers["location"]
    assert "command_id=ann%3Ak" in address
    assert (await client.get(address, headers=ann)).json()["command_id"] == "ann:k"
    short = "/results?aggregate_id=a%2Fb+%C3%A4&command_id=k"
    assert (await client.get(short, headers=ann)).json()["command_id"] == "ann:k"
    never = await client.get(f"{address}x&wait_ms=1", headers=bob)
    for path in (address, short):
        answer = await client.get(f"{path}&wait_ms=1", headers=bob)
        assert (answer.status_code, answer.json()["title"]) == (404, never.json()["title"])
    assert (await client.get(address)).status_code == 401
