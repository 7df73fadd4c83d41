"""Streams are divided among shards and put together again, and nothing is lost on the way."""

import asyncio

import pytest
from sqlalchemy import Connection, func, inspect, select

from headrace.errors import DefinitionError, SchemaOutOfDate
from headrace.stores.base import AppendOutcome
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import check, downgrade
from headrace.stores.database.tables import event_streams
from headrace.stores.open import open_event_store
from headrace.stores.postgres.partitions import SHARDS_MAX, reshard, shards_of
from headrace.testing.conformance.streams import conformance_serializer, stream


def _shape(connection: Connection) -> dict[str, object]:
    inspector = inspect(connection)
    name = event_streams.name
    return {
        "columns": [
            (column["name"], str(column["type"]), column["nullable"], column["default"])
            for column in inspector.get_columns(name)
        ],
        "key": inspector.get_pk_constraint(name),
        "unique": sorted(
            (each["name"] or "", each["column_names"])
            for each in inspector.get_unique_constraints(name)
        ),
        "tables": sorted(each for each in inspector.get_table_names() if name in each),
    }


async def shape(url: str) -> dict[str, object]:
    engine = create_engine(url)
    async with engine.connect() as connection:
        found = await connection.run_sync(_shape)
    await engine.dispose()
    return found


async def test_every_stream_keeps_its_position_on_the_way_to_shards_and_back(
    migrated_postgres: str,
) -> None:
    plain = await shape(migrated_postgres)
    store = await open_event_store(migrated_postgres, conformance_serializer())
    await store.append([stream(f"a-{number}", 1) for number in range(50)])
    for shards in (4, 7, 1):
        before = await store.read_all()
        await reshard(migrated_postgres, shards)
        assert await shards_of(migrated_postgres) == shards
        # The same store, whose statements were prepared for another table, goes on.
        assert await store.read_all() == before
        (outcome,) = await store.append([stream(f"b-{shards}", 1)])
        assert outcome is AppendOutcome.APPENDED
        assert (await store.append([stream(f"b-{shards}", 1)])) == [AppendOutcome.DUPLICATE_COMMAND]
        assert await store.last_position() > before[-1].position
        await check(migrated_postgres)
    await store.aclose()
    assert await shape(migrated_postgres) == plain


async def test_a_sharded_table_differs_from_a_plain_one_in_key_and_parts_only(
    migrated_postgres: str,
) -> None:
    plain = await shape(migrated_postgres)
    await reshard(migrated_postgres, 2)
    sharded = await shape(migrated_postgres)
    assert {name for name in plain if plain[name] != sharded[name]} == {"key", "tables"}
    assert sharded["tables"] == ["event_streams", "event_streams_2_0", "event_streams_2_1"]
    await downgrade(migrated_postgres, "base")
    engine = create_engine(migrated_postgres)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    await engine.dispose()
    assert [name for name in names if "event_streams" in name] == []


async def test_streams_are_spread_over_the_shards(migrated_postgres: str) -> None:
    await reshard(migrated_postgres, 4)
    store = await open_event_store(migrated_postgres, conformance_serializer())
    await store.append([stream(f"a-{number}", 1) for number in range(200)])
    await store.aclose()
    engine = create_engine(migrated_postgres)
    async with engine.connect() as connection:
        where = event_streams.c.aggregate_id.label("id")
        count = select(func.count(where.distinct())).select_from(event_streams)
        assert (await connection.execute(count)).scalar_one() == 200
        parts = [
            (await connection.exec_driver_sql(f"TABLE event_streams_4_{shard}")).rowcount
            for shard in range(4)
        ]
    await engine.dispose()
    assert sum(parts) == 200
    assert min(parts) > 20


async def test_streams_appended_during_a_change_of_shards_are_kept(migrated_postgres: str) -> None:
    store = await open_event_store(migrated_postgres, conformance_serializer())
    stop = asyncio.Event()
    appended: list[str] = []

    async def append() -> None:
        while not stop.is_set():
            name = f"a-{len(appended)}"
            assert await store.append([stream(name, 1)]) == [AppendOutcome.APPENDED]
            appended.append(name)

    appending = asyncio.create_task(append())
    for shards in (3, 1, 2):
        await reshard(migrated_postgres, shards)
    stop.set()
    await appending
    stored = await store.read_all(limit=1_000_000)
    await store.aclose()
    assert appended
    assert [found.stream.aggregate_id for found in stored] == appended


async def test_the_same_number_changes_nothing(migrated_postgres: str) -> None:
    await reshard(migrated_postgres, 1)
    assert await shards_of(migrated_postgres) == 1
    await reshard(migrated_postgres, 2)
    await reshard(migrated_postgres, 2)
    assert await shards_of(migrated_postgres) == 2


@pytest.mark.parametrize("shards", [0, -1, SHARDS_MAX + 1])
async def test_a_number_that_makes_no_sense_is_refused(migrated_postgres: str, shards: int) -> None:
    with pytest.raises(DefinitionError, match=f"use 1 to {SHARDS_MAX}"):
        await reshard(migrated_postgres, shards)


async def test_a_schema_that_is_behind_and_an_sqlite_file_are_refused(
    postgres_database: str, sqlite_database: str
) -> None:
    with pytest.raises(SchemaOutOfDate, match="headrace db upgrade"):
        await reshard(postgres_database, 2)
    with pytest.raises(DefinitionError, match="only PostgreSQL"):
        await shards_of(sqlite_database)
