"""
The event store in a PostgreSQL database.

An append is one statement and one round trip as long as no other writer interferes. Writers take turns,
so that positions are in commit order; in one round trip a writer holds its turn only while the server
works, not while this process is busy. Implements the `EventStore` port.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.domain.stream import EventStream
from headrace.errors import DamagedStream
from headrace.serialization import Serializer
from headrace.stores.base import (
    AppendOutcome,
    Snapshot,
    StoredByCommand,
    StoredStream,
    StoreIdentity,
)
from headrace.stores.chain import decide, expected_heads
from headrace.stores.database import queries
from headrace.stores.database.engines import EngineLimits, autocommit, create_engine
from headrace.stores.database.identity import identity_in
from headrace.stores.database.refusals import postgres_outcome
from headrace.stores.database.rows import (
    by_command,
    checksum_of,
    entry_in,
    read_keys,
    stream_in,
)
from headrace.stores.database.statements import load_statement
from headrace.stores.postgres.writer import PostgresWriter

__all__ = ["PostgresEventStore"]

# The advisory lock that writers take in turns; any number that no other program uses.
_TURN = int.from_bytes(b"headrace")


class PostgresEventStore:
    """Keeps streams in a PostgreSQL database whose schema is up to date; see `open_event_store`.

    Args:
        url: `postgresql://USER@HOST/DATABASE`.
        serializer: makes the stored bodies and reads them.
        limits: the bounds of its statements and connections; there is one that writes besides.

    Raises:
        DefinitionError: the URL is not one of a database that Headrace knows.
    """

    def __init__(
        self, url: str, serializer: Serializer, limits: EngineLimits | None = None
    ) -> None:
        self._serializer = serializer
        self._engine = create_engine(url, limits)
        self._single = autocommit(self._engine)
        append = load_statement("headrace.stores.postgres", "append")
        self._append_sql = text(append)
        alone = replace(limits or EngineLimits(), connections_max=1)
        self._writing = create_engine(url, alone)
        self._writer = PostgresWriter(autocommit(self._writing), append)
        self._save_snapshot_sql = text(load_statement("headrace.stores", "save_snapshot"))
        self._turn_sql = text(load_statement("headrace.stores.postgres", "turn"))
        self._heads_sql = text(load_statement("headrace.stores.postgres", "heads"))
        self._commands_sql = text(load_statement("headrace.stores.postgres", "commands"))
        self._stored_sql = text(load_statement("headrace.stores.postgres", "stored"))

    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        """Stores each stream that breaks no constraint; see `EventStore.append`."""
        if not streams:
            return []
        bodies = [self._serializer.encode_stream(stream) for stream in streams]
        if await self._append_whole(streams, bodies):
            return [AppendOutcome.APPENDED] * len(streams)
        return await self._append_chosen(streams, bodies)

    async def find_command(self, aggregate_id: str, command_id: str) -> EventStream | None:
        """Returns what a command stored on an aggregate, rejections included, or None."""
        async with self._single.connect() as connection:
            found = await connection.execute(queries.stream_of_command(aggregate_id, command_id))
            row = found.first()
        if row is None:
            return None
        await read_keys([row], self._serializer)
        return stream_in(row, self._serializer)

    async def find_stored(self, commands: Collection[tuple[str, str]]) -> StoredByCommand:
        """Returns what commands stored; see `EventStore.find_stored`."""
        # Once: a set may be handed out in another order the next time.
        pairs = list(commands)
        binds = {
            "aggregate_ids": [aggregate_id for aggregate_id, _ in pairs],
            "command_ids": [command_id for _, command_id in pairs],
        }
        async with self._single.connect() as connection:
            rows = (await connection.execute(self._stored_sql, binds)).all()
        await read_keys(rows, self._serializer)
        return by_command(rows, self._serializer)

    async def read_stream(
        self, aggregate_id: str, *, after_version: int = 0, to_version: int | None = None
    ) -> list[EventStream]:
        """Returns an aggregate's streams in version order, without rejections."""
        query = queries.streams_of_aggregate(aggregate_id, after_version, to_version)
        async with self._single.connect() as connection:
            rows = (await connection.execute(query)).all()
        await read_keys(rows, self._serializer)
        return [stream_in(row, self._serializer) for row in rows]

    async def read_all(self, *, after_position: int = 0, limit: int = 1_000) -> list[StoredStream]:
        """Returns streams of all aggregates in position order, rejections included."""
        async with self._single.connect() as connection:
            rows = (await connection.execute(queries.all_streams(after_position, limit))).all()
        await read_keys(rows, self._serializer)
        return [
            StoredStream(position=row.position, stream=stream_in(row, self._serializer))
            for row in rows
        ]

    async def survey(
        self, *, aggregate_id: str | None = None, after_position: int = 0, limit: int = 1_000
    ) -> Sequence[StoredStream | DamagedStream]:
        """Returns streams in position order; a damaged stream comes as its error."""
        query = queries.all_streams(after_position, limit, aggregate_id=aggregate_id)
        async with self._single.connect() as connection:
            rows = (await connection.execute(query)).all()
        await read_keys(rows, self._serializer)
        return [entry_in(row, self._serializer) for row in rows]

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        """Keeps the newest snapshot of each aggregate; see `EventStore.save_snapshots`."""
        # Always in the same order, so that two processes that save the same snapshots cannot deadlock.
        rows = [asdict(each) for each in sorted(snapshots, key=attrgetter("aggregate_id"))]
        if rows:
            async with self._engine.begin() as connection:
                await connection.execute(self._save_snapshot_sql, rows)

    async def find_snapshot(self, aggregate_id: str) -> Snapshot | None:
        """Returns the newest snapshot that was saved of an aggregate, or None."""
        async with self._single.connect() as connection:
            found = await connection.execute(queries.snapshot_of_aggregate(aggregate_id))
            row = found.mappings().first()
        return None if row is None else Snapshot(**row)

    async def last_position(self) -> int:
        """Returns the highest position stored, or 0."""
        async with self._single.connect() as connection:
            return (await connection.execute(queries.highest_position())).scalar_one()

    async def identity(self) -> StoreIdentity:
        """Returns which store this is; the first call of all makes it."""
        async with self._single.connect() as connection:
            return await connection.run_sync(identity_in)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._writer.aclose()
        await self._writing.dispose()
        await self._engine.dispose()

    async def _append_whole(self, streams: Sequence[EventStream], bodies: Sequence[bytes]) -> bool:
        heads = expected_heads(streams)
        if heads is None:
            return False
        inserted = await self._writer.insert(_binds(streams, bodies, heads))
        if inserted is not None:
            return inserted == len(streams)
        try:
            async with self._single.connect() as connection:
                return await self._insert(connection, streams, bodies, heads)
        except IntegrityError as error:
            if postgres_outcome(error) is None:
                raise
            return False

    async def _append_chosen(
        self, streams: Sequence[EventStream], bodies: Sequence[bytes]
    ) -> list[AppendOutcome]:
        """Looks up conflicting streams, in a turn in which no other writer writes."""
        async with self._engine.begin() as connection:
            await connection.execute(self._turn_sql, {"turn": _TURN})
            heads, commands = await self._look_up(connection, streams)
            outcomes = decide(streams, heads, commands)
            chosen = [
                (stream, body)
                for stream, body, outcome in zip(streams, bodies, outcomes, strict=True)
                if outcome is AppendOutcome.APPENDED
            ]
            if chosen:
                kept, kept_bodies = zip(*chosen, strict=True)
                fit = expected_heads(kept) or {}
                if not await self._insert(connection, kept, kept_bodies, fit):
                    raise AssertionError("a stream that fits did not fit within its own turn")
            return outcomes

    async def _insert(
        self,
        connection: AsyncConnection,
        streams: Sequence[EventStream],
        bodies: Sequence[bytes],
        heads: Mapping[str, int],
    ) -> bool:
        result = await connection.execute(
            self._append_sql,
            _binds(streams, bodies, heads),
            execution_options={"preserve_rowcount": True},
        )
        return result.rowcount == len(streams)

    async def _look_up(
        self, connection: AsyncConnection, streams: Sequence[EventStream]
    ) -> tuple[dict[str, int], set[tuple[str, str]]]:
        ids = [stream.aggregate_id for stream in streams]
        heads = await connection.execute(self._heads_sql, {"aggregate_ids": list(set(ids))})
        commands = await connection.execute(
            self._commands_sql,
            {"aggregate_ids": ids, "command_ids": [stream.command_id for stream in streams]},
        )
        return (
            {aggregate_id: version or 0 for aggregate_id, version in heads},
            {(aggregate_id, command_id) for aggregate_id, command_id in commands},
        )


def _binds(
    streams: Sequence[EventStream], bodies: Sequence[bytes], heads: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "turn": _TURN,
        "head_ids": list(heads.keys()),
        "head_versions": list(heads.values()),
        "aggregate_ids": [stream.aggregate_id for stream in streams],
        "aggregate_types": [stream.aggregate_type for stream in streams],
        "versions": [stream.version for stream in streams],
        "command_ids": [stream.command_id for stream in streams],
        "recorded_ats": [stream.recorded_at for stream in streams],
        "bodies": [body.decode() for body in bodies],
        "checksums": [
            checksum_of(each.aggregate_id, each.aggregate_type, each.version, each.command_id, body)
            for each, body in zip(streams, bodies, strict=True)
        ],
    }
