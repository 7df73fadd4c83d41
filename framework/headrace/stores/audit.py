"""
Reads every stored stream once and finds those that are damaged, and those that have no checksum yet.

Used by `headrace stream check`, on SQLite and PostgreSQL. The only thing it ever writes are missing
checksums, and only when you ask for that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, update
from sqlalchemy.ext.asyncio import AsyncEngine

from headrace.errors import DamagedStream
from headrace.serialization import Serializer
from headrace.stores.database import queries
from headrace.stores.database.engines import autocommit, create_engine
from headrace.stores.database.rows import checksum_of, entry_in
from headrace.stores.database.tables import event_streams

__all__ = ["Audit", "audit"]

# Streams read in one statement, and filled in in one transaction.
_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found.

    Attributes:
        streams: how many were read, rejections included.
        damaged: how many of them cannot be read.
        without: how many have no checksum, because they are older than checksums; without those
            that were filled in.
        filled_in: how many were given one.
    """

    streams: int = 0
    damaged: int = 0
    without: int = 0
    filled_in: int = 0


async def audit(
    url: str,
    serializer: Serializer,
    *,
    fill_in: bool = False,
    tell: Callable[[DamagedStream], None],
) -> Audit:
    """Reads every stream of an event store.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.
        serializer: decodes them.
        fill_in: give streams a checksum that have none, as they are now.
        tell: hears of each damaged stream, in position order.

    Raises:
        DefinitionError: the URL is none of these.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    engine = create_engine(url)
    streams = damaged = without = filled_in = 0
    try:
        position = 0
        while rows := await _page(engine, position):
            position = rows[-1].position
            streams += len(rows)
            old: list[Any] = []
            for row in rows:
                entry = entry_in(row, serializer)
                if isinstance(entry, DamagedStream):
                    damaged += 1
                    tell(entry)
                elif row.checksum is None:
                    old.append(row)
            if fill_in and old:
                await _fill_in(engine, old)
                filled_in += len(old)
            else:
                without += len(old)
    finally:
        await engine.dispose()
    return Audit(streams=streams, damaged=damaged, without=without, filled_in=filled_in)


async def _page(engine: AsyncEngine, after: int) -> Sequence[Any]:
    async with autocommit(engine).connect() as connection:
        rows: Sequence[Any] = (await connection.execute(queries.all_streams(after, _PAGE))).all()
        return rows


async def _fill_in(engine: AsyncEngine, rows: Sequence[Any]) -> None:
    columns = event_streams.c
    statement = (
        update(event_streams)
        .where(columns.position == bindparam("place"), columns.checksum.is_(None))
        .values(checksum=bindparam("found"))
    )
    binds = [
        {
            "place": row.position,
            "found": checksum_of(
                row.aggregate_id, row.aggregate_type, row.version, row.command_id, row.body.encode()
            ),
        }
        for row in rows
    ]
    async with engine.begin() as connection:
        await connection.execute(statement, binds)
