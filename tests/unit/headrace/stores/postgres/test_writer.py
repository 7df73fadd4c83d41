"""The writer's own connection: fast while nothing goes wrong, and silent when something does."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.stores.database.engines import autocommit, create_engine
from headrace.stores.postgres.writer import PostgresWriter, numbered

INSERT = "INSERT INTO numbers SELECT unnest(CAST(:numbers AS bigint[]))"


@pytest.fixture
async def engine(postgres_database: str) -> AsyncIterator:
    """Of a database with a table of different numbers."""
    engine = autocommit(create_engine(postgres_database))
    async with engine.connect() as connection:
        await connection.exec_driver_sql("CREATE TABLE numbers (number bigint PRIMARY KEY)")
    yield engine
    await engine.dispose()


@pytest.fixture
async def writer(engine) -> AsyncIterator[PostgresWriter]:
    """Inserts numbers."""
    writer = PostgresWriter(engine, INSERT)
    yield writer
    await writer.aclose()


async def count(engine) -> int:
    async with engine.connect() as connection:
        result = await connection.exec_driver_sql("SELECT count(*) FROM numbers")
        return result.scalar_one()


def test_named_binds_become_numbers_in_the_order_of_their_first_use():
    statement = "SELECT f(:b), CAST(:a AS int[]), :b, c::text"
    assert numbered(statement) == ("SELECT f($1), CAST($2 AS int[]), $1, c::text", ["b", "a"])


async def test_the_writer_says_how_many_rows_it_inserted(engine, writer):
    assert await writer.insert({"numbers": [1, 2, 3]}) == 3
    assert await writer.insert({"numbers": []}) == 0
    assert await count(engine) == 3


async def test_a_constraint_s_objection_is_left_to_the_other_way_and_costs_no_connection(
    engine, writer
):
    assert await writer.insert({"numbers": [1]}) == 1
    assert await writer.insert({"numbers": [2, 1]}) is None
    assert await writer.insert({"numbers": [2]}) == 1
    assert await count(engine) == 2


async def test_an_insert_under_way_sends_others_the_other_way(engine, writer):
    both = await asyncio.gather(writer.insert({"numbers": [1]}), writer.insert({"numbers": [2]}))
    assert both == [1, None]
    assert await count(engine) == 1


async def test_a_failure_is_not_raised_and_the_next_insert_finds_another_connection(engine, writer):
    assert await writer.insert({"numbers": ["one"]}) is None
    assert await writer.insert({"numbers": [1]}) == 1


async def test_a_database_that_cannot_be_reached_is_left_to_the_other_way(tmp_path):
    engine = create_engine(f"postgresql://nobody@/nothing?host={tmp_path}")
    writer = PostgresWriter(autocommit(engine), INSERT)
    assert await writer.insert({"numbers": [1]}) is None
    await engine.dispose()
