"""An application at work: its parts, its readers, and what becomes of a part that fails."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ProjectionNotFound
from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.runner import EventHandlerRunner
from headrace.processes.process_manager import ProcessManager
from headrace.processes.process_manager_runner import ProcessManagerRunner
from headrace.processes.process_runner import ProcessRunner
from headrace.projections.definition.projection import Projection
from headrace.running_app import RunningApp, event_runner
from samples.bank import app
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
