"""
Events as typed DataFrames that go on: `read_events` for structured streaming.

    events = read_event_stream(spark, "samples.bank:app", broker="127.0.0.1:9876")
    events.of(Deposited).writeStream.format("parquet").option("checkpointLocation", …).start(…)

The columns are those of `analysis.events`. Each version of an aggregate comes once and after the one before it,
over micro-batches and restarts, because the last version of each aggregate is in the query's state. Used by
notebooks and jobs, which bring a session. It writes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from headrace.domain.message import DomainEvent
from headrace.spark.analysis.events import chosen_type, typed_columns
from headrace.spark.executor.doubts import drop_strangers
from headrace.spark.executor.event_reader import EVENT, Reading
from headrace.spark.executor.fold import Batches
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.job import map_records
from headrace.spark.stream.batch import MicroBatch
from headrace.spark.stream.followed_topic import WholeTopic
from headrace.spark.stream.version_state import (
    PASSED_SCHEMA,
    STATE_SCHEMA,
    gate_versions,
    type_passed,
)
from headrace.spark.tasks import plan_events
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice
from headrace_mq.spark.reader import rarely_collecting

__all__ = ["TypedEventStream", "read_event_stream"]

# Messages of a micro-batch, as of `follow`.
BATCH_MESSAGES_MAX: Final = 100_000


class TypedEventStream:
    """The events of an application, from the first one on and without an end.

    Args:
        spark: a session of any kind.
        plan: what to read.
        batch_max: messages of a micro-batch, at most.
    """

    def __init__(self, spark: SparkSession, plan: FoldPlan, *, batch_max: int) -> None:
        self._spark = spark
        self._plan = plan
        self._batch_max = batch_max

    def of(self, event_type: type[DomainEvent]) -> DataFrame:
        """Returns the events of exactly this type, as a stream; its columns are those of a batch.

        A query without a checkpoint fails, before it reads, where the topic's first messages were trimmed.

        Raises:
            DefinitionError: the type has a field called `context`.
        """
        plan, columns = self._plan, typed_columns(event_type)
        reading = Reading(types=(chosen_type(event_type),))

        def gate(key: tuple[str], frames: Iterable[Any], state: Any) -> Iterator[Any]:
            yield from gate_versions(plan, key[0], frames, state)

        def type_all(batches: Batches) -> Batches:
            with rarely_collecting():
                yield from type_passed(plan, reading, batches)

        self._spark.dataSource.register(WholeTopic)
        source = self._spark.readStream.format(WholeTopic.name()).options(
            broker=plan.broker,
            topic=plan.slices[0].queue.topic,
            maxRecordsPerBatch=str(self._batch_max),
        )
        streams = MicroBatch(source.load()).streams()
        if plan.seal is not None:
            streams = map_records(streams, drop_strangers, plan)
        passed = streams.groupBy("key").applyInPandasWithState(
            gate, PASSED_SCHEMA, STATE_SCHEMA, "append", "NoTimeout"
        )
        typed = passed.mapInArrow(type_all, reading.schema)
        return typed.where(f"kind = '{EVENT}'").selectExpr(*columns)


def read_event_stream(
    spark: SparkSession,
    app: str,
    *,
    broker: str,
    event_store_url: str | None = None,
    batch_max: int = BATCH_MESSAGES_MAX,
) -> TypedEventStream:
    """Returns an application's events as streams, each from the topic's first message on.

    Args:
        spark: a session of any kind.
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        broker: its address, or a Kafka cluster's, as this process and every executor reach it.
        event_store_url: fills gaps of the event topic, and knows foreign messages; without it a version
            that the topic lacks is waited for, and all that stands in the topic is believed.
        batch_max: messages of a micro-batch, at most.

    Raises:
        ProjectionError: the broker is away, or has no such topic.
    """

    def held_now(held: Sequence[QueueRange]) -> Sequence[QueueSlice]:
        # The source asks for itself; of an empty queue, too, this has the name of its topic.
        return [
            QueueSlice(queue=QueueRef(one.topic, one.queue_id), start=one.first, end=one.end)
            for one in held
        ]

    plan = plan_events(app, held_now, broker=broker, event_store_url=event_store_url)
    return TypedEventStream(spark, plan, batch_max=batch_max)
