"""Shares of a shadow's rows: each counts once, all of them become the shadow, and nothing is left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.projections.tables.contents import place_of
from headrace.projections.tables.generations import adopt_shadow
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.shadow_load import (
    Filled,
    become_shadow,
    copy_share,
    create_staging,
    drop_staging,
    enter_staging,
    find_filled,
    find_noted,
    find_plan,
    find_twice,
    index_staging,
    is_noted,
    merge_into_shadow,
    note_share,
    staging_of,
)
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import projection_versions

TABLE = "totals__2"
ROWS = [("a", 1, 2), ("b", 3, 4)]


@pytest.fixture
async def models(postgres_database: str, totals: Any) -> AsyncIterator[ReadModels]:
    """Read models on PostgreSQL with a shadow of `me`."""
    await upgrade(postgres_database)
    opened = ReadModels(postgres_database)
    await opened.ensure(totals)
    assert await opened.begin_shadow(totals, "me") == 2
    yield opened
    await opened.aclose()


@asynccontextmanager
async def session(models: ReadModels) -> AsyncIterator[AsyncConnection]:
    """A connection of a task's own."""
    engine = create_engine(models.url)
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


async def stage(models: ReadModels, totals: Any, **choices: Any) -> Any:
    target = models.target(totals, 2)
    async with models.begin() as connection:
        await create_staging(connection, target.table, "me", **{"merged": False, **choices})
    return target


async def put(
    models: ReadModels,
    share: int,
    rows: Any,
    others: Any = (),
    owner: str = "me",
    told: bytes = b"",
) -> bool:
    """Copies a share as a task does."""
    async with session(models) as connection:
        assert await enter_staging(connection, TABLE, 9)
        await copy_share(connection, TABLE, rows, others)
        noted = await note_share(connection, TABLE, owner, share, len(rows), told)
        if noted:
            await connection.commit()
        return noted


async def tables(models: ReadModels) -> set[str]:
    async with models.begin() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    return {name for name in names if name.startswith("totals")}


async def rows_of(models: ReadModels, totals: Any) -> list[tuple[Any, ...]]:
    reader = models.reader(totals, generation=2)
    return sorted([tuple(row.__dict__.values()) async for row in reader.rows()])


async def versions_of(models: ReadModels) -> dict[str, int]:
    columns = projection_versions.c
    async with models.begin() as connection:
        found = await connection.execute(select(columns.aggregate_id, columns.version))
        return {row.aggregate_id: row.version for row in found}


def test_the_names_of_the_longest_projection_fit() -> None:
    assert all(len(name) <= 63 for name in staging_of("p" * 40 + "__1234567890"))


async def test_shares_become_the_shadow_with_its_key_and_versions(
    models: ReadModels, totals: Any
) -> None:
    target = await stage(models, totals)
    assert await put(models, 0, ROWS[:1], [("version", "a", 7)])
    assert await put(models, 1, ROWS[1:], [("version", "b", 8), ("deleted", "c", 0)])
    async with models.begin() as connection:
        assert await find_filled(connection, TABLE) == Filled(shares=2, rows=2)
        assert await find_twice(connection, TABLE) is None
        await index_staging(connection, target.table)
    async with models.begin() as connection:
        await become_shadow(connection, target.table, place_of(target))
    assert await rows_of(models, totals) == ROWS
    assert await versions_of(models) == {"a": 7, "b": 8}
    assert await tables(models) == {"totals__1", TABLE}
    async with models.begin() as connection:
        key = await connection.run_sync(lambda sync: inspect(sync).get_pk_constraint(TABLE))
    assert (key["name"], key["constrained_columns"]) == (f"{TABLE}_pkey", ["counter_id"])
    await models.switch(totals, 2, "me")
    assert [row.counter_id async for row in models.reader(totals).rows()] == ["a", "b"]


async def test_shares_are_merged_into_a_shadow_that_has_rows(
    models: ReadModels, totals: Any
) -> None:
    target = await stage(models, totals, merged=True)
    async with models.begin() as connection:
        values = [("a", 9, 9), ("c", 9, 9), ("d", 9, 9)]
        rows = [dict(zip(("counter_id", "total", "folded"), each, strict=True)) for each in values]
        await connection.execute(target.table.insert(), rows)
        known = {**place_of(target), "aggregate_id": "a", "version": 1}
        await connection.execute(projection_versions.insert(), [known])
    await put(models, 0, ROWS, [("version", "a", 7), ("version", "b", 8), ("deleted", "c", 0)])
    async with models.begin() as connection:
        await merge_into_shadow(connection, target.table, place_of(target))
    assert await rows_of(models, totals) == [*ROWS, ("d", 9, 9)]
    assert await versions_of(models) == {"a": 7, "b": 8}
    assert await tables(models) == {"totals__1", TABLE}


async def test_a_share_that_is_copied_twice_counts_once(models: ReadModels, totals: Any) -> None:
    target = await stage(models, totals)
    async with session(models) as slow:
        assert not await is_noted(slow, TABLE, 0)
        await copy_share(slow, TABLE, ROWS, [])
        assert await put(models, 0, ROWS)
        assert not await note_share(slow, TABLE, "me", 0, 2)
        await slow.rollback()
        assert await is_noted(slow, TABLE, 0)
        assert not await is_noted(slow, TABLE, 1)
    async with models.begin() as connection:
        assert await find_filled(connection, TABLE) == Filled(shares=1, rows=2)
        await index_staging(connection, target.table)


async def test_a_copier_of_another_owner_copies_nothing(models: ReadModels, totals: Any) -> None:
    await stage(models, totals)
    async with session(models) as late:
        await copy_share(late, TABLE, ROWS, [])
        with pytest.raises(IntegrityError, match="owner"):
            await note_share(late, TABLE, "who has died", 0, 2)
    async with models.begin() as connection:
        assert await find_filled(connection, TABLE) == Filled(shares=0, rows=0)


async def test_copying_sessions_are_limited_and_a_session_that_ends_makes_room(
    models: ReadModels,
) -> None:
    async with session(models) as other:
        async with session(models) as first:
            assert await enter_staging(first, TABLE, 1)
            assert not await enter_staging(other, TABLE, 1)
            assert await enter_staging(other, "totals__3", 1)
        # The server lets go of a lock when it has ended the session, which nobody is told of.
        async with session(models) as watching:
            ended = text("SELECT pg_advisory_lock(hashtext(:of), 1)")
            await watching.execute(ended, {"of": staging_of(TABLE).sessions})
        assert await enter_staging(other, TABLE, 2)


async def test_an_aggregate_in_two_shares_is_found_and_its_rows_have_no_index(
    models: ReadModels, totals: Any
) -> None:
    target = await stage(models, totals)
    for share in (0, 1):
        await put(models, share, ROWS[:1], [("version", "a", 7)])
    async with models.begin() as connection:
        assert await find_twice(connection, TABLE) == "a"
    with pytest.raises(IntegrityError):
        async with models.begin() as connection:
            await index_staging(connection, target.table)


async def test_abandoning_a_shadow_ends_its_copying_sessions_and_drops_its_tables(
    models: ReadModels, totals: Any
) -> None:
    await stage(models, totals)
    async with session(models) as copying:
        assert await enter_staging(copying, TABLE, 9)
        await copy_share(copying, TABLE, ROWS, [])
        await models.abandon_shadow("totals", 2, "me")
        assert await tables(models) == {"totals__1"}
        with pytest.raises(DBAPIError):
            await note_share(copying, TABLE, "me", 0, 2)
        await copying.invalidate()
    async with models.begin() as connection:
        await drop_staging(connection, TABLE)


async def test_a_rebuild_that_resumes_with_an_empty_shadow_drops_its_copied_rows(
    models: ReadModels, totals: Any
) -> None:
    await stage(models, totals, plan="one share")
    await put(models, 0, ROWS)
    async with models.begin() as connection:
        assert await adopt_shadow(connection, totals, 2, owners=("me", "you"))
    assert await tables(models) == {"totals__1", TABLE}
    assert await rows_of(models, totals) == []


async def test_the_next_owner_keeps_noted_shares_and_the_one_before_adds_none(
    models: ReadModels, totals: Any
) -> None:
    target = await stage(models, totals, plan="three shares")
    assert await put(models, 0, ROWS[:1], [("version", "a", 1)], told=b"events: 1")
    async with session(models) as late:
        assert await enter_staging(late, TABLE, 9)
        await copy_share(late, TABLE, [("late", 1, 1)], [])
        async with models.begin() as connection:
            owners = ("me", "you")
            assert await adopt_shadow(connection, totals, 2, owners=owners, staged=True)
            assert not await adopt_shadow(connection, totals, 2, owners=owners, staged=True)
            assert await find_plan(connection, TABLE) == "three shares"
            assert await find_noted(connection, TABLE) == {0: b"events: 1"}
        # Its session was ended, so that it holds no other session up.
        with pytest.raises(DBAPIError):
            await note_share(late, TABLE, "me", 1, 1)
        await late.invalidate()
    # One that comes only now, with a share that is noted or with another one.
    for share in (0, 1):
        with pytest.raises(IntegrityError, match="owned"):
            await put(models, share, [("late", 1, 1)])
    assert not await put(models, 0, ROWS[:1], owner="you")
    assert await put(models, 1, ROWS[1:], [("version", "b", 1)], owner="you")
    # A third goes on behind the key, too.
    async with models.begin() as connection:
        await index_staging(connection, target.table)
    async with models.begin() as connection:
        assert await adopt_shadow(connection, totals, 2, owners=("you", "me"), staged=True)
        await index_staging(connection, target.table)
        assert await find_filled(connection, TABLE) == Filled(shares=2, rows=2)
        await become_shadow(connection, target.table, place_of(target))
    assert await rows_of(models, totals) == ROWS
    assert await versions_of(models) == {"a": 1, "b": 1}
    assert await tables(models) == {"totals__1", TABLE}


async def test_shares_without_a_plan_are_not_taken_over(models: ReadModels, totals: Any) -> None:
    await stage(models, totals)
    await put(models, 0, ROWS)
    async with models.begin() as connection:
        assert await find_plan(connection, TABLE) is None
        assert not await adopt_shadow(connection, totals, 2, owners=("me", "you"), staged=True)
        # As a database does that crashes.
        await drop_staging(connection, TABLE)
        await create_staging(
            connection, models.table_for(totals, 2), "me", merged=False, plan="one share"
        )
        await connection.execute(text(f"TRUNCATE {staging_of(TABLE).plan}"))
        assert not await adopt_shadow(connection, totals, 2, owners=("me", "you"), staged=True)
    assert await put(models, 0, ROWS)
