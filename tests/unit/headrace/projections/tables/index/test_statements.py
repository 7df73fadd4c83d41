"""Indexes: on new tables, made and dropped on live ones, and what breaks a unique one."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from headrace.errors import ProjectionError
from headrace.projections.definition.index import Index
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import store_rows
from headrace.projections.tables.index.live import missing_indexes
from headrace.projections.tables.index.statements import naming_unique


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


async def test_a_new_table_has_its_indexes_under_names_of_its_own(read_models: Any) -> None:
    projection = made(BY_OWNER, BY_EMAIL)
    await read_models.ensure(projection)
    table = f"{projection.name}__1"
    found = await names(read_models, projection)
    assert {f"{table}_i{each.mark}" for each in projection.indexes} <= found
    assert all(len(name) <= 63 for name in found)
    assert await missing_indexes(read_models, projection) == []


async def test_a_unique_index_refuses_rows_in_a_sentence(read_models: Any) -> None:
    projection = made(BY_EMAIL)
    await read_models.ensure(projection)
    await write(read_models, projection, [Row(key="a", owner="ann", email="a@x", number=1)])
    # None is never the same.
    await write(read_models, projection, [Row(key=each, owner="o") for each in "bc"])
    with pytest.raises(
        ProjectionError, match=r"two rows would have the same email, number, and its"
    ):
        await write(read_models, projection, [Row(key="d", owner="o", email="a@x", number=1)])
    await write(read_models, projection, [Row(key="a", owner="ann", email="a@x", number=2)])
    await write(read_models, projection, [Row(key="d", owner="o", email="a@x", number=1)])


def test_another_broken_constraint_stays_what_it_is() -> None:
    error = IntegrityError("insert", {}, Exception("UNIQUE constraint failed: t.other"))
    with pytest.raises(IntegrityError), naming_unique(made(BY_EMAIL), "t"):
        raise error
