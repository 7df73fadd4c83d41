"""Indexes that the definition has got or lost: noticed, made and dropped."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import inspect, text

from headrace.errors import ProjectionError
from headrace.projections.definition.index import Index
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import store_rows
from headrace.projections.tables.index.live import make_indexes, missing_indexes
from headrace.projections.tables.index.statements import find_missing


class Row(BaseModel):
    key: str
    owner: str
    email: str | None = None
    price: Decimal = Decimal(0)
    number: int = 0


def made(*indexes: Index) -> Projection[Row]:
    return Projection("owners_" + "x" * 33, row=Row, key="key", indexes=indexes)


BY_OWNER = Index("owner", "price")
BY_EMAIL = Index("email", "number", unique=True)


async def write(models: Any, projection: Projection[Row], rows: Sequence[Row]) -> None:
    target = models.target(projection, 1)
    changes = {row.key: row for row in rows}
    await models.transact(lambda connection: store_rows(connection, target, changes))


async def names(models: Any, projection: Projection[Row]) -> set[str]:
    query = (
        "select name from sqlite_master where type = 'index' and sql is not null"
        if models.engine.dialect.name == "sqlite"
        else "select indexname from pg_indexes where indexname not like '%_pkey'"
        f" and tablename = '{projection.name}__1'"
    )
    async with models.begin() as connection:
        return set((await connection.execute(text(query))).scalars())


async def test_a_changed_definition_is_noticed_and_the_live_table_follows(read_models: Any) -> None:
    await read_models.ensure(made(BY_OWNER))
    await write(read_models, made(), [Row(key="a", owner="ann", email="a@x")])
    changed = made(BY_EMAIL)
    await read_models.ensure(changed)
    assert await missing_indexes(read_models, changed) == [BY_EMAIL]
    assert await make_indexes(read_models, changed) == (1, 1)
    assert await make_indexes(read_models, changed) == (0, 0)
    assert await missing_indexes(read_models, changed) == []
    table = f"{changed.name}__1"
    found = {name for name in await names(read_models, changed) if "_i" in name}
    assert found & {f"{table}_i{each.mark}" for each in (BY_OWNER, BY_EMAIL)} == {
        f"{table}_i{BY_EMAIL.mark}"
    }


async def test_rows_that_break_a_new_unique_index_are_named(read_models: Any) -> None:
    await read_models.ensure(made())
    rows = [Row(key=each, owner="o", email="a@x", number=7) for each in "cab"]
    await write(read_models, made(), [*rows, Row(key="d", owner="o")])
    projection = made(BY_EMAIL)
    with pytest.raises(
        ProjectionError, match=r"rows a and b of .*__1 have the same email='a@x', number=7"
    ):
        await make_indexes(read_models, projection)
    assert await missing_indexes(read_models, projection) == [BY_EMAIL]


async def test_a_shadow_gets_its_indexes_when_it_is_asked_for(read_models: Any) -> None:
    projection = made(BY_OWNER)
    await read_models.ensure(projection)
    generation = await read_models.begin_shadow(projection, "owner")
    table = f"{projection.name}__{generation}"
    async with read_models.begin() as connection:
        missing, _ = await connection.run_sync(find_missing, projection, table)
    assert missing == [BY_OWNER]
    assert await make_indexes(read_models, projection, generation) == (1, 0)
    async with read_models.begin() as connection:
        assert await connection.run_sync(find_missing, projection, table) == ([], [])
        assert await connection.run_sync(lambda sync: inspect(sync).has_table(table))


async def test_the_live_table_of_another_version_is_left_alone(read_models: Any) -> None:
    await read_models.ensure(made())
    newer = Projection(made().name, row=Row, key="key", version=2, indexes=[BY_OWNER])
    assert await missing_indexes(read_models, newer) == []
    with pytest.raises(ProjectionError, match="another version of the definition"):
        await make_indexes(read_models, newer)
