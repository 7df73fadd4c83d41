"""
One batch of events into one generation of a projection, in one database transaction.

    lock the projection's row ─▶ generation still the one? ─▶ stored offsets where the batch begins?
      ─▶ versions and rows of the batch, in bulk ─▶ gate ─▶ fold
      ─▶ rows, versions, offsets, in bulk ─▶ the caller commits

On PostgreSQL a runner that also wrote the last batch reads none of it again. One statement writes rows,
versions and offsets and checks that the stored offsets are where the batch begins; if they are not,
everything is undone. If each row comes from the events of one aggregate, that statement also takes the
lock, and is the whole transaction.

Rows and offsets change together or not at all, so each event is applied exactly once. A batch that does
not begin at the stored offset changes nothing: a former owner of the queue sent it, or a message was
delivered twice. The functions of `Projection.with_session` write in the same transaction.

Used by the live runner, parked events and rebuilds, which own the transaction.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Session

from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.definition.fold import find_touches, fold, fold_facts, raise_poisoned
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import (
    Moved,
    Switched,
    Target,
    begin_read,
    find_rows,
    find_versions,
    lock,
    replace_offsets,
    store_offsets,
    store_rows,
    store_versions,
)
from headrace.projections.written_cache import Recall
from headrace.serialization import Serializer
from headrace.subjects.hidden import hide_personal
from headrace.subscriptions.foreign import stream_or_none
from headrace.subscriptions.gate import Arrival, Gap, VersionGate
from headrace.subscriptions.outages import claims_outage
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
]

R = TypeVar("R", bound=BaseModel)


# Reads versions after the second argument up to and including the third of an aggregate.
MissingReader = Callable[[str, int, int], Awaitable[Sequence[EventStream]]]
# Runs work in one write transaction, in the thread that the database driver needs, and returns its
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
    """The batch is in the transaction; `rows` were written or deleted, and have these `keys`."""

    rows: int
    keys: Collection[str] = field(default=(), compare=False)


class _Overtaken(Exception):
    """Nothing is written: the stored offsets are not those that this runner left."""


class _Folded(NamedTuple, Generic[R]):
    """A batch after the version gate: streams to fold, how many wait per aggregate, new versions."""

    streams: Sequence[EventStream]
    held: Mapping[str, int]
    versions: dict[str, int]
    rows: dict[str, R | None]
    changes: dict[str, R | None]


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
    messages = list(messages)
    if serializer.cipher is not None:
        serializer.cipher.find_all(message.body for message in messages)
    for message in messages:
        end[message.queue] = message.offset + 1
        if message.headers.get("kind") == "rejection":
            continue
        try:
            stream = stream_or_none(
                serializer.decode_published, message.body, message.queue, message.offset
            )
        except (SerializationError, UnknownMessageType) as error:
            topic, number = message.queue
            raise ProjectionError(
                f"the event message at {topic}/{number} offset {message.offset}"
                f" (aggregate {message.key}) does not decode: {error}"
            ) from error
        if stream is not None and stream.version is not None:
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
    alone: Transact | None = None,
) -> Applied | Moved | Switched:
    """Like `apply_batch`, in transactions that `transact` begins and commits.

    The last of them writes the batch; the ones before it found gaps and wrote nothing. The batch
    is durable on return. What `recall` knows is not read again.

    Args:
        transact: as there is.
        target: the generation.
        batch: what to apply.
        missing: reads the streams that a gap lacks from the event store.
        recall: what this runner wrote last.
        alone: on PostgreSQL, runs work whose every statement is a transaction of its own: one that
            needs no more than `recall` knows takes one round trip instead of four.

    Raises:
        ProjectionError, OtherFields: as `apply_batch`; their text has no personal values.
    """
    try:
        return await _apply_through(transact, target, batch, missing, recall, alone)
    except Exception as error:  # noqa: BLE001 - of users' code; raised again
        told = hide_personal(error, (event for each in batch.streams for event in each.events))
    raise told


async def _apply_through(
    transact: Transact,
    target: Target[R],
    batch: Batch,
    missing: MissingReader,
    recall: Recall[R] | None,
    alone: Transact | None,
) -> Applied | Moved | Switched:
    while True:
        outcome: Applied | Moved | Switched | _Lacking | None = None
        try:
            if alone is not None and recall is not None:
                outcome = await alone(
                    partial(_apply_alone, target=target, batch=batch, recall=recall)
                )
            if outcome is None:
                outcome = await transact(partial(_apply, target=target, batch=batch, recall=recall))
        except Exception:
            # The rows in the cache may be the cause, so the next attempt reads them from the tables.
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
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
    if isinstance(folded, _Lacking):
        return folded
    _store(connection, target, folded, batch.end, left)
    _call_handlers(connection, target.projection, folded.streams)
    for aggregate_id, count in folded.held.items():
        target.parked.hold(connection, aggregate_id, count)
    if recall is not None:
        for aggregate_id in parked:
            versions.pop(aggregate_id, None)
        recall.write(
            batch.end,
            versions | folded.versions,
            folded.rows | folded.changes if _writes_alone(target.projection) else {},
        )
    return Applied(rows=len(folded.changes), keys=folded.changes.keys())


def _apply_alone(
    connection: Connection, *, target: Target[R], batch: Batch, recall: Recall[R]
) -> "Applied | _Lacking | None":
    """Applies a batch by one statement, a transaction of its own; None: it needs a longer one.

    What is not known is read before it, without the lock: of aggregates that are not parked, only
    batches change versions and rows, and one that was quicker is found out by the statement.
    """
    left = recall.offsets_left(target.generation, batch.begin)
    if left is None or batch.taken_up is not None or not _writes_alone(target.projection):
        return None
    versions, parked = _recall_versions(connection, target, batch.streams, recall)
    if parked:
        return None
    recall.trust()
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
    if isinstance(folded, _Lacking):
        return folded
    _store(connection, target, folded, batch.end, left)
    recall.write(batch.end, versions | folded.versions, folded.rows | folded.changes)
    return Applied(rows=len(folded.changes), keys=folded.changes.keys())


def _fold(
    connection: Connection,
    target: Target[R],
    streams: Sequence[EventStream],
    versions: Mapping[str, int],
    parked: Collection[str],
    recall: Recall[R] | None,
) -> "_Folded[R] | _Lacking":
    projection = target.projection
    held: Counter[str] = Counter()
    offers = []
    for place, stream in enumerate(streams):
        assert stream.version is not None, "rejections are left out of batches"
        if stream.aggregate_id in parked:
            held[stream.aggregate_id] += 1
        else:
            offers.append((stream.aggregate_id, stream.version, ((place, stream),)))
    gate = VersionGate(versions)
    passed: list[tuple[int, EventStream]] = []
    looked_at, gap = gate.admit(offers, passed)
    if gap is not None:
        ((place, _),) = offers[looked_at][2]
        return _Lacking(place=place, gap=gap)
    admitted = [stream for _, stream in passed]
    if projection.keyed_by_aggregate:
        rules_for = projection.rules_for
        facts = [
            fact
            for stream in admitted
            if any(rules_for(type(event)) for event in stream.events)
            for fact in stream.contexts()
        ]
        rows = _recall_rows(connection, target, {each.aggregate_id for _, each in facts}, recall)
        changes = fold_facts(projection, rows, facts)
    else:
        touches = find_touches(projection, admitted)
        rows = _recall_rows(connection, target, {touch.key for touch in touches}, recall)
        changes = fold(projection, rows, touches)
    return _Folded(admitted, held, gate.moved, rows, changes)


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
    folded: "_Folded[R]",
    end: Mapping[QueueId, int],
    left: Mapping[QueueId, int] | None,
) -> None:
    if left is None:
        store_rows(connection, target, folded.changes)
        store_versions(connection, target, folded.versions)
        store_offsets(connection, target, end)
    elif not replace_offsets(connection, target, folded.changes, folded.versions, left, end):
        raise _Overtaken


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
    late = [each for each in found if _offer(gate, each) is Arrival.NEXT]
    if len(late) != gap.to_version - gap.after_version:
        raise ProjectionError(
            f"projection {target.projection.name}: versions {gap.after_version + 1} to"
            f" {gap.to_version} of aggregate {aggregate_id} did not come and are not all in the"
            " event store"
        )
    return late


def _offer(gate: VersionGate, stream: EventStream) -> Arrival | Gap:
    assert stream.version is not None, "rejections are left out of batches"
    return gate.offer(stream.aggregate_id, stream.version)


def _call_handlers(
    connection: Connection, projection: Projection[Any], streams: Iterable[EventStream]
) -> None:
    """Calls each handler for each of its events, in order, within the connection's transaction.

    Raises:
        ProjectionError: a handler raised; names the event.
    """
    if not projection.has_handlers:
        return
    # A handler's commit must not end the transaction, which is the batch's.
    with Session(connection, join_transaction_mode="rollback_only") as session:
        for event, context in chain.from_iterable(stream.contexts() for stream in streams):
            try:
                for handler in projection.handlers_for(type(event)):
                    handler(session, event, context)
                session.flush()
            except Exception as error:
                if claims_outage(error):
                    raise
                raise_poisoned(projection, event, context, error)
        session.commit()
