"""A forecast tells what a rebuild would read, and writes nothing."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import inspect

from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.local import forecast as forecast_module
from headrace.rebuild.local.forecast import Forecast, forecast
from headrace.rebuild.local.moment import Moment
from headrace.rebuild.shadow import Building
from headrace.rebuild.source import Opened, open_events


class Ticking:
    """A clock that a second passes on with each look."""

    def __init__(self) -> None:
        self._now_ms = 0

    def monotonic_ms(self) -> int:
        self._now_ms += 1_000
        return self._now_ms


@pytest.fixture
def opened(event_broker: Any, ledger: Any) -> Any:
    @asynccontextmanager
    async def opening(source: Any = "topic", store_url: str | None = None) -> AsyncIterator[Opened]:
        urls = (event_broker.address, store_url)
        async with open_events(
            ledger.app, source, urls, switch=False, live_wait_ms=0, messages_max=100
        ) as found:
            yield found

    return opening


async def tables(models: ReadModels) -> set[str]:
    async with models.begin() as connection:
        return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))


async def test_a_forecast_counts_what_is_ahead_and_changes_nothing(
    opened: Any, history: list[Any], read_models: ReadModels, ledger: Any, go_live: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(forecast_module, "_SAMPLED_MAX", 10)
    await go_live(read_models, ledger.accounts)
    before = await tables(read_models)
    async with opened() as found:
        asked = (ledger.app, ledger.accounts, found, read_models)
        whole = await forecast(*asked, clock=Ticking())
        rest = await forecast(*asked, onto_live=True)
        early = await forecast(*asked, as_of=Moment(text="0:1,1:2", offsets={0: 1, 1: 2}))
        async with Building(read_models, ledger.accounts)._held("me:1:x"):
            async with read_models.begin() as connection:
                await connection.exec_driver_sql(
                    "UPDATE projections SET rebuild_owner = 'me:1:x', rebuild_started_at ="
                    " '2026-01-31 12:00:00+00'"
                    if connection.dialect.name == "postgresql"
                    else "UPDATE projections SET rebuild_owner = 'me:1:x', rebuild_started_at ="
                    " '2026-01-31 12:00:00.000000'"
                )
            assert "me:1:x has been rebuilding it since" in (await forecast(*asked)).running
    assert sum(whole.messages.values()) == len(history)
    assert (whole.sampled, whole.sampled_seconds, whole.seconds) == (10, 1.0, len(history) / 10)
    assert whole.bytes == round(len(history) * whole.sampled_bytes / 10) > 0
    assert (whole.generation, whole.version, whole.code_version) == (1, 1, 1)
    assert (whole.rows, whole.comparable, whole.running) == (4, True, "")
    assert sum(rest.messages.values()) == 0
    assert (sum(early.messages.values()), early.comparable) == (3, False)
    assert await tables(read_models) == before


async def test_a_forecast_of_the_event_store_counts_positions(
    opened: Any, stored: list[Any], read_models: ReadModels, ledger: Any, store_url: str
) -> None:
    async with opened("store", store_url) as found:
        told = await forecast(ledger.app, ledger.accounts, found, read_models)
    assert (sum(told.messages.values()), told.sampled) == (len(stored), len(stored))


def test_a_forecast_of_nothing_takes_no_time() -> None:
    told = Forecast(
        projection="p", messages={}, sampled=0, sampled_bytes=0, sampled_seconds=0.0, generation=1,
        version=1, code_version=2, rows=0, comparable=True, running="",
    )  # fmt: skip
    assert (told.bytes, told.seconds) == (0, 0)
    assert json.loads(told.to_json())["code_version"] == 2
