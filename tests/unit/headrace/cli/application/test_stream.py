"""Looking at the event store: tables for people, lines of JSON for programs."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.application import stream as stream_module
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
    assert rows[0].split() == ["version", "recorded", "(UTC)", "command", "event", "fields"]
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


def test_commands_that_read_create_no_store(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    shown = stream("list", url=f"sqlite:///{missing}")
    assert isinstance(shown.exception, SchemaOutOfDate)
    assert not missing.exists()
    memory = stream("list", url="memory://")
    assert isinstance(memory.exception, DefinitionError)


def test_events_unknown_to_the_application_are_reported(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with (
        closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
        target.execute("UPDATE event_streams SET body = 'no JSON'")
        target.commit()
    shown = stream("show", "ada", url=f"sqlite:///{copy}")
    assert shown.exit_code == 1
    assert "cannot be read" in shown.stdout


@pytest.fixture
def damaged(url: str, tmp_path: Path) -> str:
    """The same store, in which somebody has changed ada's third version."""
    copy = tmp_path / "events.db"
    with (
        closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
        target.execute(
            """UPDATE event_streams SET body = replace(body, '1001', '9001')
               WHERE aggregate_id = 'ada' AND version = 3"""
        )
        target.commit()
    return f"sqlite:///{copy}"


def test_show_names_a_damaged_stream_and_continues(damaged: str) -> None:
    shown = stream("show", "ada", url=damaged)
    assert shown.exit_code == 1
    rows = [row.split() for row in shown.stdout.splitlines()]
    assert [row[0] for row in rows[1:6]] == ["1", "2", "3", "4", "5"]
    assert "cannot be read" in shown.stdout
    assert "its checksum differs" in shown.stdout
    (third,) = [
        each for each in lines(stream("show", "ada", "--json", url=damaged)) if "damaged" in each
    ]
    assert (third["version"], third["aggregate_id"]) == (3, "ada")


def test_list_names_a_damaged_stream_and_continues(damaged: str) -> None:
    shown = stream("list", url=damaged)
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) == 8
    assert "cannot be read: it is not what was stored" in shown.stdout
    told = lines(stream("list", "--json", url=damaged))
    assert [each["position"] for each in told if "damaged" in each] == [3]


def test_check_reads_everything_and_names_what_is_damaged(url: str, damaged: str) -> None:
    sound = stream("check", url=url)
    assert (sound.exit_code, sound.stdout) == (0, "7 streams read, 0 damaged\n")
    found = stream("check", url=damaged)
    assert found.exit_code == 1
    first, last = found.stdout.splitlines()
    assert first.startswith("position 3: version 3 of ada, command ")
    assert last == "7 streams read, 1 damaged"


def test_check_counts_streams_without_checksums_and_adds_them(damaged: str) -> None:
    with closing(sqlite3.connect(damaged.removeprefix("sqlite:///"))) as database:
        database.execute("UPDATE event_streams SET checksum = NULL")
        database.commit()
    old = stream("check", url=damaged)
    assert old.exit_code == 0
    assert "7 were written before there were checksums; --fill-in" in old.stdout
    assert "7 were given a checksum" in stream("check", "--fill-in", url=damaged).stdout
    assert stream("check", url=damaged).stdout == "7 streams read, 0 damaged\n"


def test_check_of_a_store_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert isinstance(
        stream("check", url=f"sqlite:///{tmp_path}/none.db").exception, SchemaOutOfDate
    )
