"""
Reads the whole event store by position, with bodies left undecoded.

Several processes can divide the store into shares. A share holds all streams of some aggregates, so one
process reads an aggregate whole.

Used by rebuilds, which decode the bodies; reads SQLite and PostgreSQL.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from sqlalchemy import ColumnElement, event, func, literal_column

from headrace.stores.database import queries
from headrace.stores.database.engines import EngineLimits, autocommit, create_engine
from headrace.stores.database.rows import checksum_of
from headrace.stores.database.schema import check
from headrace.stores.database.tables import event_streams

__all__ = ["WHOLE", "ReaderShare", "StoredBodies", "StoredBody"]

# Streams per statement, and about how many bytes: streams of 10 KB and more come in smaller pages, so
# that a page takes no more memory than a fetch from the broker.
_PAGE_STREAMS: Final = 5_000
_PAGE_BYTES: Final = 16 << 20
# One page is read at a time. A page of a share is looked for among the streams of all shares.
_LIMITS: Final = EngineLimits(connections_max=1, statement_timeout_ms=300_000)
# What SQLite has no function for.
_HASH: Final = "headrace_hash"
_POSITIVE: Final[ColumnElement[int]] = literal_column("2147483647")


class StoredBody(NamedTuple):
    """A stream or a rejection as it is stored.

    The body of one whose checksum differs is replaced by one that says so and whose it is, and does not
    decode: what cannot be believed is left out like what cannot be read.
    """

    position: int
    aggregate_id: str
    body: str


class ReaderShare(NamedTuple):
    """The aggregates that fall to one of several readers."""

    number: int
    of: int


WHOLE: Final = ReaderShare(0, 1)


class StoredBodies:
    """Reads an event store from one position to another.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`; a database that is there.
        page_streams: streams per statement at most.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """

    def __init__(self, url: str, *, page_streams: int = _PAGE_STREAMS) -> None:
        self._url = url
        self._page_streams = page_streams
        self._engine = create_engine(url, _LIMITS)
        self._reading = autocommit(self._engine)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine.sync_engine, "connect", _add_hash)

    async def check(self) -> None:
        """Looks whether there is a database with this version's tables; makes nothing.

        Raises:
            SchemaOutOfDate: there is no database, or its schema is not this version's.
            DefinitionError: the database is in memory.
        """
        await check(self._url)

    async def last_position(self) -> int:
        """Returns the highest position stored, or 0; nothing appears at or below it later."""
        async with self._reading.connect() as connection:
            return (await connection.execute(queries.highest_position())).scalar_one()

    async def read(
        self, after_position: int, to_position: int, share: ReaderShare = WHOLE
    ) -> AsyncIterator[Sequence[StoredBody]]:
        """Yields what stands after a position up to another, in position order, rejections included.

        Args:
            after_position: nothing at or below it.
            to_position: nothing above it.
            share: of these aggregates alone.
        """
        size = min(self._page_streams, 1_000)
        while after_position < to_position:
            query = queries.bodies_between(after_position, to_position, size)
            if share != WHOLE:
                query = query.where(self._hash() % share.of == share.number)
            async with self._reading.connect() as connection:
                found = (await connection.execute(query)).all()
            if found:
                yield [_body_in(row) for row in found]
                after_position = found[-1].position
            if len(found) < size:
                return
            mean = sum(len(row.body) for row in found) / len(found)
            size = max(1, min(self._page_streams, int(_PAGE_BYTES / max(mean, 1))))

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._engine.dispose()

    def _hash(self) -> ColumnElement[int]:
        aggregate_id = event_streams.c.aggregate_id
        if self._engine.dialect.name == "sqlite":
            found: ColumnElement[int] = getattr(func, _HASH)(aggregate_id)
            return found
        return func.hashtext(aggregate_id).op("&")(_POSITIVE)


def _body_in(row: Any) -> StoredBody:
    position, aggregate_id, aggregate_type, version, command_id, body, checksum = row
    if checksum is not None and checksum != checksum_of(
        aggregate_id, aggregate_type, version, command_id, body.encode()
    ):
        body = json.dumps({"aggregate_id": aggregate_id, "damaged": "its checksum differs"})
    return StoredBody(position, aggregate_id, body)


def _add_hash(connection: Any, _record: object) -> None:
    connection.create_function(_HASH, 1, _hash_of, deterministic=True)


def _hash_of(text: str) -> int:
    return crc32(text.encode())
