"""
One batch of events into one generation of a projection, in one database transaction.

    lock the projection's row ─▶ generation still the one? ─▶ stored offsets where the batch begins?
      ─▶ versions and rows of the batch, in bulk ─▶ gate ─▶ fold
      ─▶ rows, versions, offsets, in bulk ─▶ the caller commits

Rows and offsets move together or not at all: exactly once. Whoever comes with a batch that does not
begin at the stored offset (a stale owner of the queue, a message delivered twice) changes nothing.

Sits between: the live runner and the rebuild, which own the transaction, and the pure cores. Must
never know a subscription.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Table, Text, any_, bindparam, delete, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._domain.stream import EventStream
from headrace._projecting.folding import find_touches, fold
from headrace._projecting.gate import Gap, Verdict, VersionGate
from headrace._projecting.generations import lock_state
from headrace._projecting.projection import Projection
from headrace._projecting.tables import values_of
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.serialization import Serializer
from headrace.stores.tables import projection_offsets, projection_versions
from headrace.transports.base import Incoming, QueueId

__all__ = [
    "Applied",
    "Batch",
    "MissingReader",
    "Moved",
    "Switched",
    "Target",
    "apply_batch",
    "decode_batch",
    "read_offsets",
    "write_offsets",
    "write_rows",
    "write_versions",
]

R = TypeVar("R", bound=BaseModel)

# Reads versions after the second argument up to and including the third of an aggregate.
MissingReader = Callable[[str, int, int], Awaitable[Sequence[EventStream]]]

# Values in one IN list; far below what SQLite (32,766) and PostgreSQL (32,767) bind at once.
_IN_LIST_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Generic[R]):
    """Where batches go: one generation of one projection.

    Attributes:
        projection: whose folds run.
        generation: of this number.
        table: its rows.
    """

    projection: Projection[R]
    generation: int
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Decoded messages, to be applied whole.

    Attributes:
        streams: in delivery order, without rejections.
        begin: per queue the offset that must be stored now; None: none is stored yet.
        end: per queue the offset to store.
    """

    streams: Sequence[EventStream]
    begin: Mapping[QueueId, int | None]
    end: Mapping[QueueId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The batch is in the transaction; `rows` were written or deleted."""

    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Nothing was written: the stored offsets, given here, are not where the batch begins."""

    offsets: Mapping[QueueId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """Nothing was written: this generation is live now, not the batch's."""

    generation: int


def decode_batch(
    messages: Iterable[Incoming], positions: Mapping[QueueId, int | None], serializer: Serializer
) -> Batch:
    """Decodes messages into a batch that begins at the given positions.

    Raises:
        ProjectionError: a message does not decode; names its place.
    """
    streams: list[EventStream] = []
    end: dict[QueueId, int] = {}
    for message in messages:
        end[message.queue] = message.offset + 1
        if message.headers.get("kind") == "rejection":
            continue
        try:
            stream = serializer.decode_stream(message.body)
        except (SerializationError, UnknownMessageType) as error:
            topic, number = message.queue
            raise ProjectionError(
                f"the event message at {topic}/{number} offset {message.offset}"
                f" (aggregate {message.key}) does not decode: {error}"
            ) from error
        if stream.version is not None:
            streams.append(stream)
    return Batch(streams=streams, begin={queue: positions.get(queue) for queue in end}, end=end)


async def apply_batch(
    connection: AsyncConnection, target: Target[R], batch: Batch, *, missing: MissingReader
) -> Applied | Moved | Switched:
    """Folds a batch into a generation, within the caller's write transaction.

    The generation is the live one or the shadow of the rebuild under way. Unless the answer is
    `Applied`, nothing was written. The batch is durable when the caller's commit has returned.

    Args:
        connection: in a transaction that can write.
        target: the generation.
        batch: what to apply.
        missing: reads the streams that a gap lacks from the event store.

    Raises:
        ProjectionError: a fold failed, a gap cannot be filled, or the live generation has other
            columns than this projection.
    """
    name, generation = target.projection.name, target.generation
    state = await lock_state(connection, name)
    if generation == state.generation:
        if state.fingerprint != target.projection.shape.fingerprint:
            raise ProjectionError(
                f"projection {name}: generation {generation} was built with other fields than"
                f" {target.projection.row.__name__} has here; run the code it was built with"
            )
    elif generation != state.rebuild_generation:
        return Switched(generation=state.generation)
    stored = await read_offsets(connection, name, generation)
    if any(stored.get(queue) != offset for queue, offset in batch.begin.items()):
        return Moved(offsets=stored)
    gate = VersionGate(await _read_versions(connection, target, batch.streams))
    streams = await _pass_gate(gate, target, batch.streams, missing)
    touches = find_touches(target.projection, streams)
    rows = await _read_rows(connection, target, {touch.key for touch in touches})
    changes = fold(target.projection, rows, touches)
    await write_rows(connection, target, changes)
    await write_versions(connection, target, gate.moved)
    await write_offsets(connection, target, batch.end)
    return Applied(rows=len(changes))


async def read_offsets(
    connection: AsyncConnection, name: str, generation: int
) -> dict[QueueId, int]:
    """Returns the next offset per queue of a generation."""
    columns = projection_offsets.c
    found = await connection.execute(
        select(columns.topic, columns.queue_id, columns.next_offset).where(
            columns.name == name, columns.generation == generation
        )
    )
    return {(topic, queue_id): offset for topic, queue_id, offset in found}


async def write_offsets(
    connection: AsyncConnection, target: Target[Any], offsets: Mapping[QueueId, int]
) -> None:
    """Stores the next offset per queue, in place of what was stored."""
    place = {"name": target.projection.name, "generation": target.generation}
    values = [
        {**place, "topic": topic, "queue_id": queue_id, "next_offset": offset}
        for (topic, queue_id), offset in offsets.items()
    ]
    await _upsert(connection, projection_offsets, values)


async def write_versions(
    connection: AsyncConnection, target: Target[Any], versions: Mapping[str, int]
) -> None:
    """Stores the last version per aggregate, in place of what was stored."""
    place = {"name": target.projection.name, "generation": target.generation}
    values = [
        {**place, "aggregate_id": aggregate_id, "version": version}
        for aggregate_id, version in versions.items()
    ]
    await _upsert(connection, projection_versions, values)


async def write_rows(
    connection: AsyncConnection, target: Target[R], changes: Mapping[str, R | None]
) -> None:
    """Writes the new row of each key, and deletes the row of each key that is None."""
    values = [values_of(row) for row in changes.values() if row is not None]
    await _upsert(connection, target.table, values)
    gone = [{"gone": key} for key, row in changes.items() if row is None]
    if gone:
        key = target.table.c[target.projection.key]
        await connection.execute(delete(target.table).where(key == bindparam("gone")), gone)


async def _upsert(connection: AsyncConnection, table: Table, values: list[dict[str, Any]]) -> None:
    if not values:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table)
    key = list(table.primary_key.columns)
    others = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    if others:
        statement = statement.on_conflict_do_update(index_elements=key, set_=others)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=key)
    await connection.execute(statement, values)


async def _read_versions(
    connection: AsyncConnection, target: Target[Any], streams: Sequence[EventStream]
) -> dict[str, int]:
    columns = projection_versions.c
    versions: dict[str, int] = {}
    for ids in _chunks({stream.aggregate_id for stream in streams}):
        found = await connection.execute(
            select(columns.aggregate_id, columns.version).where(
                columns.name == target.projection.name,
                columns.generation == target.generation,
                _is_in(connection, columns.aggregate_id, ids),
            )
        )
        versions.update((aggregate_id, version) for aggregate_id, version in found)
    return versions


async def _read_rows(
    connection: AsyncConnection, target: Target[R], keys: set[str]
) -> dict[str, R | None]:
    projection, key = target.projection, target.table.c[target.projection.key]
    names = target.table.columns.keys()
    rows: dict[str, R | None] = {}
    for some in _chunks(keys):
        found = await connection.execute(select(target.table).where(_is_in(connection, key, some)))
        for values in found:
            row = projection.shape.load(dict(zip(names, values, strict=True)))
            rows[getattr(row, projection.key)] = row
    return rows


async def _pass_gate(
    gate: VersionGate,
    target: Target[Any],
    streams: Iterable[EventStream],
    missing: MissingReader,
) -> list[EventStream]:
    passed: list[EventStream] = []
    for stream in streams:
        verdict = _offer(gate, stream)
        if isinstance(verdict, Gap):
            passed += await _fill(gate, target, stream, verdict, missing)
            verdict = _offer(gate, stream)
        if verdict is Verdict.PASS:
            passed.append(stream)
    return passed


def _offer(gate: VersionGate, stream: EventStream) -> Verdict | Gap:
    assert stream.version is not None, "rejections are left out of batches"
    return gate.offer(stream.aggregate_id, stream.version)


async def _fill(
    gate: VersionGate,
    target: Target[Any],
    stream: EventStream,
    gap: Gap,
    missing: MissingReader,
) -> list[EventStream]:
    found = await missing(stream.aggregate_id, gap.after_version, gap.to_version)
    filled = [late for late in found if _offer(gate, late) is Verdict.PASS]
    if len(filled) != gap.to_version - gap.after_version:
        raise ProjectionError(
            f"projection {target.projection.name}: versions {gap.after_version + 1} to"
            f" {gap.to_version} of {stream.aggregate_type} {stream.aggregate_id} did not come and"
            " are not all in the event store"
        )
    return filled


def _is_in(
    connection: AsyncConnection, column: ColumnElement[str], values: list[str]
) -> ColumnElement[bool]:
    if connection.dialect.name == "sqlite":
        return column.in_(values)
    # One statement for any number of values, which PostgreSQL then parses once.
    return column == any_(literal(values, postgresql.ARRAY(Text)))


def _chunks(values: Iterable[str]) -> Iterable[list[str]]:
    remaining = iter(values)
    while chunk := list(islice(remaining, _IN_LIST_MAX)):
        yield chunk
