"""Runners of two versions of a projection at work on one topic, and the switch between them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from headrace.projections.definition.projection import Projection
from headrace.projections.runner import ProjectionRunner
from headrace.projections.turn import Turn, Turned
from headrace.stores.database.parked import ParkedStore
from headrace.subscriptions.status import ReaderState
from tests.unit.headrace.readers import Total, make_totals

WAIT_MS = 60_000
SECOND = make_totals(version=2)


@pytest.fixture
def runner_of(
    read_models: Any, store: Any, transport: Any, serializer: Any, settings: Any
) -> Callable[..., ProjectionRunner[Any]]:
    def make(projection: Any, **chosen: Any) -> ProjectionRunner[Any]:
        return ProjectionRunner(
            projection=projection,
            app_name="shop",
            read_models=read_models,
            store=store,
            transport=transport,
            serializer=serializer,
            settings=settings.model_copy(update=chosen),
            switch_check_ms=5,
            batch_interval_ms=1,
        )

    return make


@asynccontextmanager
async def at_work(*runners: ProjectionRunner[Any]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.run()) for each in runners]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def rows(read_models: Any, totals: Any, **of: int) -> dict[str, tuple[int, int]]:
    reader = read_models.reader(totals, **of)
    return {row.counter_id: (row.total, row.folded) async for row in reader.rows()}


async def live(read_models: Any) -> tuple[int, int | None]:
    state = await read_models.state("totals")
    return state.generation, state.previous_generation


async def is_live(read_models: Any, generation: int) -> None:
    async with asyncio.timeout(WAIT_MS / 1_000):
        while (await live(read_models))[0] != generation:
            await asyncio.sleep(0)


async def applied(read_models: Any, transport: Any, *numbers: int) -> None:
    async with asyncio.timeout(WAIT_MS / 1_000):
        for number in numbers:
            while await read_models.offsets("totals", number) != transport.ends():
                await asyncio.sleep(0)


async def test_versions_are_built_side_by_side_and_the_newer_one_goes_live(
    runner_of: Any, read_models: Any, transport: Any, domain: Any, totals: Any
) -> None:
    told = partial(rows, read_models, totals)
    old, new = runner_of(totals), runner_of(SECOND)
    transport.put(domain.stream("a", 1))
    async with at_work(old):
        await old.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        async with at_work(new):
            await is_live(read_models, 2)
            # Both go on, each with its own rows; readers see those of the newer one.
            transport.put(domain.stream("a", 2))
            await applied(read_models, transport, 1, 2)
            assert await told() == await told(generation=2) == {"a": (3, 4)}
            assert await told(generation=1) == {"a": (3, 2)}
            assert await live(read_models) == (2, 1)
            # The way back: nothing is missing, and nothing puts the newer one in place again.
            await read_models.rollback(totals)
            transport.put(domain.stream("a", 3))
            await applied(read_models, transport, 1, 2)
            assert await live(read_models) == (1, 2)
            assert (await told(), await told(generation=2)) == ({"a": (6, 3)}, {"a": (6, 6)})
            await read_models.rollback(SECOND)
    assert {"shop.projection.totals", "shop.projection.totals.v2"} == set(transport.groups)
    assert old.status.state is new.status.state is ReaderState.RUNNING


async def test_by_command_nothing_goes_live_by_itself(
    runner_of: Any, read_models: Any, transport: Any, domain: Any, totals: Any
) -> None:
    await read_models.ensure(totals)
    transport.put(domain.stream("a", 1))
    new = runner_of(SECOND, projection_switch="by_command")
    async with at_work(new):
        await applied(read_models, transport, 2)
        # What comes then is folded into the other generation.
        transport.put(domain.stream("a", 2))
        await applied(read_models, transport, 2)
    assert await live(read_models) == (1, None)
    assert await rows(read_models, totals, generation=2) == {"a": (3, 4)}


async def test_a_newer_version_goes_live_only_with_all_that_is_live(
    runner_of: Any, read_models: Any, transport: Any, domain: Any, totals: Any
) -> None:
    old = runner_of(totals)
    transport.put(domain.stream("a", 1))
    await old.run_until(transport.ends(), timeout_ms=WAIT_MS)
    turn: Turn[Any] = Turn(SECOND, read_models, by_itself=True, check_ms=1, on_wait=print)
    assert await turn.wait() == Turned(2, is_live=False)
    assert not await turn.try_to_go_live(2)
    async with at_work(runner_of(SECOND, projection_switch="by_command")):
        await applied(read_models, transport, 2)
    # At the same offsets, but an aggregate is parked that is not parked in the live rows.
    parked = ParkedStore("totals", 2)
    async with read_models.begin() as connection:
        reason: dict[str, Any] = {"now": datetime(2026, 1, 1, tzinfo=UTC), "place": None}
        await connection.run_sync(partial(parked.add, **reason), "a", ValueError("no"))
    assert not await turn.try_to_go_live(2)
    async with read_models.begin() as connection:
        (letter,) = await connection.run_sync(parked.read)
        assert await connection.run_sync(parked.release, letter)
    again: Turn[Any] = Turn(SECOND, read_models, by_itself=True, check_ms=1, on_wait=print)
    assert await again.try_to_go_live(2)
    assert await live(read_models) == (2, 1)


async def test_a_rebuild_under_way_comes_first(read_models: Any, totals: Any) -> None:
    await read_models.ensure(totals)
    turn: Turn[Any] = Turn(SECOND, read_models, by_itself=True, check_ms=1, on_wait=print)
    assert await turn.wait() == Turned(2, is_live=False)
    await read_models.locks.hold("me")
    assert await read_models.begin_shadow(totals, "me") == 3
    assert not await turn.try_to_go_live(2)
    await read_models.locks.release("me")
    # It has died: nothing to wait for.
    assert await turn.try_to_go_live(2)
    assert await turn.wait() == await turn.look() == Turned(2, is_live=True)


async def test_a_paused_projection_waits_in_code_of_each_version(
    read_models: Any, totals: Any
) -> None:
    await read_models.ensure(totals)
    await read_models.pause("totals")
    told: list[str] = []
    turn: Turn[Any] = Turn(SECOND, read_models, by_itself=True, check_ms=1, on_wait=told.append)
    waiting = asyncio.create_task(turn.wait())
    while not told:
        await asyncio.sleep(0)
    assert (told, await turn.look()) == (["it is paused"], None)
    await read_models.resume("totals")
    assert await waiting == Turned(2, is_live=False)


class Wider(Total):
    more: int = 0


async def test_a_switch_that_the_database_refuses_ends_nothing(
    read_models: Any, totals: Any, logs: Any
) -> None:
    await read_models.ensure(totals)
    async with read_models.begin() as connection:
        await connection.execute(text("CREATE VIEW mine AS SELECT total FROM totals"))
    wider = Projection("totals", row=Wider, key="counter_id", version=2)
    turn: Turn[Any] = Turn(wider, read_models, by_itself=True, check_ms=1, on_wait=print)
    assert await turn.wait() == Turned(2, is_live=False)
    # SQLite lets a view go that another one needs.
    refused = read_models.engine.dialect.name == "postgresql"
    assert await turn.try_to_go_live(2) is not refused
    told = [each for each in logs if each["event"] == "rows of a newer version cannot go live"]
    assert len(told) == refused
    assert not await turn.try_to_go_live(2)
    assert (await live(read_models))[0] == (1 if refused else 2)
