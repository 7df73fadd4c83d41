"""Commands by HTTP: each outcome of a command has its status."""

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.bus import CommandResult
from headrace.errors import CommandRefused, CommandTimeout
from headrace.gateway.settings import GatewaySettings
from samples.bank import app

ADA = {"account_id": "ada", "owner": "Ada"}


async def test_an_executed_command_answers_with_its_result(http: Any) -> None:
    answer = await http().post("/commands/OpenAccount", json=ADA)
    assert answer.status_code == 200
    assert (
        answer.json().items() >= {"status": "executed", "aggregate_id": "ada", "version": 1}.items()
    )
    assert answer.json()["command_id"]


async def test_the_same_key_again_has_no_second_effect_and_the_same_answer(http: Any) -> None:
    client = http()
    await client.post("/commands/OpenAccount", json=ADA)
    deposit = {"account_id": "ada", "transaction_id": "t", "amount": 5}
    key = {"Idempotency-Key": "deposit-1"}
    first = await client.post("/commands/Deposit", json=deposit, headers=key)
    second = await client.post("/commands/Deposit", json=deposit, headers=key)
    assert first.json()["value"] == {"balance": 5}
    assert (second.status_code, second.content) == (200, first.content)
    third = await client.post("/commands/Deposit", json=deposit | {"transaction_id": "u"})
    assert third.json()["value"] == {"balance": 10}


async def test_the_same_key_at_the_same_time_gets_one_answer(http: Any) -> None:
    client = http()
    await client.post("/commands/OpenAccount", json=ADA)
    deposit = {"account_id": "ada", "transaction_id": "t", "amount": 5}
    calls = [
        client.post("/commands/Deposit", json=deposit, headers={"Idempotency-Key": "d"})
        for _ in range(10)
    ]
    answers = await asyncio.gather(*calls)
    assert {(answer.status_code, answer.json()["value"]["balance"]) for answer in answers} == {
        (200, 5)
    }


async def test_a_command_that_changes_nothing_is_200(http: Any) -> None:
    client = http()
    await client.post("/commands/OpenAccount", json=ADA)
    close = {"account_id": "ada"}
    assert (await client.post("/commands/CloseAccount", json=close)).json()["status"] == "executed"
    again = await client.post("/commands/CloseAccount", json=close)
    assert (again.status_code, again.json()["status"]) == (200, "unchanged")


async def test_a_command_for_an_aggregate_that_was_never_created_is_404(http: Any) -> None:
    body = {"account_id": "nil", "transaction_id": "t", "amount": 1}
    answer = await http().post("/commands/Deposit", json=body)
    assert (answer.status_code, answer.json()["error"]) == (404, "AggregateNotFound")
    assert answer.json()["type"] == "urn:headrace:problem:no-aggregate"
    assert "'nil'" in answer.json()["detail"]


async def test_a_rule_that_says_no_is_409_with_its_code_and_sentence(http: Any) -> None:
    client = http()
    await client.post("/commands/OpenAccount", json=ADA)
    withdraw = {"account_id": "ada", "transaction_id": "t", "amount": 5}
    key = {"Idempotency-Key": "w-1"}
    answer = await client.post("/commands/Withdraw", json=withdraw, headers=key)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:headrace:problem:rejected", "title": "InsufficientFunds", "status": 409,
        "detail": "account ada holds 0 and may be overdrawn by 0: 5 is too much",
        "error": "InsufficientFunds", "command_id": "w-1", "aggregate_id": "ada",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"account_id": "ada"}, {"owner"}),
        ({"account_id": 5, "owner": "x", "colour": 1}, {"account_id", "colour"}),
        ({"account_id": "", "owner": "x"}, {"account_id"}),
        ({"account_id": "a" * 256, "owner": "x"}, {"account_id"}),
        ({"account_id": "a\x00b", "owner": "x"}, {"account_id"}),
        ({"account_id": "a", "owner": "x", "overdraft_limit": 2**63}, {"overdraft_limit"}),
    ],
)
async def test_values_that_do_not_fit_are_422_by_field(
    http: Any, body: Any, fields: set[str]
) -> None:
    answer = await http().post("/commands/OpenAccount", json=body)
    assert answer.status_code == 422
    assert {error["field"] for error in answer.json()["errors"]} == fields
    assert all(error["sentence"] for error in answer.json()["errors"])


@pytest.mark.parametrize(
    ("query", "status"),
    [("?version=1", 200), ("?version=2", 422), ("?version=x", 422), ("?wait_ms=60001", 422),
     ("?wait_ms=0", 422), ("?owner=Ada", 422)],
)  # fmt: skip
async def test_the_query_is_checked(http: Any, query: str, status: int) -> None:
    assert (await http().post(f"/commands/OpenAccount{query}", json=ADA)).status_code == status


async def test_an_unknown_command_is_404_with_close_names(http: Any) -> None:
    answer = await http().post("/commands/OpenAcount", json=ADA)
    assert (answer.status_code, answer.json()["close_matches"][0]) == (404, "OpenAccount")


async def test_respond_async_is_202_once_the_queue_has_it(http: Any, bank: Any) -> None:
    headers = {"Prefer": "respond-async", "Idempotency-Key": "open-ada"}
    answer = await http().post("/commands/OpenAccount", json=ADA, headers=headers)
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "respond-async")
    assert answer.json() == {"status": "accepted", "aggregate_id": "ada", "command_id": "open-ada"}
    # The same key asks for the result of the command that was handed over.
    del headers["Prefer"]
    result = await http().post("/commands/OpenAccount", json=ADA, headers=headers)
    assert (result.status_code, result.json()["version"]) == (200, 1)


@pytest.mark.parametrize("prefer", ["", "respond-async"])
async def test_a_queue_that_refuses_is_503_and_says_when_to_come_again(
    http: Any, bank: Any, failing_bus: Any, prefer: str
) -> None:
    bank.bus = failing_bus(error=CommandRefused("secret address"))
    answer = await http().post("/commands/OpenAccount", json=ADA, headers={"Prefer": prefer})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "same Idempotency-Key is safe" in answer.json()["detail"]
    assert "secret" not in answer.text


async def test_no_result_in_time_is_504_and_says_that_the_same_key_is_safe(
    http: Any, bank: Any, failing_bus: Any
) -> None:
    bank.bus = failing_bus(error=CommandTimeout("late"))
    answer = await http().post("/commands/OpenAccount", json=ADA, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["command_id"]) == (504, "k")
    assert "same Idempotency-Key is safe" in answer.json()["detail"]


async def test_no_result_in_time_while_the_broker_is_away_is_503(
    http: Any, bank: Any, failing_bus: Any
) -> None:
    async def away() -> None:
        raise ConnectionRefusedError

    bank.bus = failing_bus(error=CommandTimeout("late"))
    client = http(GatewaySettings(), {"broker": away})
    answer = await client.post("/commands/OpenAccount", json=ADA)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize(
    ("query", "prefer", "wait_ms"),
    [("", "", 10_000), ("?wait_ms=7", "wait=3", 7), ("", "wait=3", 3_000),
     ("", "wait=9999", 60_000), ("", "wait=0", 10_000)],
)  # fmt: skip
async def test_a_wait_is_what_the_request_says_within_the_bound(
    http: Any, bank: Any, failing_bus: Any, query: str, prefer: str, wait_ms: int
) -> None:
    bank.bus = failing_bus(error=CommandTimeout("late"))
    await http().post(f"/commands/OpenAccount{query}", json=ADA, headers={"Prefer": prefer})
    assert bank.bus.waits == [wait_ms]


@pytest.mark.parametrize(
    ("error", "status"), [("Busy", 503), ("Held", 503), ("ZeroDivisionError", 500)]
)
async def test_a_command_that_failed_says_so_without_the_inside(
    http: Any, bank: Any, failing_bus: Any, error: str, status: int
) -> None:
    bank.bus = failing_bus(
        result=CommandResult(
            status="failed", aggregate_id="ada", command_id="k", error=error, sentence="password=1"
        )
    )
    answer = await http().post("/commands/OpenAccount", json=ADA)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert error == "Busy" or "password" not in answer.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
FIELDS = sorted({field for one in app.command_types for field in one.model_fields})
NAMES = sorted(one.message_name for one in app.command_types)
LIKELY = st.dictionaries(
    st.sampled_from(FIELDS), JSON | st.text(max_size=5) | st.integers(-10, 10), max_size=5
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(NAMES), body=JSON | LIKELY)
async def test_no_json_is_ever_a_500(client: httpx.AsyncClient, name: str, body: Any) -> None:
    answer = await client.post(f"/commands/{name}", json=body)
    assert answer.status_code < 500


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=st.binary(max_size=200))
async def test_no_bytes_are_ever_a_500(client: httpx.AsyncClient, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = await client.post("/commands/Deposit", content=body, headers=headers)
    assert 400 <= answer.status_code < 500


async def test_two_clients_with_one_key_send_two_commands(http: Any, clients: Any) -> None:
    client = http(GatewaySettings(tokens=clients.path))
    ann, bob = clients.headers("ann"), clients.headers("bob")
    key = {"Idempotency-Key": "k"}
    await client.post("/commands/OpenAccount", json=ADA, headers=ann)
    deposit = {"account_id": "ada", "transaction_id": "t", "amount": 5}
    first = await client.post("/commands/Deposit", json=deposit, headers=ann | key)
    again = await client.post("/commands/Deposit", json=deposit, headers=ann | key)
    whole = await client.post(
        "/commands/Deposit", json=deposit, headers=ann | {"Idempotency-Key": "ann:k"}
    )
    assert (first.status_code, first.json()["command_id"]) == (200, "ann:k")
    assert again.content == whole.content == first.content
    other = {**deposit, "transaction_id": "u"}
    second = await client.post("/commands/Deposit", json=other, headers=bob | key)
    assert (second.json()["command_id"], second.json()["value"]) == ("bob:k", {"balance": 10})
    keyless = await client.post("/commands/CloseAccount", json={"account_id": "ada"}, headers=bob)
    assert keyless.json()["command_id"].startswith("bob:")


async def test_a_key_without_room_for_the_clients_name_is_400(http: Any, clients: Any) -> None:
    headers = clients.headers("ann") | {"Idempotency-Key": "k" * 255}
    client = http(GatewaySettings(tokens=clients.path))
    answer = await client.post("/commands/OpenAccount", json=ADA, headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (400, "Unusable Idempotency-Key")
    assert "yours may have 251" in answer.json()["detail"]
