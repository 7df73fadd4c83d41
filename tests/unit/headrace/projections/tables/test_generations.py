"""Generations: set up, shadow, switch, rollback, drop; each whole or not at all."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import insert, inspect, select, text
from sqlalchemy.sql.ddl import CreateTable

from headrace.errors import DefinitionError, ProjectionError, ProjectionNotFound, RebuildRunning
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import generations
from headrace.projections.tables.generation_tables import find_all
from headrace.projections.tables.generations import REBUILD_STALE_MS
from headrace.projections.tables.origins import (
    GenerationOrigin,
    find_state,
    lock_state,
    origins_of,
)
from headrace.projections.tables.row_tables import build_table, create_view
from headrace.stores.database.tables import projection_offsets, projection_versions
from tests.unit.headrace.readers import make_totals

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LIVE = GenerationOrigin(followed=True, by_command=True)


class Wider(BaseModel):
    counter_id: str
    total: int = 0
    folded: int = 0
    last: int | None = None


@pytest.fixture
def wider() -> Projection[Wider]:
    """The projection `totals` with one field more."""
    return Projection("totals", row=Wider, key="counter_id")


@pytest.fixture
async def models(read_models: Any, totals: Any) -> Any:
    """Read models with the projection set up."""
    await read_models.ensure(totals)
    return read_models


async def tables(models: Any) -> set[str]:
    async with models.begin() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    return {name for name in names if name.startswith("totals")}


async def put_row(models: Any, totals: Any, generation: int, **values: Any) -> None:
    async with models.begin() as connection:
        await connection.execute(insert(models.table_for(totals, generation)), [values])


async def test_the_first_use_makes_generation_1_and_its_view(models: Any, totals: Any) -> None:
    await put_row(models, totals, 1, counter_id="a", total=1, folded=1)
    state = await models.state("totals")
    assert (state.generation, state.previous_generation, state.rebuild_generation) == (
        1,
        None,
        None,
    )
    assert (await models.reader(totals).get("a")).total == 1


async def test_setting_up_again_changes_nothing(models: Any, totals: Any) -> None:
    before = await models.state("totals")
    await models.ensure(totals)
    assert await models.state("totals") == before


async def test_set_ups_at_once_make_one_generation(read_models: Any, totals: Any) -> None:
    await asyncio.gather(*(read_models.ensure(totals) for _ in range(4)))
    assert await tables(read_models) == {"totals__1"}


async def test_changed_fields_are_refused_with_the_command_to_run(models: Any, wider: Any) -> None:
    with pytest.raises(ProjectionError, match="run `headrace projection rebuild totals`"):
        await models.ensure(wider)


@pytest.mark.parametrize("name", ["projections", "event_streams"])
async def test_the_framework_keeps_its_own_names(read_models: Any, domain: Any, name: str) -> None:
    with pytest.raises(DefinitionError, match="table of Headrace's own"):
        await read_models.ensure(domain.make_totals(name))


async def test_a_name_that_something_else_has_is_refused_and_nothing_is_left(
    read_models: Any, totals: Any
) -> None:
    async with read_models.begin() as connection:
        foreign = build_table(totals, "foreign")
        await connection.execute(CreateTable(foreign))
        await connection.execute(create_view("totals", foreign))
    with pytest.raises(ProjectionError, match="another table or view named totals"):
        await read_models.ensure(totals)
    async with read_models.begin() as connection:
        assert await find_state(connection, "totals") is None


async def test_a_projection_never_set_up_is_not_found(read_models: Any, totals: Any) -> None:
    await read_models.ensure(totals)
    async with read_models.begin() as connection:
        with pytest.raises(ProjectionNotFound):
            await lock_state(connection, "balances")
    with pytest.raises(ProjectionNotFound):
        await read_models.generation("balances")
    with pytest.raises(ProjectionNotFound):
        await read_models.begin_shadow(Projection("b", row=Wider, key="counter_id"), "me")


async def test_a_shadow_is_an_empty_table_outside_the_view(models: Any, totals: Any) -> None:
    await put_row(models, totals, 1, counter_id="a", total=1, folded=1)
    assert await models.begin_shadow(totals, "me") == 2
    assert await models.reader(totals, generation=2).count() == 0
    assert await models.reader(totals).count() == 1
    state = await models.state("totals")
    assert (state.generation, state.rebuild_generation, state.rebuild_owner) == (1, 2, "me")


async def test_a_second_rebuild_is_refused_while_the_first_is_young(
    models: Any, totals: Any
) -> None:
    await models.begin_shadow(totals, "me")
    with pytest.raises(RebuildRunning, match="me has been rebuilding it since"):
        await models.begin_shadow(totals, "you")


async def test_a_stale_rebuild_is_cleared_away_and_its_number_not_used_again(
    models: Any, totals: Any
) -> None:
    late = NOW + timedelta(milliseconds=REBUILD_STALE_MS)
    async with models.begin() as connection:
        assert await generations.begin_shadow(connection, totals, "me", NOW) == 2
    async with models.begin() as connection:
        assert await generations.begin_shadow(connection, totals, "you", late) == 3
    assert await tables(models) == {"totals__1", "totals__3"}
    with pytest.raises(ProjectionError, match="no longer the shadow that me builds"):
        await models.switch(totals, 2, "me")


async def test_a_switch_makes_the_shadow_live_and_keeps_the_old_one(
    models: Any, totals: Any
) -> None:
    await put_row(models, totals, 1, counter_id="a", total=1, folded=1)
    await models.begin_shadow(totals, "me")
    await put_row(models, totals, 2, counter_id="a", total=2, folded=1)
    await models.switch(totals, 2, "me")
    assert (await models.reader(totals).get("a")).total == 2
    state = await models.state("totals")
    assert (state.generation, state.previous_generation, state.rebuild_generation) == (2, 1, None)
    assert (state.rebuild_owner, state.rebuild_started_at) == (None, None)
    assert await tables(models) == {"totals__1", "totals__2"}


async def test_a_switch_may_change_the_fields(models: Any, totals: Any, wider: Any) -> None:
    await models.begin_shadow(wider, "me")
    await put_row(models, wider, 2, counter_id="a", total=2, folded=1, last=2)
    await models.switch(wider, 2, "me")
    assert await models.reader(wider).where(last=2) == [
        Wider(counter_id="a", total=2, folded=1, last=2)
    ]
    await models.ensure(wider)
    with pytest.raises(ProjectionError, match="have changed"):
        await models.ensure(totals)


async def test_views_on_a_projection_survive_a_switch_with_the_same_fields(
    models: Any, totals: Any
) -> None:
    async with models.begin() as connection:
        await connection.execute(create_view("on_top", build_table(totals, "totals")))
    await models.begin_shadow(totals, "me")
    await put_row(models, totals, 2, counter_id="a", total=2, folded=1)
    await models.switch(totals, 2, "me")
    async with models.begin() as connection:
        rows = await connection.execute(select(build_table(totals, "on_top")))
    assert rows.all() == [("a", 2, 1)]


async def test_only_the_owner_switches(models: Any, totals: Any) -> None:
    await models.begin_shadow(totals, "me")
    with pytest.raises(ProjectionError, match="no longer the shadow that you builds"):
        await models.switch(totals, 2, "you")
    assert await models.generation("totals") == 1


async def test_a_switch_that_fails_half_way_leaves_everything_as_it_was(
    models: Any, totals: Any
) -> None:
    await put_row(models, totals, 1, counter_id="a", total=1, folded=1)
    await models.begin_shadow(totals, "me")
    with suppress(ZeroDivisionError):
        async with models.begin() as connection:
            await generations.switch(connection, totals, 2, "me")
            raise ZeroDivisionError
    assert (await models.reader(totals).get("a")).total == 1
    assert (await models.state("totals")).rebuild_generation == 2


async def test_the_second_switch_drops_the_generation_before_the_previous(
    models: Any, totals: Any
) -> None:
    for generation in (2, 3):
        assert await models.begin_shadow(totals, "me") == generation
        await models.switch(totals, generation, "me")
    assert await tables(models) == {"totals__2", "totals__3"}


async def test_a_rollback_swaps_live_and_previous_and_so_does_the_next(
    models: Any, totals: Any
) -> None:
    await put_row(models, totals, 1, counter_id="a", total=1, folded=1)
    await models.begin_shadow(totals, "me")
    await models.switch(totals, 2, "me")
    assert await models.rollback(totals) == 1
    assert await models.reader(totals).count() == 1
    assert await models.rollback(totals) == 2
    assert await models.reader(totals).count() == 0


async def test_a_rollback_without_a_previous_generation_is_refused(
    models: Any, totals: Any
) -> None:
    with pytest.raises(ProjectionError, match="no previous generation"):
        await models.rollback(totals)


async def test_a_rollback_to_other_fields_needs_the_code_of_those_fields(
    models: Any, totals: Any, wider: Any
) -> None:
    await models.begin_shadow(wider, "me")
    await models.switch(wider, 2, "me")
    with pytest.raises(ProjectionError, match="deploy the code it was built with"):
        await models.rollback(wider)
    assert await models.rollback(totals) == 1
    await models.ensure(totals)


async def test_a_shadow_given_up_leaves_nothing_behind(models: Any, totals: Any) -> None:
    await models.begin_shadow(totals, "me")
    async with models.begin() as connection:
        place = {"name": "totals", "generation": 2}
        await connection.execute(
            insert(projection_offsets), [{**place, "topic": "t", "queue_id": 0, "next_offset": 1}]
        )
        await connection.execute(
            insert(projection_versions), [{**place, "aggregate_id": "a", "version": 1}]
        )
    await models.abandon_shadow("totals", 2, "me")
    assert await tables(models) == {"totals__1"}
    assert await models.offsets("totals", 2) == {}
    async with models.begin() as connection:
        assert (await connection.execute(select(projection_versions))).all() == []
    assert await models.begin_shadow(totals, "you") == 2


async def test_abandoning_the_shadow_of_another_owner_does_nothing(
    models: Any, totals: Any
) -> None:
    await models.begin_shadow(totals, "me")
    await models.abandon_shadow("totals", 2, "you")
    assert (await models.state("totals")).rebuild_generation == 2


async def test_only_generations_out_of_use_can_be_dropped(models: Any, totals: Any) -> None:
    await models.begin_shadow(totals, "me")
    for generation in (1, 2):
        with pytest.raises(ProjectionError, match="in use"):
            await models.drop_generation("totals", generation)
    await models.switch(totals, 2, "me")
    await models.drop_generation("totals", 1)
    assert await tables(models) == {"totals__2"}
    with pytest.raises(ProjectionError, match="no previous generation"):
        await models.rollback(totals)


async def test_the_view_answers_to_its_plain_name(models: Any, totals: Any) -> None:
    await put_row(models, totals, 1, counter_id="a", total=1, folded=1)
    async with models.begin() as connection:
        rows = await connection.execute(text("SELECT * FROM totals"))
    assert rows.all() == [("a", 1, 1)]


async def test_a_generation_goes_live_by_code_of_its_version_alone(
    models: Any, totals: Any
) -> None:
    second = make_totals(version=2)
    await models.ensure(second)
    assert await models.begin_shadow(second, "me") == 2
    async with models.begin() as connection:
        adopted = await generations.adopt_shadow(connection, totals, 2, owners=("me", "you"))
    assert not adopted
    with pytest.raises(ProjectionError, match="was built by version 2 and this code has version 1"):
        await models.switch(totals, 2, "me")
    await models.switch(second, 2, "me")
    state = await models.state("totals")
    assert (state.generation, state.version, state.fingerprint) == (2, 2, second.fingerprint)
    with pytest.raises(ProjectionError, match="was built by version 1 and this code has version 2"):
        await models.rollback(second)
    async with models.begin() as connection:
        found = await find_all(connection, "totals")
    assert {number: origin.version for number, origin in found.items()} == {1: 1, 2: 2}
    assert await models.rollback(totals) == 1
    assert (await models.state("totals")).version == 1
    await models.drop_generation("totals", 2)
    async with models.begin() as connection:
        assert await find_all(connection, "totals") == {1: LIVE}
        assert await origins_of(connection, "totals") == {1: LIVE}
