"""An application at work: its parts, its readers, and what becomes of a part that fails."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from headrace.app import App, load_app
from headrace.errors import HeadraceError, ProjectionNotFound, ReadOnlyDatabase
from headrace.gateway.gateway import Gateway
from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.runner import EventHandlerRunner
from headrace.processes.process_manager import ProcessManager
from headrace.processes.process_manager_runner import ProcessManagerRunner
from headrace.processes.process_runner import ProcessRunner
from headrace.projections.definition.projection import Projection
from headrace.running_app import RunningApp, event_runner, read_only_reason
from headrace.settings import Settings
from samples.bank import app
from samples.bank.accounts import OpenAccount
from samples.bank.read_models import balances
from tests.unit.headrace.readers import *  # noqa: F403 - fixtures are found by name


def running() -> RunningApp:
    return RunningApp(
        app.projection,
        bus=None,
        store=None,
        read_models=SimpleNamespace(reader=None),
        letters=None,
        parked=None,
        serializer=None,
    )


async def test_a_part_that_fails_is_raised_where_one_waits_for_failures():
    async def fails() -> None:
        raise RuntimeError("broken")

    parts = running()
    parts.start("works", asyncio.Event().wait)
    parts.start("fails", fails)
    with pytest.raises(RuntimeError, match="broken"):
        await parts.failed()
    await parts.stop_last()
    await parts.stop_last()


async def test_parts_are_stopped_the_last_one_first():
    stopped = []

    async def part(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(name)

    parts = running()
    for name in ("one", "two"):
        parts.start(name, lambda name=name: part(name))
    await asyncio.sleep(0)
    await parts.stop_last()
    await parts.stop_last()
    assert stopped == ["two", "one"]


async def test_a_projection_of_another_application_is_not_read():
    strange = Projection("strange", row=app.projection("balances").row, key="account_id")
    with pytest.raises(ProjectionNotFound, match="bank has no projection 'strange'"):
        running().read(strange)
    with pytest.raises(ProjectionNotFound, match="bank has no projection 'strange'"):
        running().projection_letters(strange)


def test_processes_process_managers_and_event_handlers_have_loops_of_their_own(
    sqlite_models: Any, store: Any, transport: Any, serializer: Any, settings: Any,
    make_process: Any,
) -> None:  # fmt: skip
    parts = {
        "read_models": sqlite_models,
        "store": store,
        "app_name": "shop",
        "transport": transport,
        "serializer": serializer,
        "settings": settings,
    }
    with_states: Any = event_runner(make_process(), bus=None, **parts)
    without: Any = event_runner(ProcessManager("other"), bus=None, **parts)
    assert isinstance(with_states, ProcessRunner)
    assert isinstance(without, ProcessManagerRunner)
    handlers: Any = event_runner(EventHandlers("mail"), **parts)
    assert isinstance(handlers, EventHandlerRunner)


REASON = "the file of the event store can only be read, because its disk takes no writes"


def settings_in(folder: Path) -> Settings:
    return Settings(
        broker="127.0.0.1:1",  # nothing listens there, and nothing asks
        event_store=f"sqlite:///{folder / 'events.db'}",
        read_models=f"sqlite:///{folder / 'read.db'}",
    )


@pytest.fixture
async def on_closed_disk(small_disk: Any) -> Settings:
    """The databases of a bank with one account, after an orderly end."""
    found = settings_in(small_disk.path)
    async with app.run_local(found) as bank:
        await bank.bus.execute(OpenAccount(account_id="ada", owner="Ada"), wait_for="handled")
    small_disk.forbid()
    return found


async def test_rows_are_read_and_commands_refused(on_closed_disk: Settings) -> None:
    async with app.run(on_closed_disk) as bank:
        row = await bank.read(balances).get("ada")
        assert row is not None
        assert (row.owner, row.balance) == ("Ada", 0)
        assert list(await bank.parked.read()) == []
        assert bank.read_only == REASON
        for wait_for in ("executed", "handled"):
            with pytest.raises(ReadOnlyDatabase, match=f"takes no commands: {REASON}; start it"):
                await bank.bus.execute(OpenAccount(account_id="b", owner="B"), wait_for=wait_for)
        with pytest.raises(ReadOnlyDatabase):
            await bank.bus.send(OpenAccount(account_id="b", owner="B"))


@pytest.mark.parametrize("prefer", ["", "respond-async"])
async def test_by_http_a_command_is_503_and_health_says_why(
    on_closed_disk: Settings, prefer: str
) -> None:
    async with app.run(on_closed_disk) as bank:
        transport = httpx.ASGITransport(Gateway(app, bank))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/projections/balances/ada")).json()["owner"] == "Ada"
            assert (await client.get("/health")).json()["status"] == f"read-only: {REASON}"
            refused = await client.post(
                "/commands/OpenAccount",
                json={"account_id": "b", "owner": "B"},
                headers={"Prefer": prefer},
            )
    assert (refused.status_code, refused.json()["title"]) == (503, "Read-only service")
    assert REASON in refused.json()["detail"]


async def test_read_models_that_were_never_made_are_one_sentence(
    on_closed_disk: Settings, small_disk: Any
) -> None:
    small_disk.allow()
    async with App("other").run_local(
        on_closed_disk.model_copy(update={"read_models": f"sqlite:///{small_disk.path / 'new.db'}"})
    ):
        pass
    small_disk.forbid()
    new = on_closed_disk.model_copy(
        update={"read_models": f"sqlite:///{small_disk.path / 'new.db'}"}
    )
    with pytest.raises(HeadraceError, match="balances has no tables yet; start the service once"):
        async with load_app("samples.bank:app").run(new):
            raise AssertionError("it ran")


def test_what_can_be_written_is_no_reason(tmp_path: Path) -> None:
    assert read_only_reason(settings_in(tmp_path)) is None
    assert read_only_reason(Settings(event_store="memory://", read_models="sqlite://")) is None
    postgres = "postgresql://me@/bank"
    assert read_only_reason(Settings(event_store=postgres, read_models=postgres)) is None


async def test_an_application_knows_its_command_service() -> None:
    async with app.run_local() as bank:
        assert bank.commands is not None
        await bank.bus.execute(OpenAccount(account_id="ann", owner="Ann"))
        assert bank.commands.work.outcomes["executed"] == 1
    assert running().commands is None
