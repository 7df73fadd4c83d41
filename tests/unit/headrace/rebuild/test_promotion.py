"""A rebuilt table that was kept is put in place by a second command, up to date."""

from typing import Any

import pytest

from headrace.errors import ProjectionError, RebuildRunning
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.check import check
from headrace.rebuild.local.rebuild import rebuild
from headrace.rebuild.promotion import promote
from headrace.rebuild.shadow import Building
from headrace.rebuild.stored_events import STORE
from headrace.stores.base import EventStore


@pytest.fixture
def choices(event_broker: Any, database_url: str, store_url: str) -> dict[str, Any]:
    return {
        "broker": event_broker.address,
        "read_models_url": database_url,
        "event_store_url": store_url,
    }


async def rows(models: ReadModels, projection: Any) -> dict[str, Any]:
    return {row.account_id: row async for row in models.reader(projection).rows()}


async def spoil(models: ReadModels, ledger: Any) -> None:
    table = models.table_for(ledger.accounts, await models.generation("accounts"))
    async with models.begin() as connection:
        await connection.execute(table.update().where(table.c.account_id == "a").values(balance=-1))


@pytest.mark.parametrize("source", ["topic", "store"])
async def test_a_table_that_differed_is_switched_to_with_what_came_since(
    source: Any, choices: dict[str, Any], stored: list[Any], event_broker: Any, event_store: EventStore,
    read_models: ReadModels, ledger: Any, go_live: Any,
) -> None:  # fmt: skip
    await go_live(read_models, ledger.accounts)
    right = await rows(read_models, ledger.accounts)
    await spoil(read_models, ledger)
    kept = await rebuild(ledger.path, "accounts", source=source, live_wait_ms=0, **choices)
    assert (kept.switched, kept.mismatches) == (False, 1)
    # A look at what differs costs nothing of it.
    await check(ledger.path, ["accounts"], live_wait_ms=0, **choices)
    late = [ledger.stream("f", 1, ledger.Booked(partner="p1", amount=1))]
    await event_store.append(late)
    await event_broker.publish(*late)
    await go_live(read_models, ledger.accounts)
    report = await promote(ledger.path, "accounts", **choices)
    assert (report.switched, report.generation) == (True, kept.generation)
    assert (report.caught_up, report.source) == (1, source)
    found = await rows(read_models, ledger.accounts)
    assert found.pop("f").bookings == 1
    assert found == right
    assert STORE not in await read_models.offsets("accounts", report.generation)
    # The way back, and the way on.
    await read_models.rollback(ledger.accounts)
    assert (await rows(read_models, ledger.accounts))["a"].balance == -1
    with pytest.raises(ProjectionError, match="no rebuilt table that was kept"):
        await promote(ledger.path, "accounts", **choices)


async def test_a_shadow_that_cannot_catch_up_is_kept_for_the_next_attempt(
    choices: dict[str, Any], stored: list[Any], read_models: ReadModels, ledger: Any
) -> None:
    kept = await rebuild(
        ledger.path, "accounts", source="store", switch=False, live_wait_ms=0, **choices
    )
    with pytest.raises(ProjectionError, match="use --no-broker"):
        await promote(ledger.path, "accounts", **choices | {"broker": "127.0.0.1:1"})
    state = await read_models.state("accounts")
    assert (state.generation, state.rebuild_generation) == (1, None)
    report = await promote(ledger.path, "accounts", **choices | {"broker": None})
    assert (report.switched, report.generation) == (True, kept.generation)
    assert await read_models.offsets("accounts", report.generation) == {}


async def test_a_shadow_built_from_the_topic_needs_the_broker(
    choices: dict[str, Any], stored: list[Any], read_models: ReadModels, ledger: Any
) -> None:
    await rebuild(ledger.path, "accounts", verify=False, switch=False, **choices)
    with pytest.raises(ProjectionError, match="name the broker"):
        await promote(ledger.path, "accounts", **choices | {"broker": None})
    assert (await promote(ledger.path, "accounts", **choices)).switched


async def test_a_shadow_whose_switch_was_killed_is_taken_up_again(
    choices: dict[str, Any], stored: list[Any], read_models: ReadModels, ledger: Any
) -> None:
    await rebuild(ledger.path, "accounts", verify=False, switch=False, **choices)
    building = Building(read_models, ledger.accounts)
    await building.reopen(take_over=False)
    with pytest.raises(RebuildRunning, match="its table is not finished"):
        await promote(ledger.path, "accounts", **choices)
    await read_models.locks.aclose()
    assert (await promote(ledger.path, "accounts", **choices)).switched
