"""Figures of the database: asked for rarely, and not for long."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.metrics import database
from headrace.metrics.database import DatabaseFigures
from headrace.stores.database.tables import process_instances
from headrace.testing.history import FakeClock
from samples.bank.accounts import OpenAccount
from samples.bank.read_models import balances


async def test_projections_have_a_position_and_a_lag(bank: Any, read: Any) -> None:
    result = await bank.bus.execute(OpenAccount(account_id="ann", owner="Ann"))
    await bank.seen(balances, result)
    found = read(await DatabaseFigures(bank).samples())
    assert found["lag_unknown",] == 0
    assert found["projection_position", "balances"] == 1
    assert found["projection_lag_messages", "balances"] == 0
    assert found["projection_lag_seconds", "balances"] == 0
    assert found["projection_paused", "balances"] == 0
    assert found["process_instances", "transfers"] == 0


async def test_a_paused_projection_is_seen(bank: Any, read: Any) -> None:
    await bank.read_models.pause("balances")
    assert read(await DatabaseFigures(bank).samples())["projection_paused", "balances"] == 1


async def test_instances_of_a_process_are_counted_up_to_a_limit(
    bank: Any, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"process": "transfers", "instance": str(number), "state": None, "state_version": 1, "undo": "",
         "ended": number == 3, "began_at": now, "changed_at": now, "last_event": "", "last_aggregate_id": "",
         "seen": 1, "sent": 0}
        for number in range(4)
    ]  # fmt: skip
    async with bank.read_models.begin() as connection:
        await connection.execute(process_instances.insert(), rows)
    assert read(await DatabaseFigures(bank).samples())["process_instances", "transfers"] == 3
    monkeypatch.setattr(database, "INSTANCES_COUNTED_MAX", 2)
    assert read(await DatabaseFigures(bank).samples())["process_instances", "transfers"] == 2


async def test_figures_are_kept_for_some_seconds(
    bank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, reads = FakeClock(), 0
    measure = bank.watch.lags.measure

    async def counted() -> Any:
        nonlocal reads
        reads += 1
        return await measure()

    monkeypatch.setattr(bank.watch.lags, "measure", counted)
    figures = DatabaseFigures(bank, clock)
    for advance_ms in (0, 4_999, 1):
        clock.advance(advance_ms)
        await figures.samples()
    assert reads == 2


@pytest.mark.parametrize("away", [ConnectionError("away"), None])
async def test_a_database_that_does_not_answer_is_said_to_be_unknown(
    bank: Any, read: Any, monkeypatch: pytest.MonkeyPatch, away: Exception | None
) -> None:
    async def measure() -> None:
        if away is not None:
            raise away
        await asyncio.Event().wait()

    monkeypatch.setattr(database, "ANSWER_MS_MAX", 1)
    monkeypatch.setattr(bank.watch.lags, "measure", measure)
    assert read(await DatabaseFigures(bank).samples()) == {("lag_unknown",): 1}


async def test_an_application_that_is_only_read_has_no_lag() -> None:
    running: Any = SimpleNamespace(watch=None)
    assert await DatabaseFigures(running).samples() == ()
