"""
A rebuild's result on its way into a shadow, and what it begins with out of it.

    PostgreSQL  prepare ─▶ the job's tasks copy, each its share ─▶ load: an index, and one transaction
    SQLite      the job ─▶ files on this machine's disk ─▶ load: one transaction

That transaction has rows, versions and offsets. On PostgreSQL the rows are there already, in a
table that becomes the shadow's; nothing but counts comes through this process. Used by the job;
writes the database of read models. It must not know Spark sessions or events.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import ColumnElement, Table, and_, insert, literal, select, tuple_
from sqlalchemy.exc import IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.errors import ProjectionError
from headrace.projections.tables.contents import (
    Target,
    place_of,
    write_offsets,
    write_rows,
    write_versions,
)
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.shadow_load import (
    become_shadow,
    create_staging,
    drop_staging,
    find_filled,
    find_noted,
    find_plan,
    find_twice,
    index_staging,
    merge_into_shadow,
)
from headrace.rebuild.shadow import Building
from headrace.rebuild.switch import Shadow
from headrace.spark.executor.fold import (
    BASE,
    DELETED,
    RECORD_ARROW_SCHEMA,
    ROW,
    VERSION,
    Record,
    batched,
)
from headrace.spark.job import Folded, in_two_queues
from headrace.spark.result.copy import SHARES, Copying
from headrace.spark.result.disk import Stored, store
from headrace.spark.result.live_rows import Beginning, plan_beginning
from headrace.spark.result.parts import Spool
from headrace.spark.rows import RowCodec
from headrace.stores.database.tables import projection_versions
from headrace.transports.base import QueueId

__all__ = ["Loading", "read_base"]

# Rows read from the database at once: enough that its round trips vanish, and few enough where each
# has 100 KB.
_CHUNK_ROWS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How the result of one rebuild gets into its shadow.

    Attributes:
        read_models: where the shadow is.
        shadow: whose rows they are.
        onto: the shadow holds a copy of the live rows, and the result is what changed.
        connections_max: of all tasks together.
        folder: that tasks see too, if there is one.
    """

    read_models: ReadModels
    shadow: Shadow
    onto: bool
    connections_max: int
    folder: str | None = None

    @asynccontextmanager
    async def prepared(self, plan: str | None = None) -> AsyncIterator[Copying | Spool]:
        """Yields what the job's tasks copy into; or what keeps their rows here while it is open.

        Args:
            plan: what each share is: what was copied by the same plan stays. None: nothing stays.

        Raises:
            ProjectionError: the shadow is no longer this rebuild's.
        """
        if self.copies:
            yield await self._prepare_copying(plan)
            return
        with closing(Spool(self.folder)) as spool:
            yield spool

    @property
    def copies(self) -> bool:
        """Whether tasks copy themselves."""
        return self.read_models.engine.dialect.name == "postgresql"

    async def plan_before(self) -> str | None:
        """Returns by which plan a rebuild has copied shares whose shadow this one took over, if any."""
        if not self.copies:
            return None
        async with self.read_models.snapshot() as connection:
            return await find_plan(connection, self._target.table.name)

    async def noted(self) -> dict[int, bytes]:
        """Returns the shares that are copied already, and what their tasks told."""
        async with self.read_models.snapshot() as connection:
            return await find_noted(connection, self._target.table.name)

    async def base(self) -> pa.Table | Beginning | Stored:
        """Returns how tasks read the rows and versions that the shadow has a copy of; or these."""
        async with self.read_models.snapshot() as connection:
            if self.copies:
                return await plan_beginning(
                    connection, self._target, self.read_models.url, self.connections_max
                )
            found = read_base(connection, self._target, RowCodec(self.shadow.projection))
            if self.folder is not None:
                return await store(self.folder, found)
            return pa.Table.from_batches(
                [batch async for _, batch in found], schema=RECORD_ARROW_SCHEMA
            )

    async def count(self, into: Copying | Spool, folded: Folded) -> int:
        """Returns how many rows the job has made.

        Raises:
            ProjectionError: less was copied than tasks say; or the shadow is no longer this
                rebuild's.
        """
        if isinstance(into, Spool):
            return into.rows
        async with self.read_models.begin() as connection:
            await Building.check_owner(connection, self.shadow)
            filled = await find_filled(connection, into.table)
        if filled.shares != folded.counts[SHARES]:
            raise ProjectionError(
                f"projection {self.shadow.projection.name}: {folded.counts[SHARES]} tasks have"
                f" copied rows and {filled.shares} of them are in the database, which must have"
                " been restarted meanwhile; run the rebuild again"
            )
        return filled.rows

    async def load(self, into: Copying | Spool, offsets: Mapping[QueueId, int]) -> None:
        """Makes the result the shadow's, with its versions and offsets, in one transaction.

        Raises:
            ProjectionError: an aggregate stands in two queues; or the shadow is no longer this
                rebuild's.
        """
        if isinstance(into, Copying):
            await self._take(offsets)
            return
        codec: RowCodec[Any] = RowCodec(self.shadow.projection)
        load = _load_onto if self.onto else _load_fresh
        try:
            async with self.read_models.begin() as connection:
                await Building.check_owner(connection, self.shadow)
                await load(connection, self._target, codec, into)
                await write_offsets(connection, self._target, offsets)
        except IntegrityError as error:
            twice = into.find_twice()
            if twice is None:
                raise
            raise in_two_queues(self.shadow.projection.name, twice) from error

    @property
    def _target(self) -> Target[Any]:
        return self.read_models.target(self.shadow.projection, self.shadow.generation)

    async def _prepare_copying(self, plan: str | None) -> Copying:
        table, owner = self._target.table, self.shadow.owner
        async with self.read_models.begin() as connection:
            await Building.check_owner(connection, self.shadow)
            if plan is None or await find_plan(connection, table.name) != plan:
                # Of a fold that failed and is made again, or of a rebuild that has died.
                await drop_staging(connection, table.name)
                await create_staging(connection, table, owner, merged=self.onto, plan=plan)
        return Copying(
            url=self.read_models.url,
            table=table.name,
            owner=owner,
            connections_max=self.connections_max,
        )

    async def _take(self, offsets: Mapping[QueueId, int]) -> None:
        target, table = self._target, self._target.table
        place = place_of(target)
        try:
            if not self.onto:
                async with self.read_models.begin() as connection:
                    await index_staging(connection, table)
            async with self.read_models.begin() as connection:
                await Building.check_owner(connection, self.shadow)
                if self.onto:
                    await merge_into_shadow(connection, table, place)
                else:
                    await become_shadow(connection, table, place)
                await write_offsets(connection, target, offsets)
        except (IntegrityError, ProgrammingError) as error:
            async with self.read_models.begin() as connection:
                # Another rebuild that took over has dropped the tables.
                await Building.check_owner(connection, self.shadow)
                twice = await find_twice(connection, table.name)
            if twice is None:
                raise
            raise in_two_queues(self.shadow.projection.name, twice) from error


async def read_base(
    connection: AsyncConnection, target: Target[Any], codec: RowCodec[Any]
) -> AsyncIterator[tuple[str, pa.RecordBatch]]:
    """Yields a generation's rows and then its versions, as records for the job with their kind."""
    columns = [target.table.c[name] for name in codec.columns]
    keys = list(target.table.primary_key.columns)
    async for rows in _pages(connection, columns, keys):
        for batch in batched(
            Record.known(BASE, codec.key_of(row), data=codec.encode_values(row)) for row in rows
        ):
            yield BASE, batch
    known = projection_versions.c
    found = [known.aggregate_id, known.version]
    where = _of(projection_versions, target)
    async for rows in _pages(connection, found, [known.aggregate_id], where):
        for batch in batched(Record.known(VERSION, row[0], number=row[1]) for row in rows):
            yield VERSION, batch


async def _load_fresh(
    connection: AsyncConnection, target: Target[Any], codec: RowCodec[Any], spool: Spool
) -> None:
    for found in spool.read(ROW):
        rows = [dict(zip(codec.columns, codec.values(row), strict=True)) for row in found["data"]]
        await connection.execute(insert(target.table), rows)
    place = place_of(target)
    for found in spool.read(VERSION):
        versions = [
            {**place, "aggregate_id": key, "version": version}
            for key, version in zip(found["key"], found["number"], strict=True)
        ]
        await connection.execute(insert(projection_versions), versions)


async def _load_onto(
    connection: AsyncConnection, target: Target[Any], codec: RowCodec[Any], spool: Spool
) -> None:
    key_of = target.projection.key_form.text_of
    for found in spool.read(ROW):
        rows = [codec.row(row) for row in found["data"]]
        await write_rows(connection, target, {key_of(row): row for row in rows})
    for found in spool.read(DELETED):
        await write_rows(connection, target, dict.fromkeys(found["key"]))
    for found in spool.read(VERSION):
        versions = dict(zip(found["key"], found["number"], strict=True))
        await write_versions(connection, target, versions)


async def _pages(
    connection: AsyncConnection,
    columns: Sequence[ColumnElement[Any]],
    keys: Sequence[ColumnElement[Any]],
    where: ColumnElement[bool] | None = None,
) -> AsyncIterator[Sequence[Any]]:
    places = [next(at for at, column in enumerate(columns) if column is key) for key in keys]
    statement = select(*columns).order_by(*keys).limit(_CHUNK_ROWS)
    if where is not None:
        statement = statement.where(where)
    page = (await connection.execute(statement)).all()
    while page:
        yield page
        last = (literal(page[-1][at], key.type) for at, key in zip(places, keys, strict=True))
        following = statement.where(tuple_(*keys) > tuple_(*last))
        page = (await connection.execute(following)).all()


def _of(table: Table, target: Target[Any]) -> ColumnElement[bool]:
    return and_(table.c.name == target.projection.name, table.c.generation == target.generation)
