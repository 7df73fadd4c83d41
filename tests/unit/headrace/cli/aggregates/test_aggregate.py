"""Aggregates at a terminal: which there are, what one was, and what differs."""

import asyncio
import json

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.aggregates import aggregate as aggregate_module
from headrace.errors import AggregateNotFound
from headrace.settings import Settings
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with two accounts, one of three versions."""
    folder = tmp_path_factory.mktemp("aggregate")
    settings = Settings(
        event_store=f"sqlite:///{folder}/events.db", read_models=f"sqlite:///{folder}/read.db"
    )

    async def fill() -> None:
        async with app.run_local(settings) as bank:
            await bank.bus.execute(OpenAccount(account_id="ada", owner="Ada"), command_id="open")
            for number in range(2):
                await bank.bus.execute(
                    Deposit(account_id="ada", transaction_id=f"t{number}", amount=100)
                )
            await bank.bus.execute(OpenAccount(account_id="bob", owner="Bob"))

    asyncio.run(fill())
    return settings.event_store


def aggregate(word: str, *arguments: str, url: str) -> Result:
    named = [] if word == "list" else ["--app", "samples.bank:app"]
    return CliRunner().invoke(
        aggregate_module.commands,
        [word, *arguments, *named, "--event-store", url],
        env={"COLUMNS": "200"},
    )


def test_list_names_aggregates_with_their_last_versions(url: str) -> None:
    shown = aggregate("list", url=url)
    assert shown.exit_code == 0
    assert [row.split()[:3] for row in shown.stdout.splitlines()[1:]] == [["ada", "Account", "3"], ["bob", "Account", "1"]]  # fmt: skip
    found = aggregate("list", "--after", "ada", "--json", url=url)
    assert [json.loads(line)["aggregate_id"] for line in found.stdout.splitlines()] == ["bob"]


def test_show_replays_the_state_at_a_version(url: str) -> None:
    shown = aggregate("show", "ada", "--version", "2", "--json", url=url)
    found = json.loads(shown.stdout)
    assert (found["version"], found["state"]["balance"]) == (2, 100)
    assert json.loads(aggregate("show", "ada", "--json", url=url).stdout)["state"]["balance"] == 200
    assert "Account ada at version 3 of 3" in aggregate("show", "ada", url=url).stdout


def test_compare_says_what_differs(url: str) -> None:
    shown = aggregate("compare", "ada", "--from", "2", url=url)
    assert "balance was 100 and is 200" in shown.stdout.splitlines()
    same = aggregate("compare", "ada", "--from", "2", "--to", "2", url=url)
    assert same.stdout == "the states are the same\n"
    lines = aggregate("compare", "ada", "--from", "2", "--json", url=url).stdout.splitlines()
    assert {"place": "balance", "kind": "changed", "before": 100, "after": 200} in map(json.loads, lines)  # fmt: skip


def test_an_aggregate_that_is_not_there_is_a_sentence(url: str) -> None:
    assert isinstance(aggregate("show", "eve", url=url).exception, AggregateNotFound)
