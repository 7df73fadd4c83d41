"""
Rows in bulk: the live generation's out, a rebuild's result in.

Sits between: the job, which has encoded rows, and the database of read models. Every function works
within the caller's transaction. Must never know Spark sessions or events.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow as pa
from sqlalchemy import ColumnElement, Table, and_, insert, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._projecting.contents import Target, write_offsets, write_rows, write_versions
from headrace.spark.fold import BASE, RECORD_ARROW_SCHEMA, VERSION, Record, records_to_arrow
from headrace.spark.job import Folded
from headrace.spark.rows import RowCodec
from headrace.stores.tables import projection_versions
from headrace.transports.base import QueueId

__all__ = ["load_fresh", "load_onto", "read_base"]

T = TypeVar("T")

# Rows handed to the database at once: large enough that its round trips vanish.
_CHUNK_ROWS: Final = 10_000


async def read_base(
    connection: AsyncConnection, target: Target[Any], codec: RowCodec[Any]
) -> pa.Table:
    """Returns a generation's rows and versions as records for the job."""
    batches: list[pa.RecordBatch] = []
    columns = [target.table.c[name] for name in codec.columns]
    key = codec.columns.index(target.projection.key)
    async for rows in _pages(connection, columns, target.table.c[target.projection.key]):
        batches.append(
            records_to_arrow(
                [Record.known(BASE, row[key], data=codec.encode_values(tuple(row))) for row in rows]
            )
        )
    known = projection_versions.c
    found = [known.aggregate_id, known.version]
    where = _of(projection_versions, target)
    async for rows in _pages(connection, found, known.aggregate_id, where):
        batches.append(
            records_to_arrow([Record.known(VERSION, row[0], number=row[1]) for row in rows])
        )
    return pa.Table.from_batches(batches, schema=RECORD_ARROW_SCHEMA)


async def load_fresh(
    connection: AsyncConnection,
    target: Target[Any],
    codec: RowCodec[Any],
    folded: Folded,
    offsets: Mapping[QueueId, int],
) -> None:
    """Fills an empty generation with rows, versions and offsets; by COPY on PostgreSQL."""
    # SQLAlchemy begins the transaction with its own first statement; COPY goes around it.
    await connection.execute(select(literal(1)))
    for rows in folded.row_chunks(_CHUNK_ROWS):
        values = [codec.values(row) for row in rows]
        await _insert(connection, target.table, codec.columns, values)
    place = (target.projection.name, target.generation)
    columns = ("name", "generation", "aggregate_id", "version")
    for versions in _chunks(folded.versions.items()):
        values = [(*place, aggregate_id, version) for aggregate_id, version in versions]
        await _insert(connection, projection_versions, columns, values)
    await write_offsets(connection, target, offsets)
    if connection.dialect.name == "postgresql":
        # The planner knows nothing of a table that was filled a moment ago.
        await connection.exec_driver_sql(f'ANALYZE "{target.table.name}"')


async def load_onto(
    connection: AsyncConnection,
    target: Target[Any],
    codec: RowCodec[Any],
    folded: Folded,
    offsets: Mapping[QueueId, int],
) -> None:
    """Writes what changed onto a generation that was copied from the live one."""
    key = target.projection.key
    for encoded in folded.row_chunks(_CHUNK_ROWS):
        rows = [codec.row(row) for row in encoded]
        await write_rows(connection, target, {getattr(row, key): row for row in rows})
    for keys in _chunks(folded.deleted):
        await write_rows(connection, target, dict.fromkeys(keys))
    for versions in _chunks(folded.versions.items()):
        await write_versions(connection, target, dict(versions))
    await write_offsets(connection, target, offsets)


async def _insert(
    connection: AsyncConnection,
    table: Table,
    columns: Sequence[str],
    values: list[tuple[Any, ...]],
) -> None:
    if connection.dialect.name == "postgresql":
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        # On the transaction's own connection, so it is committed or rolled back with the rest.
        await driver.copy_records_to_table(table.name, records=values, columns=columns)
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in values]
        await connection.execute(insert(table), rows)


async def _pages(
    connection: AsyncConnection,
    columns: Sequence[ColumnElement[Any]],
    key: ColumnElement[str],
    where: ColumnElement[bool] | None = None,
) -> AsyncIterator[Sequence[Any]]:
    place = next(at for at, column in enumerate(columns) if column is key)
    statement = select(*columns).order_by(key).limit(_CHUNK_ROWS)
    if where is not None:
        statement = statement.where(where)
    page = (await connection.execute(statement)).all()
    while page:
        yield page
        following = statement.where(key > page[-1][place])
        page = (await connection.execute(following)).all()


def _of(table: Table, target: Target[Any]) -> ColumnElement[bool]:
    return and_(table.c.name == target.projection.name, table.c.generation == target.generation)


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(values)
    while chunk := list(islice(remaining, _CHUNK_ROWS)):
        yield chunk
