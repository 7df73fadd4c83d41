"""Versions side by side: which generation each folds into, and when a newer one may go live."""

import random
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from headrace.domain.message import EventContext
from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import generations
from headrace.projections.tables.contents import write_offsets, write_versions
from headrace.projections.tables.generation_tables import find_all
from headrace.projections.tables.origins import (
    GenerationOrigin,
    ProjectionState,
    lock_state,
    note_use,
    origins_of,
)
from headrace.projections.tables.succession import (
    ahead_of,
    count_further,
    find_own,
    further,
    lacks,
    may_go_live,
    take_own,
    why_none,
)
from headrace.stores.database.parked import ParkedStore
from tests.unit.headrace.readers import Added, Total, make_totals


class Wider(Total):
    more: int = 0


Q0, Q1 = ("shop.events", 0), ("shop.events", 1)


@pytest.fixture
async def models(read_models: Any, totals: Any) -> Any:
    await read_models.ensure(totals)
    return read_models


async def take(models: Any, projection: Projection[Any]) -> int | None:
    async with models.begin() as connection:
        return await take_own(connection, projection)


async def put_live(models: Any, projection: Projection[Any], generation: int) -> None:
    async with models.begin() as connection:
        state = await lock_state(connection, projection.name)
        await generations.go_live(connection, projection, state, generation)
    async with models.begin() as connection:
        await generations.drop_leftovers(connection, projection.name)


def state_of(generation: int, version: int, previous: int | None) -> ProjectionState:
    return ProjectionState(
        name="totals",
        generation=generation,
        previous_generation=previous,
        fingerprint=f"{version}:x",
        rebuild_generation=None,
        rebuild_owner=None,
        rebuild_started_at=None,
        paused_at=None,
    )


@given(st.data())
def test_versions_never_share_a_generation_and_few_are_kept(data: st.DataObject) -> None:
    versions = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    origins = {
        number: GenerationOrigin(version=version, followed=data.draw(st.booleans()))
        for number, version in enumerate(versions, 1)
    }
    live = data.draw(st.sampled_from(sorted(origins)))
    previous = data.draw(st.none() | st.sampled_from(sorted(origins)))
    state = state_of(live, origins[live].version, previous)
    own = {version: state.own(origins, version) for version in range(1, 5)}
    assert own[state.version] == live
    for version, number in own.items():
        if number is not None:
            assert origins[number].version == version
    used = state.used(origins)
    assert {live, previous} - {None} <= used
    # Of each newer version one, and of older ones no more than the previous one.
    assert all(origins[number].version > state.version for number in used - state.kept)
    assert len(used) <= len(state.kept) + len({v for v in versions if v > state.version})


async def test_newer_code_makes_a_generation_once_and_older_code_waits(
    models: Any, totals: Any
) -> None:
    second, third, fourth = (make_totals(version=version) for version in (2, 3, 4))
    assert await take(models, totals) == 1
    assert [await take(models, second), await take(models, second)] == [2, 2]
    assert await take(models, third) == 3
    assert await take(models, fourth) is None
    async with models.snapshot() as connection:
        state, own = await find_own(connection, second)
        why = why_none(state, await origins_of(connection, "totals"), fourth)
    assert (state.generation, own) == (1, 2)
    assert "versions 2, 3 are being built already next to version 1" in (why or "")

    await put_live(models, third, 3)
    # Version 2 is neither live nor previous: its table is gone, and it makes none.
    assert await take(models, second) is None
    assert await take(models, totals) == 1
    async with models.snapshot() as connection:
        assert set(await find_all(connection, "totals")) == {1, 3}
        state, _ = await find_own(connection, second)
        why = why_none(state, await origins_of(connection, "totals"), second)
    assert "run the code of version 3, or `headrace projection rollback totals`" in (why or "")


async def test_a_version_that_was_rolled_back_does_not_return_by_itself(
    models: Any, totals: Any
) -> None:
    second = make_totals(version=2)
    assert await take(models, second) == 2

    async def may() -> bool:
        async with models.snapshot() as connection:
            state, _ = await find_own(connection, second)
            return may_go_live(state, await origins_of(connection, "totals"), 2)

    assert await may()
    await put_live(models, second, 2)
    assert not await may()
    await models.rollback(totals)
    assert (await take(models, totals), await take(models, second)) == (1, 2)
    assert not await may()
    async with models.begin() as connection:
        await note_use(connection, "totals", 2, by_command=False)
    await models.pause("totals")
    assert not await may()


async def test_a_generation_with_other_columns_is_refused(models: Any) -> None:
    await take(models, make_totals(version=2))
    with pytest.raises(ProjectionError, match="raise the version, or drop the table"):
        await take(models, Projection("totals", row=Wider, key="counter_id", version=2))


async def test_a_projection_with_handlers_is_not_built_next_to_the_live_one(models: Any) -> None:
    second = make_totals(version=2)

    @second.with_session
    def noted(session: Session, event: Added, context: EventContext) -> None: ...

    assert await take(models, second) is None
    async with models.snapshot() as connection:
        state, _ = await find_own(connection, second)
        why = why_none(state, await origins_of(connection, "totals"), second)
    assert "its handlers would meet events twice" in (why or "")


async def test_a_generation_lacks_what_the_live_one_has_more_of(models: Any, totals: Any) -> None:
    second = make_totals(version=2)
    await take(models, second)
    live, own = models.target(totals, 1), models.target(second, 2)
    async with models.begin() as connection:
        await write_offsets(connection, live, {Q0: 5, Q1: 2})
        await write_offsets(connection, own, {Q0: 4, Q1: 3})
        assert await ahead_of(connection, "totals", 1, 2) == {Q0: 1}
        assert await ahead_of(connection, "totals", 2, 1) == {Q1: 1}
        assert await lacks(connection, "totals", 2, 1) is None
        await write_versions(connection, live, {"a": 2, "b": 1})
        await write_versions(connection, own, {"a": 2})
        assert await lacks(connection, "totals", 2, 1) == "b"
        await write_versions(connection, own, {"b": 3})
        assert await lacks(connection, "totals", 2, 1) is None
        for generation in (2, 1):
            park = partial(
                ParkedStore("totals", generation).add,
                aggregate_id="b",
                error=ValueError("no"),
                now=datetime(2026, 1, 1, tzinfo=UTC),
                place=None,
            )
            await connection.run_sync(park)
            expected = "b" if generation == 2 else None
            assert await lacks(connection, "totals", 2, 1) == expected


@pytest.mark.parametrize("seed", range(5))
async def test_counts_of_both_ways_are_those_of_the_aggregates_found(
    models: Any, totals: Any, seed: int
) -> None:
    chance = random.Random(seed)
    async with models.begin() as connection:
        for generation in (1, 2, 3):
            versions = {f"a{n}": chance.randint(0, 3) for n in chance.sample(range(20), 12)}
            await write_versions(connection, models.target(totals, generation), versions)
        for pair in ((1, 2), (2, 3), (3, 4), (4, 1)):
            found = [
                len((await connection.execute(further(totals.name, *way))).all())
                for way in (pair, pair[::-1])
            ]
            assert [*await count_further(connection, totals.name, *pair)] == found
