"""An application at work: its parts, and what becomes of one that fails."""

import asyncio
from types import SimpleNamespace

import pytest

from headrace.errors import ProjectionNotFound
from headrace.projections.definition.projection import Projection
from headrace.running_app import RunningApp
from samples.bank import app


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
