"""
Events as typed DataFrames: one per event type, its fields as columns next to the struct `context`.

    events = read_events(spark, "samples.bank:app", broker="127.0.0.1:9876")
    events.of(Deposited).groupBy("context.aggregate_id").sum("amount")

Each version of an aggregate comes once and in the order of its queue. Upcasters bring old versions
up to date, and the models' rules hold. The model decides the types of columns:

    str, int, float, bool        string, bigint, double, boolean
    Decimal                      decimal(38,18)
    date, datetime               date, timestamp
    anything else                string: as JSON

Used by notebooks and jobs, which bring a session; uses `executor.event_reader`. It writes nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pyspark.sql import DataFrame, SparkSession

from headrace.app import load_app
from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError, ProjectionError
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.archive import check_whole
from headrace.spark.executor.decode import DECIMAL_PLACES_MAX, fields_of
from headrace.spark.executor.event_reader import (
    EVENT,
    UNKNOWN,
    ChosenType,
    Reading,
    column_of,
    context_column,
    read_typed,
)
from headrace.spark.executor.fold import MISSING, RECORD_SCHEMA, TALLY, UNREAD, Batches
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.streams import read_streams
from headrace.spark.executor.typed_streams import type_streams
from headrace.spark.session import described
from headrace.spark.tasks import by_key, divide_plan, plan_events
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice, plan_slices
from headrace_mq.spark.reader import rarely_collecting

__all__ = ["EventReport", "TypedEvents", "chosen_type", "read_events", "typed_columns"]

_CONVERSIONS: Final[Mapping[ColumnKind | None, str]] = {
    ColumnKind.DECIMAL: f"cast(%s as decimal(38,{DECIMAL_PLACES_MAX}))",
    ColumnKind.DATE: "date_from_unix_date(%s)",
    ColumnKind.TIMESTAMP: "timestamp_micros(%s)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReport:
    """What a reader found in the topic.

    Attributes:
        events: events in the streams that were read, each once.
        duplicates: streams that were in the topic again.
        gaps: places where a version came before an earlier one.
        filled: streams that the topic lacked and the event store had.
        missing: aggregates with versions that are nowhere; their later events are left out.
        unknown: the number of events of each name and version that the application lacks.
        left_out: aggregates with a stream that does not decode, each with the reason; their later
            events are left out.
    """

    events: int = 0
    duplicates: int = 0
    gaps: int = 0
    filled: int = 0
    missing: tuple[str, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


class TypedEvents:
    """The events of an application, as far as its topic reached when this was made.

    Args:
        spark: a session of any kind.
        plan: what to read.
        incomplete: as for `read_events`.
    """

    def __init__(
        self, spark: SparkSession, plan: FoldPlan, *, incomplete: Literal["fail", "report"]
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._fail = incomplete == "fail"

    def of(self, event_type: type[DomainEvent]) -> DataFrame:
        """Returns the events of exactly this type, read again by every action.

        Raises:
            DefinitionError: the type has a field called `context`.
        """
        columns = typed_columns(event_type)
        frame = self._read(Reading(types=(chosen_type(event_type),), go_around=True))
        lacking = f"kind in ('{MISSING}', '{UNKNOWN}', '{UNREAD}')"
        refused = "cast(raise_error(concat('the events are not complete: ', key)) as boolean)"
        wanted = f"kind = '{EVENT}'"
        if self._fail:
            wanted = f"case when {lacking} then {refused} else {wanted} end"
        return frame.where(wanted).selectExpr(*columns)

    def report(self) -> EventReport:
        """Reads events of all types once, and reports what it found."""
        kinds = (TALLY, MISSING, UNKNOWN, UNREAD)
        types = load_app(self._plan.app).serializer.events.types.values()
        reading = Reading(
            types=tuple(map(chosen_type, types)), context=(), go_around=True, rows=False
        )
        told = self._read(reading).where(f"kind in {kinds}")
        found: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
        for kind, key, number in told.select("kind", "key", "number").collect():
            found[kind][key] += number
        return EventReport(
            **found[TALLY],
            missing=tuple(sorted(found[MISSING])),
            unknown=dict(found[UNKNOWN]),
            left_out=tuple(sorted(found[UNREAD])),
        )

    def _read(self, reading: Reading) -> DataFrame:
        plan = self._plan

        def read(batches: Batches) -> Batches:
            with rarely_collecting():
                yield from read_typed(plan, reading, batches)

        def bring(batches: Batches) -> Batches:
            with rarely_collecting():
                yield from read_streams(plan, batches)

        def type_brought(batches: Batches) -> Batches:
            with rarely_collecting():
                yield from type_streams(plan, reading, batches)

        count = len(plan.tasks)
        tasks = self._spark.range(0, count, 1, max(count, 1))
        if plan.together:
            streams = by_key(tasks.mapInArrow(bring, RECORD_SCHEMA), count)
            return streams.mapInArrow(type_brought, reading.schema)
        return tasks.mapInArrow(read, reading.schema)


def read_events(
    spark: SparkSession,
    app: str,
    *,
    broker: str,
    event_store_url: str | None = None,
    incomplete: Literal["fail", "report"] = "fail",
) -> TypedEvents:
    """Captures where an application's event topic ends, and returns its events up to there.

    Args:
        spark: a session of any kind.
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        broker: its address, or a Kafka cluster's, as this process and every executor reach it.
        event_store_url: fills gaps of the event topic, and recognises foreign messages; without it every
            message of the topic is trusted.
        incomplete: "fail": the job fails at an event that the application does not know, a stream that
            does not decode, or versions that are nowhere; "report": these are left out, and `report`
            names them.

    Raises:
        ProjectionError: the broker is away, or has no such topic; or the topic was trimmed.
    """

    def whole(held: Sequence[QueueRange]) -> Sequence[QueueSlice]:
        check_whole(held)
        return plan_slices(held, starting={})

    plan = plan_events(app, whole, broker=broker, event_store_url=event_store_url)
    try:
        with described(spark, f"headrace read_events {app}: look for keys in several queues"):
            plan = divide_plan(spark, plan)
    except MessageQueueError as error:
        raise ProjectionError(f"the events of {app}: {error}") from error
    return TypedEvents(spark, plan, incomplete=incomplete)


def chosen_type(event_type: type[DomainEvent]) -> ChosenType:
    """Returns an event's type with all of its fields, for a `Reading`."""
    return ChosenType(
        name=event_type.message_name,
        version=event_type.message_version,
        fields=fields_of(event_type),
    )


def typed_columns(event_type: type[DomainEvent]) -> list[str]:
    """Returns the expressions that make an event's own columns of what `reading` yields.

    Raises:
        DefinitionError: the type has a field called `context`.
    """
    if "context" in event_type.model_fields:
        raise DefinitionError(
            f"{event_type.__name__} has a field called context, which is the name of a column of every"
            " event; rename the field"
        )
    parts = []
    for name in Reading(types=()).context:
        column = f"`{context_column(name)}`"
        parts += [f"'{name}'", f"timestamp_micros({column})" if name == "recorded_at" else column]
    columns = [f"named_struct({', '.join(parts)}) as context"]
    for each in fields_of(event_type):
        text = _CONVERSIONS.get(each.kind, "%s") % f"`{column_of(each)}`"
        columns.append(f"{text} as `{each.name}`")
    return columns
