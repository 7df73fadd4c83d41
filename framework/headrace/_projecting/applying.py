"""
One batch of events into one generation of a projection, in one database transaction.

    lock the projection's row ─▶ generation still the one? ─▶ stored offsets where the batch begins?
      ─▶ versions and rows of the batch, in bulk ─▶ gate ─▶ fold
      ─▶ rows, versions, offsets, in bulk ─▶ the caller commits

On PostgreSQL a runner that wrote the last batch too reads nothing of that again: one statement
writes rows, versions and offsets, and finds the offsets where the batch begins, or all is undone.

Rows and offsets move together or not at all: exactly once. Whoever comes with a batch that does not
begin at the stored offset (a stale owner of the queue, a message delivered twice) changes nothing.

Sits between: the live runner and the rebuild, which own the transaction, and the pure cores. Must
never know a subscription.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import Connection, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._domain.stream import EventStream
from headrace._projecting.contents import (
    Moved,
    Switched,
    Target,
    begin_read,
    delete_rows,
    find_rows,
    find_versions,
    lock,
    place_of,
    store_offsets,
    store_rows,
    store_versions,
)
from headrace._projecting.folding import find_touches, fold
from headrace._projecting.gate import Gap, Verdict, VersionGate
from headrace._projecting.handlers import call_handlers
from headrace._projecting.projection import Projection
from headrace._projecting.recall import Recall
from headrace._projecting.statements import (
    write_together,
)
from headrace._projecting.tables import values_of
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.serialization import Serializer
from headrace.stores.tables import projection_letters
from headrace.transports.base import Incoming, QueueId

__all__ = [
    "Applied",
    "Batch",
    "MissingReader",
    "Transact",
    "apply_batch",
    "apply_through",
    "decode_batch",
    "fill_gap",
    "hold",
]

R = TypeVar("R", bound=BaseModel)


# Reads versions after the second argument up to and including the third of an aggregate.
MissingReader = Callable[[str, int, int], Awaitable[Sequence[EventStream]]]
# Runs work in one write transaction, in whatever thread the database is driven from, and returns its
# result; what it wrote is kept unless it raised.
Transact = Callable[[Callable[[Connection], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Decoded messages, to be applied whole.

    Attributes:
        streams: in delivery order, without rejections.
        begin: per queue the offset that must be stored now; None: none is stored yet.
        end: per queue the offset to store.
        taken_up: the parked aggregate whose streams these are; those of others stay where they
            are.
    """

    streams: Sequence[EventStream]
    begin: Mapping[QueueId, int | None]
    end: Mapping[QueueId, int]
    taken_up: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The batch is in the transaction; `rows` were written or deleted."""

    rows: int


class _Overtaken(Exception):
    """Nothing is written: the stored offsets are not those that this runner left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lacking:
    """Nothing was written: before the stream of this place in the batch, versions are missing."""

    place: int
    gap: Gap


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
            stream = serializer.decode_published(message.body)
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
        ProjectionError: a fold failed, or a gap cannot be filled.
        OtherFields: the live generation has other columns than this projection.
    """
    return await apply_through(connection.run_sync, target, batch, missing=missing)


async def apply_through(
    transact: Transact,
    target: Target[R],
    batch: Batch,
    *,
    missing: MissingReader,
    recall: Recall[R] | None = None,
) -> Applied | Moved | Switched:
    """Like `apply_batch`, in transactions that `transact` begins and commits.

    The last of them writes the batch; the ones before it found gaps and wrote nothing. The batch
    is durable on return. What `recall` knows is not read again.
    """
    while True:
        try:
            outcome: Applied | Moved | Switched | _Lacking = await transact(
                partial(_apply, target=target, batch=batch, recall=recall)
            )
        except Exception:
            # Whatever went wrong, what it recalled may have been wrong already: the next one reads.
            if recall is None or not recall.doubt():
                raise
            continue
        if not isinstance(outcome, _Lacking):
            if recall is not None and isinstance(outcome, Applied):
                recall.settle()
            return outcome
        if recall is None or not recall.doubt():
            batch = await _filled(target, batch, outcome, missing)


def _apply(
    connection: Connection, *, target: Target[R], batch: Batch, recall: Recall[R] | None
) -> "Applied | Moved | Switched | _Lacking":
    left = _begin_recalling(connection, target, batch.begin, recall)
    if isinstance(left, Moved | Switched):
        return left
    versions, parked = _recall_versions(connection, target, batch.streams, recall)
    parked.discard(batch.taken_up or "")
    held = Counter(each.aggregate_id for each in batch.streams if each.aggregate_id in parked)
    gate = VersionGate(versions)
    streams: list[EventStream] = []
    for place, stream in enumerate(batch.streams):
        if stream.aggregate_id in held:
            continue
        verdict = _offer(gate, stream)
        if isinstance(verdict, Gap):
            return _Lacking(place=place, gap=verdict)
        if verdict is Verdict.PASS:
            streams.append(stream)
    touches = find_touches(target.projection, streams)
    rows = _recall_rows(connection, target, {touch.key for touch in touches}, recall)
    changes = fold(target.projection, rows, touches)
    _store(connection, target, changes, gate.moved, batch.end, left)
    call_handlers(connection, target.projection, streams)
    hold(connection, target, held)
    if recall is not None:
        for aggregate_id in parked:
            versions.pop(aggregate_id, None)
        recall.write(
            batch.end,
            versions | gate.moved,
            rows | changes if _writes_alone(target.projection) else {},
        )
    return Applied(rows=len(changes))


def _begin_recalling(
    connection: Connection,
    target: Target[R],
    begin: Mapping[QueueId, int | None],
    recall: Recall[R] | None,
) -> Mapping[QueueId, int] | Moved | Switched | None:
    """Begins a batch; returns the offsets that writing has to find, None: they were read."""
    if recall is not None and connection.dialect.name == "postgresql":
        left = recall.offsets_left(target.generation, begin)
        if left is not None:
            recall.trust()
            return lock(connection, target, begin) or left
    stored = begin_read(connection, target, begin)
    if isinstance(stored, Moved | Switched):
        return stored
    if recall is not None:
        recall.expect(target.generation, stored)
    return None


def _store(
    connection: Connection,
    target: Target[R],
    changes: Mapping[str, R | None],
    versions: Mapping[str, int],
    end: Mapping[QueueId, int],
    left: Mapping[QueueId, int] | None,
) -> None:
    if left is None:
        store_rows(connection, target, changes)
        store_versions(connection, target, versions)
        store_offsets(connection, target, end)
        return
    moves = [(*queue, offset, end.get(queue, offset)) for queue, offset in left.items()]
    rows = [values_of(row) for row in changes.values() if row is not None]
    if not write_together(connection, target.table, place_of(target), rows, versions, moves):
        raise _Overtaken
    delete_rows(connection, target, changes)


def _recall_versions(
    connection: Connection,
    target: Target[R],
    streams: Sequence[EventStream],
    recall: Recall[R] | None,
) -> tuple[dict[str, int], set[str]]:
    if recall is None:
        return find_versions(connection, target, {stream.aggregate_id for stream in streams})
    known = recall.versions({stream.aggregate_id for stream in streams})
    unknown = {stream.aggregate_id for stream in streams} - known.keys()
    versions, parked = find_versions(connection, target, unknown)
    # Without a version nothing was applied yet.
    began = dict.fromkeys(unknown, 0)
    return began | versions | known, parked


def _recall_rows(
    connection: Connection, target: Target[R], keys: Collection[str], recall: Recall[R] | None
) -> dict[str, R | None]:
    if recall is None or not _writes_alone(target.projection):
        return find_rows(connection, target, keys)
    known = recall.rows(keys)
    unknown = [key for key in keys if key not in known]
    return known | dict.fromkeys(unknown) | find_rows(connection, target, unknown)


def _writes_alone(projection: Projection[Any]) -> bool:
    """Whether a row changes by batches of its aggregate's queue alone.

    Taking up a letter writes rows without an offset: with other keys, any row may be among them.
    """
    return projection.keyed_by_aggregate and not projection.has_handlers


def hold(connection: Connection, target: Target[Any], held: Mapping[str, int]) -> None:
    """Notes how many more messages of parked aggregates wait behind their letters."""
    columns = projection_letters.c
    for aggregate_id, count in held.items():
        connection.execute(
            update(projection_letters)
            .where(
                columns.name == target.projection.name,
                columns.generation == target.generation,
                columns.aggregate_id == aggregate_id,
            )
            .values(held=columns.held + count)
        )


async def _filled(
    target: Target[Any], batch: Batch, lacking: "_Lacking", missing: MissingReader
) -> Batch:
    """Returns the batch with the streams that it lacks before the one that found the gap."""
    aggregate_id = batch.streams[lacking.place].aggregate_id
    late = await fill_gap(target, aggregate_id, lacking.gap, missing)
    before, after = batch.streams[: lacking.place], batch.streams[lacking.place :]
    return replace(batch, streams=[*before, *late, *after])


async def fill_gap(
    target: Target[Any], aggregate_id: str, gap: Gap, missing: MissingReader
) -> list[EventStream]:
    """Returns the streams of an aggregate that are missing, in order.

    Raises:
        ProjectionError: the event store does not have all of them.
    """
    found = await missing(aggregate_id, gap.after_version, gap.to_version)
    gate = VersionGate({aggregate_id: gap.after_version})
    late = [each for each in found if _offer(gate, each) is Verdict.PASS]
    if len(late) != gap.to_version - gap.after_version:
        raise ProjectionError(
            f"projection {target.projection.name}: versions {gap.after_version + 1} to"
            f" {gap.to_version} of aggregate {aggregate_id} did not come and are not all in the"
            " event store"
        )
    return late


def _offer(gate: VersionGate, stream: EventStream) -> Verdict | Gap:
    assert stream.version is not None, "rejections are left out of batches"
    return gate.offer(stream.aggregate_id, stream.version)
