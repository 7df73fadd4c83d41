"""
Reads streams that a topic lacks, of many aggregates at once.

    ranges of versions ─▶ pages of at most so many versions ─▶ one statement each ─▶ streams

What a rebuild lacks are often the first versions of very many aggregates: a statement for each of them
takes hours where a statement for a thousand takes a minute.

Used by the tasks of Spark and by rebuilds without it; reads SQLite and PostgreSQL.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Dialect, text

from headrace.domain.stream import EventStream
from headrace.serialization import Serializer
from headrace.stores.database.engines import EngineLimits, autocommit, create_engine
from headrace.stores.database.rows import read_keys, stream_in
from headrace.stores.database.schema import check
from headrace.stores.database.statements import load_statement

__all__ = ["PAGE_VERSIONS_MAX", "MissingStreams", "Range", "pages_of"]

# An aggregate, the version to start after, and the last one.
Range = tuple[str, int, int]

# Versions per statement: enough to make its own cost small, few enough to hold in memory.
PAGE_VERSIONS_MAX: Final = 1_000
# One page is read at a time.
_LIMITS: Final = EngineLimits(connections_max=1)


class MissingStreams:
    """Reads an event store over one connection, which it opens when it is first asked.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`; a database that is there.
        serializer: decodes what is stored.
        page_versions: versions per statement, at most.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """

    def __init__(
        self, url: str, serializer: Serializer, *, page_versions: int = PAGE_VERSIONS_MAX
    ) -> None:
        self._url = url
        self._serializer = serializer
        self._page_versions = page_versions
        self._engine = create_engine(url, _LIMITS)
        self._reading = autocommit(self._engine)
        sqlite = self._engine.dialect.name == "sqlite"
        package = "headrace.stores.sqlite" if sqlite else "headrace.stores.postgres"
        self._statement = text(load_statement(package, "between"))
        self._checked = False

    async def read(self, ranges: Iterable[Range]) -> list[EventStream]:
        """Returns the streams in ranges, those of an aggregate together and in version order.

        Of an aggregate that lacks a version in one page, what comes in later pages is left out.

        Args:
            ranges: those of an aggregate in order, and none over another.

        Raises:
            DamagedStream: one is not what was stored, or does not decode.
            UnknownMessageType: an event in one is unknown to the application.
            SchemaOutOfDate: there is no database, or its schema is not this version's.
            sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
        """
        if not self._checked:
            await check(self._url)
            self._checked = True
        by_aggregate: dict[str, list[EventStream]] = {}
        incomplete: set[str] = set()
        for page in pages_of(ranges, self._page_versions, incomplete):
            for stream in await self._read_page(page):
                by_aggregate.setdefault(stream.aggregate_id, []).append(stream)
            for aggregate_id, _, to in page:
                own = by_aggregate.get(aggregate_id)
                if own is None or (own[-1].version or 0) < to:
                    incomplete.add(aggregate_id)
        return [stream for own in by_aggregate.values() for stream in own]

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._engine.dispose()

    async def _read_page(self, page: Sequence[Range]) -> list[EventStream]:
        binds = _binds(self._engine.dialect, page)
        async with self._reading.connect() as connection:
            rows = (await connection.execute(self._statement, binds)).all()
        await read_keys(rows, self._serializer)
        return [stream_in(row, self._serializer) for row in rows]


def pages_of(
    ranges: Iterable[Range], size: int, left_out: Collection[str] = frozenset()
) -> Iterator[list[Range]]:
    """Yields ranges, cut where needed, so that no page has more versions than a size.

    Args:
        ranges: of versions.
        size: of a page, in versions.
        left_out: aggregates that are passed over; looked at before each page.
    """
    page: list[Range] = []
    room = size
    for aggregate_id, begin, to in ranges:
        after = begin
        while after < to and aggregate_id not in left_out:
            end = min(to, after + room)
            page.append((aggregate_id, after, end))
            room -= end - after
            after = end
            if room == 0:
                yield page
                page, room = [], size
    if page:
        yield page


def _binds(dialect: Dialect, page: Sequence[Range]) -> dict[str, Any]:
    if dialect.name == "sqlite":
        return {"ranges": json.dumps(page)}
    aggregate_ids, after, up_to = zip(*page, strict=True)
    return {"aggregate_ids": list(aggregate_ids), "after": list(after), "up_to": list(up_to)}
