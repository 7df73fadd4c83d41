"""A database that is looked at must be there; looking never makes one."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace.cli
from headrace.app import load_app
from headrace.cli.application.databases import existing_events, existing_read_models
from headrace.errors import SchemaOutOfDate
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace.testing.conformance.streams import conformance_serializer
from samples.bank.accounts import OpenAccount


def test_a_database_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    file = tmp_path / "mistyped.db"

    async def look() -> None:
        with pytest.raises(SchemaOutOfDate, match="there is no database"):
            async with existing_read_models(f"sqlite:///{file}"):
                pass
        with pytest.raises(SchemaOutOfDate, match="there is no database"):
            async with existing_events(f"sqlite:///{file}", conformance_serializer()):
                pass

    asyncio.run(look())
    assert not file.exists()


def test_a_database_that_is_there_is_opened_and_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'there.db'}"

    async def look() -> tuple[int, int]:
        await upgrade(url)
        async with (
            existing_read_models(url) as models,
            existing_events(url, conformance_serializer()) as store,
        ):
            return await models.transact(lambda connection: 7), await store.last_position()

    assert asyncio.run(look()) == (7, 0)


APP = "samples.bank:app"


@pytest.fixture
async def databases(small_disk: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bank's databases with one account, after an orderly end, on a disk that takes no writes."""
    folder: Path = small_disk.path
    store, models = f"sqlite:///{folder / 'events.db'}", f"sqlite:///{folder / 'read.db'}"
    settings = Settings(event_store=store, read_models=models)
    async with load_app(APP).run_local(settings) as bank:
        await bank.bus.execute(OpenAccount(account_id="ada", owner="Ada"), wait_for="handled")
    small_disk.forbid()
    monkeypatch.setenv("HEADRACE_APP", APP)
    monkeypatch.setenv("HEADRACE_EVENT_STORE", store)
    monkeypatch.setenv("HEADRACE_READ_MODELS", models)
    return folder


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("parked list", "nothing is parked"),
        ("projection list", "balances"),
        ("process list", "no such instances"),
        ("stream list", "AccountOpened"),
        ("stream show ada", "AccountOpened"),
        ("stream check", "1 streams read, 0 damaged"),
        ("db check", "the schema is up to date"),
    ],
)
def test_commands_that_only_read_work(databases: Path, command: str, said: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        result = CliRunner().invoke(headrace.cli._command_line(), command.split())
    assert (result.exit_code, said in result.output) == (0, True), result.output


def test_commands_that_write_say_why_they_cannot(
    databases: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["headrace", "projection", "pause", "balances"])
    with pytest.raises(SystemExit) as ended:
        headrace.cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("headrace: this needs to write, and a file of the database can be read")
    assert said.count("\n") == 1


def test_an_upgrade_says_what_it_did(run: Any, tmp_path: Path) -> None:
    url = ("--url", f"sqlite:///{tmp_path / 'events.db'}")
    older = run("db", "upgrade", *url, "--revision", "0014")
    assert older.output == "the schema is at 0014 now\n"
    newer = run("db", "upgrade", *url)
    found = re.fullmatch(r"the schema is at (\d{4}) now; it was at 0014\n", newer.output)
    assert found is not None
    again = run("db", "upgrade", *url)
    assert again.output == f"nothing to do: the schema is at {found[1]} already\n"
