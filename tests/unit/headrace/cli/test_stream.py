"""Looking at the event store: tables for people, lines of JSON for programs."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli import stream as stream_module
from headrace.errors import DefinitionError, SchemaOutOfDate
from headrace.settings import Settings
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount, Withdraw


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with two accounts, seven streams in all, one of them a rejection."""
    folder = tmp_path_factory.mktemp("stream")
    settings = Settings(
        event_store=f"sqlite:///{folder}/events.db", read_models=f"sqlite:///{folder}/read.db"
    )

    async def fill() -> None:
        async with app.run_local(settings) as bank:
            await bank.bus.execute(OpenAccount(account_id="ada", owner="Ada"), command_id="open")
            for number in range(4):
                await bank.bus.execute(
                    Deposit(account_id="ada", transaction_id=f"t{number}", amount=1_000 + number)
                )
            await bank.bus.execute(Withdraw(account_id="ada", transaction_id="w", amount=1_000_000))
            await bank.bus.execute(OpenAccount(account_id="bob", owner="Bob"))

    asyncio.run(fill())
    return settings.event_store


def stream(*arguments: str, url: str) -> Result:
    return CliRunner().invoke(
        stream_module.commands,
        [*arguments, "--app", "samples.bank:app", "--event-store", url],
        env={"COLUMNS": "200"},
    )


def lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_show_prints_each_event_of_an_aggregate(url: str) -> None:
    shown = stream("show", "ada", url=url)
    assert shown.exit_code == 0
    rows = shown.stdout.splitlines()
    assert len(rows) == 6
    assert rows[0].split() == ["version", "recorded", "command", "event", "fields"]
    assert rows[1].split()[0] == "1"
    assert "open" in rows[1]
    assert "AccountOpened" in rows[1]
    assert '"amount":1003' in rows[5]


def test_show_as_json_is_what_is_stored(url: str) -> None:
    shown = lines(stream("show", "ada", "--after", "3", "--json", url=url))
    assert [each["version"] for each in shown] == [4, 5]
    assert shown[0]["aggregate_id"] == "ada"


def test_an_aggregate_without_events_is_exit_status_one(url: str) -> None:
    for arguments in (["nobody"], ["ada", "--after", "5"]):
        shown = stream("show", *arguments, url=url)
        assert shown.exit_code == 1
        assert "has no events after" in shown.stderr
        assert shown.stdout == ""


def test_list_shows_the_newest_with_rejections(url: str) -> None:
    shown = stream("list", "--limit", "2", url=url)
    assert shown.exit_code == 0
    rows = shown.stdout.splitlines()
    assert len(rows) == 3
    assert "Withdraw rejected: InsufficientFunds" in rows[1]
    assert ("bob" in rows[2], "AccountOpened" in rows[2]) == (True, True)


def test_list_goes_on_behind_a_position_in_pages(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_PAGE", 2)
    shown = lines(stream("list", "--after", "1", "--limit", "5", "--json", url=url))
    assert [each["position"] for each in shown] == [2, 3, 4, 5, 6]
    assert len(lines(stream("list", "--after", "0", "--limit", "100", "--json", url=url))) == 7


def test_looking_creates_nothing(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    shown = stream("list", url=f"sqlite:///{missing}")
    assert isinstance(shown.exception, SchemaOutOfDate)
    assert not missing.exists()
    memory = stream("list", url="memory://")
    assert isinstance(memory.exception, DefinitionError)


def test_what_this_application_cannot_read_is_said(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with (
        closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
        target.execute("UPDATE event_streams SET body = 'no JSON'")
        target.commit()
    shown = stream("show", "ada", url=f"sqlite:///{copy}")
    assert "does not decode" in str(shown.exception)
