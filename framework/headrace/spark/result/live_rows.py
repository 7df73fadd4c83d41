"""
What a rebuild from offsets begins with, read out of PostgreSQL by the tasks of its job.

    rows      blocks 0 ─▶ n of the shadow's table          each share of blocks is a task's
    versions  blocks 0 ─▶ m of the table of all versions   the same, of this generation

The shadow is a copy that does not change, so its rows stay in their blocks; unless the table is
rewritten meanwhile, which is noticed. Reads the shadow of a rebuild; feeds the folds with records.
Its second half runs on executors. It must not know an event.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, func, literal, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.errors import ProjectionError
from headrace.projections.tables.contents import Target
from headrace.projections.tables.row_tables import build_table, physical_name
from headrace.spark.executor.fold import BASE, VERSION, Batches, Record, batched
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.result.connection import TaskConnection
from headrace.spark.rows import RowCodec
from headrace.stores.database.tables import projection_versions

__all__ = ["Beginning", "Share", "plan_beginning", "read_shares"]

# Of one share, 16 MiB at PostgreSQL's usual size of them: a second of a task.
_BLOCKS: Final = 2_048
# Rows fetched at once: as many as the driver buffers, and few enough where each has 100 KB.
_CHUNK_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one task reads.

    Attributes:
        kind: `BASE` or `VERSION`.
        table: in which.
        file: of the table when the shares were made.
        first: block.
        end: the block after the last one; None for all that follow.
    """

    kind: str
    table: str
    file: int
    first: int
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The rows and versions of a shadow that is a copy; travels with the job.

    Attributes:
        url: of the database, as every executor reaches it; not shown, it may hold a password.
        generation: of the shadow.
        shares: of rows and of versions.
        connections_max: of all tasks together.
    """

    url: str = field(repr=False)
    generation: int
    shares: tuple[Share, ...]
    connections_max: int

    def of(self, kind: str) -> tuple[Share, ...]:
        """Returns the shares of a kind."""
        return tuple(share for share in self.shares if share.kind == kind)


async def plan_beginning(
    connection: AsyncConnection, target: Target[Any], url: str, connections_max: int
) -> Beginning:
    """Returns how a generation that does not change is read.

    Args:
        connection: to the database.
        target: the generation.
        url: of the database, as every executor reaches it.
        connections_max: of all tasks together.
    """
    shares: list[Share] = []
    for kind, table in ((BASE, target.table.name), (VERSION, projection_versions.name)):
        name = func.to_regclass(literal(f'"{table}"'))
        block: ColumnElement[int] = literal_column("current_setting('block_size')::bigint")
        sizes = select(func.pg_relation_filenode(name), func.pg_relation_size(name) / block)
        file, blocks = (await connection.execute(sizes)).one()
        begins = range(0, max(int(blocks), 1), _BLOCKS)
        shares += [
            Share(kind=kind, table=table, file=file, first=begin, end=end)
            for begin, end in zip(begins, [*begins[1:], None], strict=True)
        ]
    return Beginning(
        url=url,
        generation=target.generation,
        shares=tuple(shares),
        connections_max=connections_max,
    )


def read_shares(base: Beginning, plan: FoldPlan, batches: Batches) -> Batches:
    """Reads the shares whose places come in; yields rows and versions as records.

    Raises:
        ProjectionError: the database cannot be reached from here, or refuses; or a table was
            rewritten since the shares were made.
    """
    for batch in batches:
        for place in batch.column(0).to_pylist():
            yield from _read(base, plan, base.shares[place])


def _read(base: Beginning, plan: FoldPlan, share: Share) -> Batches:
    projection = projection_of(load_application(plan.app, plan.folder), plan)
    codec: RowCodec[Any] = RowCodec(projection)
    table = build_table(projection, physical_name(projection.name, base.generation))
    own = TaskConnection(
        base.url,
        table.name,
        projection=projection.name,
        doing=f"reading rows of {share.table}",
        connections_max=base.connections_max,
    )
    known = projection_versions.c
    if share.kind == BASE:
        wanted: Select[Any] = select(*(table.c[name] for name in codec.columns))
    else:
        wanted = select(known.aggregate_id, known.version).where(
            and_(known.name == projection.name, known.generation == base.generation)
        )
    with closing(own):
        pages = _pages(own, projection.name, share, wanted)
        while rows := own.run(_next(pages)):
            yield from batched(
                (
                    Record.known(BASE, codec.key_of(row), data=codec.encode_values(row))
                    for row in rows
                )
                if share.kind == BASE
                else (Record.known(VERSION, row[0], number=row[1]) for row in rows)
            )


async def _pages(
    own: TaskConnection, projection: str, share: Share, wanted: Select[Any]
) -> AsyncIterator[Sequence[Any]]:
    connection = await own.enter()
    # From here on to the end of the transaction it is not rewritten.
    await connection.exec_driver_sql(f'LOCK TABLE "{share.table}" IN ACCESS SHARE MODE')
    name = func.to_regclass(literal(f'"{share.table}"'))
    file = (await connection.execute(select(func.pg_relation_filenode(name)))).scalar_one()
    if file != share.file:
        raise ProjectionError(
            f"projection {projection}: the table {share.table} was rewritten (VACUUM FULL?) while it"
            " was read; run the rebuild again"
        )
    place: ColumnElement[Any] = literal_column(f'"{share.table}".ctid')
    inside = wanted.where(place >= literal_column(f"'({share.first},0)'::tid"))
    if share.end is not None:
        inside = inside.where(place < literal_column(f"'({share.end},0)'::tid"))
    found = await connection.stream(inside)
    async for rows in found.partitions(_CHUNK_ROWS):
        yield rows


async def _next(pages: AsyncIterator[Sequence[Any]]) -> Sequence[Any]:
    async for rows in pages:
        return rows
    return ()
