"""`headrace command` as an operator meets it."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace.cli
from headrace import ApplicationMessage
from headrace.domain.stream import EventStream
from headrace.journey import command_result, in_flight
from headrace.journey.command_search import FoundCommand
from headrace.settings import Settings
from headrace.stores.base import LetterState
from headrace.stores.database.schema import upgrade
from headrace.stores.letters import DatabaseCommandLetters
from samples.bank import app
from samples.bank.accounts import AccountOpened, Deposit, OpenAccount


class StatementReady(ApplicationMessage):
    pass


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A bank in which an account was opened and a deposit to another one was rejected."""
    folder = tmp_path_factory.mktemp("bank")
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("event_store", "read_models")}

    async def fill() -> None:
        for url in urls.values():
            await upgrade(url)
        async with app.run_local(Settings(**urls)) as bank:
            await bank.bus.execute(OpenAccount(account_id="ann", owner="Ann"), command_id="c-1")
            deposit = Deposit(account_id="bob", transaction_id="t", amount=1)
            await bank.bus.execute(deposit, command_id="c-2")

    asyncio.run(fill())
    return [
        "--app", "samples.bank:app", "--event-store", urls["event_store"], "--read-models", urls["read_models"],
    ]  # fmt: skip


def call(*words: str) -> Any:
    return CliRunner().invoke(headrace.cli._command_line(), ["command", *words])


def test_the_newest_results_are_listed_with_counts(options) -> None:
    done = call("results", *options)
    assert done.exit_code == 0, done.output
    assert "AggregateNotFound: there is no Account 'bob'" in " ".join(done.output.split())
    told = json.loads(call("results", "--json", *options).stdout)
    assert [one["command_id"] for one in told["results"]] == ["c-2", "c-1"]
    assert {(one["status"], one["commands"]) for one in told["outcomes"]} == {
        ("executed", 1),
        ("rejected", 1),
    }


def test_a_result_is_shown_by_the_id_of_its_command(options, broker_address) -> None:
    found = call("show", "c-1", "--broker", broker_address, *options)
    assert found.exit_code == 0, found.output
    assert "executed" in found.output
    told = json.loads(call("show", "c-2", "--json", "--broker", broker_address, *options).stdout)
    assert (told["status"], told["error"], told["events"]) == ("rejected", "AggregateNotFound", [])
    assert call("show", "c-9", "--broker", broker_address, *options).exit_code == 1


def test_commands_in_flight_are_listed(options, broker_address) -> None:
    done = call("list", "--broker", broker_address, *options)
    assert done.exit_code == 0, done.output
    assert "are parked, and 0 held behind them" in done.output
    told = json.loads(call("list", "--json", "--broker", broker_address, *options).stdout)
    assert told["group"] == "bank.commands"


def test_a_list_of_commands_says_what_its_hidden_ids_and_states_need(
    options, broker_address, monkeypatch
) -> None:
    async def found(*_: Any, **__: Any) -> dict[str, Any]:
        return {
            "queues": [], "waiting": [], "parked": [], "held": 0, "total": 1, "page": 1, "pages": 1, "members": 0,
            "paused": False, "hidden": "needs consume on topic:bank.commands",
        }  # fmt: skip

    monkeypatch.setattr(in_flight, "commands_in_flight", found)
    done = call("list", "--broker", broker_address, *options)
    assert done.exit_code == 0, done.output
    assert "are hidden: it needs consume on topic:bank.commands" in done.output


def test_results_as_text_say_what_is_parked_and_where_to_go_on(options, monkeypatch) -> None:
    whole = " ".join(call("results", *options).output.split())
    assert whole.endswith("0 are parked, 0 of them after too many conflicts")

    async def tally(_: DatabaseCommandLetters) -> dict[tuple[str, LetterState], int]:
        return {("KeyError", LetterState.PARKED): 1_200, ("Busy", LetterState.PARKED): 3}

    monkeypatch.setattr(DatabaseCommandLetters, "tally", tally)
    told = json.loads(call("results", "--json", "--rows", "1", *options).stdout)
    done = " ".join(call("results", "--rows", "1", *options).output.split())
    assert done.endswith(
        f"1,203 are parked, 3 of them after too many conflicts; go on with --before {told['next']}"
    )


def test_a_result_names_application_messages_too(options, broker_address, monkeypatch) -> None:
    stream = EventStream(
        aggregate_type="Account", aggregate_id="ann", version=1, command_id="c-1", correlation_id="c-1",
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC), events=(AccountOpened(owner="Ann", overdraft_limit=0),),
        messages=(StatementReady(),),
    )  # fmt: skip

    async def found(*_: Any) -> FoundCommand:
        return FoundCommand("ann", "c-1", stream=stream)

    monkeypatch.setattr(command_result, "command_found", found)
    done = call("show", "c-1", "--broker", broker_address, *options)
    assert "AccountOpened, StatementReady" in done.output
