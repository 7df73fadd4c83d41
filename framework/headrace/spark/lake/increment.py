"""
The typed events that an event topic has beyond given offsets, as one DataFrame of all types.

    event_type   string     the event's registered name
    day          date       on which it was recorded, in UTC
    context      struct     as in `analysis.events`
    Deposited    struct     the fields of a type; null in the rows of other types

Each version of an aggregate comes once, also where earlier increments had it: their last versions
are given. What is not complete fails the job. Used by `events`, which keeps what this makes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from headrace.app import load_app
from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError, ProjectionError
from headrace.events.publisher import event_topic
from headrace.spark.analysis.events import typed_columns
from headrace.spark.executor.decode import fields_of
from headrace.spark.executor.event_reader import (
    EVENT,
    UNKNOWN,
    ChosenType,
    Reading,
    context_column,
    read_typed,
)
from headrace.spark.executor.fold import MISSING, UNREAD, Batches
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.streams import read_streams
from headrace.spark.executor.typed_streams import type_streams
from headrace.spark.held_offsets import next_offsets
from headrace.spark.job import map_records, onto_versions
from headrace.spark.tasks import by_key, divide_plan, plan_events
from headrace.spark.topic import fetch_identity, fetch_ranges
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice, plan_slices
from headrace_mq.spark.reader import rarely_collecting

__all__ = [
    "PARTITIONS",
    "Increment",
    "divided",
    "plan_increment",
    "type_columns",
    "typed_increment",
]

# Columns by which events may be divided into folders.
PARTITIONS: Final = ("event_type", "day")
_OWN: Final = frozenset({*PARTITIONS, "context", "export"})
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment:
    """What is read.

    Attributes:
        plan: its slices begin at the offsets given.
        topic: of the events.
        identity: the UUID that the topic got when it was made; empty: the broker does not know.
        start: the first offset of each queue that the topic has.
        end: the one behind the last.
        epochs: of each queue's brokers before it is read, where they say it.
    """

    plan: FoldPlan
    topic: str
    identity: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """How many offsets there are to read."""
        return sum(self.end.values()) - sum(self.start.values())


def plan_increment(
    app: str,
    *,
    broker: str,
    event_store_url: str | None,
    start: Callable[[str, list[int]], Mapping[int, int]],
    check: Callable[[str, str], None] | None = None,
    epochs: Callable[[str, list[int]], Mapping[int, int]] | None = None,
    projection: str = "",
) -> Increment:
    """Asks, once, what there is beyond given offsets.

    Args:
        app: the application's import path.
        broker: `host:port`.
        event_store_url: fills gaps, and knows foreign messages.
        start: tells of a topic and its queues where to begin; queues it leaves out begin with their
            first message.
        check: takes a topic and its identity, and raises ProjectionError if it is not the one that was
            written up to there.
        epochs: tells of a topic and its queues the epochs of their brokers when they were read up to there.
        projection: the projection's name, where one is folded.

    Raises:
        ProjectionError: the broker is away or has no such topic, or it does not hold these offsets.
    """
    begin: dict[QueueRef, int] = {}
    now: dict[int, int] = {}

    def beyond(held: Sequence[QueueRange]) -> Sequence[QueueSlice]:
        queues = [one.queue_id for one in held]
        known = {} if epochs is None else epochs(topic, queues)
        since = held
        if known:
            asked = {QueueRef(topic, number): epoch for number, epoch in known.items()}
            since = fetch_ranges(broker, [topic], known=asked)
        begin.update(next_offsets(since, start(topic, queues)))
        now.update({one.queue_id: one.epoch for one in held if one.epoch})
        return plan_slices(held, starting=begin)

    topic = event_topic(load_app(app).name)
    plan = plan_events(
        app, beyond, broker=broker, event_store_url=event_store_url, projection=projection
    )
    try:
        identity = fetch_identity(broker, topic)
    except MessageQueueError as error:
        raise ProjectionError(f"the events of {app}: {error}") from error
    if check is not None:
        check(topic, identity)
    first = {queue.queue_id: offset for queue, offset in begin.items()}
    return Increment(
        plan=plan,
        topic=topic,
        identity=identity,
        start=first,
        end=first | {piece.queue.queue_id: piece.end for piece in plan.slices},
        epochs=now,
    )


def divided(spark: SparkSession, plan: FoldPlan, *, onto: bool) -> FoldPlan:
    """Divides a plan among tasks.

    Raises:
        ProjectionError: the broker is away.
    """
    try:
        return divide_plan(spark, plan, onto=onto)
    except MessageQueueError as error:
        raise ProjectionError(f"the events of {plan.app}: {error}") from error


@contextmanager
def typed_increment(
    spark: SparkSession, increment: Increment, known: DataFrame | None
) -> Iterator[DataFrame]:
    """Yields the events of an increment, read again by every action.

    Args:
        spark: a session of any kind.
        increment: what to read; not empty.
        known: columns `aggregate_id` and `version`, several rows of an aggregate allowed: which
            versions earlier increments have; None where there is no earlier one.

    Raises:
        ProjectionError: the broker is away.
        DefinitionError: a type's name is that of a column of all events.
    """
    plan = divided(spark, increment.plan, onto=known is not None)
    types = list(load_app(plan.app).serializer.events.types.values())
    reading = Reading(types=tuple(map(_chosen, types)), go_around=True)

    def read(batches: Batches) -> Batches:
        with rarely_collecting():
            yield from read_typed(plan, reading, batches)

    def type_brought(batches: Batches) -> Batches:
        with rarely_collecting():
            yield from type_streams(plan, reading, batches)

    count = len(plan.tasks)
    places = spark.range(0, count, 1, count)
    if not plan.together:
        yield _complete(places.mapInArrow(read, reading.schema), types)
        return
    streams = map_records(places, read_streams, plan)
    if known is None:
        brought = by_key(streams, count)
        yield _complete(brought.mapInArrow(type_brought, reading.schema), types)
        return
    # Read twice, once for the aggregates there are.
    streams.persist(StorageLevel.DISK_ONLY)
    try:
        versions = known.selectExpr("aggregate_id as key", "version as number")
        touched = versions.join(streams.select("key").distinct(), "key", "left_semi")
        brought = by_key(onto_versions(streams, touched), count)
        yield _complete(brought.mapInArrow(type_brought, reading.schema), types)
    finally:
        streams.unpersist()


def _complete(frame: DataFrame, types: list[type[DomainEvent]]) -> DataFrame:
    """Returns the events of a frame with their own columns; what is lacking fails the job."""
    lacking = f"kind in ('{MISSING}', '{UNKNOWN}', '{UNREAD}')"
    refused = "cast(raise_error(concat('the events are not complete: ', key)) as boolean)"
    wanted = frame.where(f"case when {lacking} then {refused} else kind = '{EVENT}' end")
    return wanted.selectExpr(*_columns(types))


def type_columns(types: list[type[DomainEvent]]) -> list[str]:
    """Returns the name of each type's own column: its registered name, with its version if shared.

    Raises:
        DefinitionError: it is the name of a column that all events have.
    """
    shared = Counter(each.message_name for each in types)
    names = [
        each.message_name
        if shared[each.message_name] == 1
        else f"{each.message_name}_v{each.message_version}"
        for each in types
    ]
    for each, name in zip(types, names, strict=True):
        if name.lower() in _OWN:
            raise DefinitionError(
                f"{each.__name__} is stored as {name}, which is the name of a column of every event;"
                " give it another name"
            )
    return names


def _columns(types: list[type[DomainEvent]]) -> list[str]:
    names = type_columns(types)
    registered = ", ".join(f"'{each.message_name}'" for each in types)
    recorded = f"`{context_column('recorded_at')}`"
    columns = [
        f"element_at(array({registered}), type + 1) as event_type",
        f"date_from_unix_date(cast(floor({recorded} / {_DAY_US}) as int)) as day",
    ]
    for place, (each, name) in enumerate(zip(types, names, strict=True)):
        context, *fields = typed_columns(each)
        if place == 0:
            columns.append(context)
        # A struct without fields is nothing that a file can hold.
        if fields:
            columns.append(f"if(type = {place}, struct({', '.join(fields)}), null) as `{name}`")
    return columns


def _chosen(event_type: type[DomainEvent]) -> ChosenType:
    return ChosenType(
        name=event_type.message_name,
        version=event_type.message_version,
        fields=fields_of(event_type),
    )
