"""
Which aggregates an event store has: a page at a time, in the order of their ids, and one by its id.

    from "ann"  ─▶  ann version 12, bob version 3, …  ─▶  after "bob": cid version 7, …

A page is found by an index and costs the same in a store of ten aggregates or of ten million, because it begins behind an
id and not behind a number of rows. Used by the console and by `headrace aggregate`. It reads, and writes nothing.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, and_, func, select

from headrace.stores.database.engines import autocommit, create_engine
from headrace.stores.database.tables import event_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["PAGE_MAX", "AggregateDirectory", "AggregateEntry", "open_directory"]

# Aggregates on one page: more than a person reads, and few enough for one statement.
PAGE_MAX: Final = 500
_of: Final = event_streams.c


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateEntry:
    """An aggregate of an event store.

    Attributes:
        aggregate_type: registered name of its class.
        aggregate_id: its id.
        version: its last one.
        began_at: when its first version was recorded, UTC.
        changed_at: when its last one was, UTC.
    """

    aggregate_type: str
    aggregate_id: str
    version: int
    began_at: datetime
    changed_at: datetime


class AggregateDirectory:
    """The aggregates of an event store whose schema is up to date.

    Args:
        engine: of its database; closed by the caller.
    """

    def __init__(self, engine: "AsyncEngine") -> None:
        self._engine = autocommit(engine)

    async def page(
        self,
        *,
        aggregate_type: str = "",
        begin: str = "",
        after: str | None = None,
        limit: int = 50,
    ) -> list[AggregateEntry]:
        """Returns aggregates in the order of their ids, as the database orders texts.

        Args:
            aggregate_type: only those of this class; empty: all.
            begin: the first id that may be on the page.
            after: the last id of the page before; None: this is the first page.
            limit: how many at most, up to `PAGE_MAX`.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: the database is away.
        """
        query = _begun().order_by(_of.aggregate_id).limit(max(1, min(limit, PAGE_MAX)))
        if aggregate_type:
            query = query.where(_of.aggregate_type == aggregate_type)
        if begin:
            query = query.where(_of.aggregate_id >= begin)
        if after is not None:
            query = query.where(_of.aggregate_id > after)
        return await self._read(query)

    async def find(self, aggregate_id: str) -> AggregateEntry | None:
        """Returns an aggregate; None: it never changed."""
        found = await self._read(_begun().where(_of.aggregate_id == aggregate_id))
        return found[0] if found else None

    async def _read(self, query: Select[Any]) -> list[AggregateEntry]:
        async with self._engine.connect() as connection:
            begun = (await connection.execute(query)).all()
            if not begun:
                return []
            heads = await connection.execute(_heads([each.aggregate_id for each in begun]))
            last = {each.aggregate_id: each for each in heads}
        return [
            AggregateEntry(
                aggregate_type=each.aggregate_type,
                aggregate_id=each.aggregate_id,
                version=last[each.aggregate_id].version,
                began_at=each.recorded_at,
                changed_at=last[each.aggregate_id].recorded_at,
            )
            for each in begun
            # Deleted between the two statements.
            if each.aggregate_id in last
        ]


@asynccontextmanager
async def _opened(url: str) -> "AsyncIterator[AggregateDirectory]":
    engine = create_engine(url)
    try:
        yield AggregateDirectory(engine)
    finally:
        await engine.dispose()


def open_directory(url: str) -> AbstractAsyncContextManager[AggregateDirectory]:
    """Opens the directory of an event store until the block ends; see `schema.check` for its schema.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """
    return _opened(url)


def _begun() -> Select[Any]:
    """Selects the first stream of aggregates: there is one of each."""
    return select(_of.aggregate_id, _of.aggregate_type, _of.recorded_at).where(_of.version == 1)


def _heads(aggregate_ids: Sequence[str]) -> Select[Any]:
    """Selects the last version of aggregates, and when it was recorded."""
    last = (
        select(_of.aggregate_id, func.max(_of.version).label("version"))
        .where(_of.aggregate_id.in_(aggregate_ids))
        .group_by(_of.aggregate_id)
        .subquery()
    )
    return select(_of.aggregate_id, _of.version, _of.recorded_at).join(
        last, and_(_of.aggregate_id == last.c.aggregate_id, _of.version == last.c.version)
    )
