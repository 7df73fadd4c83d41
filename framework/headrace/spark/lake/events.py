"""
The typed events of an application in the lake: written by executors, each once, as Parquet or Delta.

    write_events(spark, "samples.bank:app", "s3a://lake/events", broker="127.0.0.1:9876")
    lake_events(spark, "s3a://lake/events").where("event_type = 'Deposited'").select("Deposited.*")

Offsets are kept in what is written, so the next run writes what came since. Used by jobs, which bring a
session; uses `increment`, which reads, and `parts` or `delta`, which make it visible at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import ExtraMissing, ProjectionError
from headrace.spark.failures import reason_of
from headrace.spark.held_offsets import check_same_topic
from headrace.spark.lake.increment import (
    PARTITIONS,
    Increment,
    plan_increment,
    typed_increment,
)
from headrace.spark.lake.parts import LakeParts

if TYPE_CHECKING:
    from headrace.spark.lake.delta import LakeTable, NewFile

__all__ = ["WrittenEvents", "lake_events", "lake_table", "write_events"]

LakeFormat = Literal["parquet", "delta"]

# Of events that are there: which versions of aggregates they are. All other columns are passed over.
_VERSION_COLUMNS: Final = "context struct<aggregate_id: string, version: bigint>"
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenEvents:
    """What one run wrote.

    Attributes:
        messages: offsets of the topic that were read.
        start: the first one of each queue.
        end: the one of each queue at which the next run begins.
    """

    messages: int
    start: Mapping[int, int]
    end: Mapping[int, int]


def write_events(  # noqa: PLR0913 - what to read, and where and how to write it
    spark: SparkSession,
    app: str,
    path: str,
    *,
    broker: str,
    event_store_url: str | None = None,
    format: LakeFormat = "parquet",  # noqa: A002 # Spark's word for it
    partition_by: Sequence[str] = PARTITIONS,
    storage_options: Mapping[str, str] | None = None,
) -> WrittenEvents:
    """Writes the events of an application's topic that earlier runs have not written.

    A run that is killed leaves nothing to be seen, and the next one writes the same.

    Args:
        spark: a session; with Parquet not one of Spark Connect.
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        path: a folder on any file system that the session reaches.
        broker: `host:port`, as this process and every executor reach it.
        event_store_url: fills gaps of the event topic, and knows foreign messages; without it all that
            stands in the topic is believed.
        format: "parquet": parts with a list of their files; "delta": a Delta table.
        partition_by: columns by which a new folder is divided: `event_type`, `day`, both or none.
        storage_options: what delta-rs needs to reach the path, where that is not on this machine.

    Raises:
        ProjectionError: the broker is away; events are missing, unknown to the application or do not
            decode; the folder holds another topic, or a field with another type; or another run has
            written meanwhile.
        ExtraMissing: format is "delta" and its package is not installed.
    """
    strange = [name for name in partition_by if name not in PARTITIONS]
    if strange:
        raise ProjectionError(
            f"cannot divide events by {strange[0]}; use {' or '.join(PARTITIONS)}"
        )
    target: _Parts | _Delta
    if format == "parquet":
        target = _Parts(spark, path, list(partition_by))
    elif format == "delta":
        target = _Delta(spark, lake_table(path, storage_options), path, list(partition_by))
    else:
        raise ProjectionError(f"there is no format {format}; use 'parquet' or 'delta'")
    increment = plan_increment(
        app,
        broker=broker,
        event_store_url=event_store_url,
        start=target.offsets,
        check=target.check,
        epochs=target.epochs,
    )
    if increment.messages:
        try:
            read = typed_increment(spark, increment, target.versions())
            with _exact_timestamps(spark), read as events:
                target.write(_rebalanced(events, target.partition_by), increment)
        except PySparkException as error:
            raise ProjectionError(f"the events of {app}: {reason_of(error)}") from error
    return WrittenEvents(messages=increment.messages, start=increment.start, end=increment.end)


def lake_events(spark: SparkSession, path: str) -> DataFrame:
    """Returns the events that `write_events` wrote as Parquet, whole parts only.

    A Delta table is read as any other one.

    Raises:
        ProjectionError: there are none.
    """
    frame = LakeParts(spark, path).frame()
    if frame is None:
        raise ProjectionError(f"{path} holds no events; write some with `write_events`")
    return frame


def lake_table(uri: str, storage_options: Mapping[str, str] | None = None) -> "LakeTable":
    """Opens a Delta table, which need not be there.

    Raises:
        ExtraMissing: its package is not installed.
    """
    try:
        from headrace.spark.lake.delta import LakeTable
    except ImportError as error:
        raise ExtraMissing("Delta tables need delta-rs: pip install 'headrace[lake]'") from error
    return LakeTable(uri, storage_options)


class _Parts:
    """Events as parts of Parquet."""

    def __init__(self, spark: SparkSession, path: str, partition_by: list[str]) -> None:
        self._parts = LakeParts(spark, path)
        self._path = path
        last = self._parts.last
        self.partition_by = last.partition_by if last else partition_by

    def offsets(self, topic: str, _queues: list[int]) -> Mapping[int, int]:
        last = self._parts.last
        if last is None:
            return {}
        if last.topic != topic:
            raise ProjectionError(f"{self._path} holds events of {last.topic}, not of {topic}")
        return last.end

    def check(self, topic: str, identity: str) -> None:
        last = self._parts.last
        check_same_topic(topic, last.identity if last else "", identity)

    def epochs(self, _topic: str, _queues: list[int]) -> Mapping[int, int]:
        last = self._parts.last
        return {} if last is None else last.epochs

    def versions(self) -> DataFrame | None:
        return _versions(self._parts.frame(_VERSION_COLUMNS))

    def write(self, events: DataFrame, increment: Increment) -> None:
        self._parts.add(
            events,
            topic=increment.topic,
            identity=increment.identity,
            start=increment.start,
            end=increment.end,
            epochs=increment.epochs,
            partition_by=self.partition_by,
        )


class _Delta:
    """Events as a Delta table, of files that executors write."""

    def __init__(
        self, spark: SparkSession, table: "LakeTable", path: str, partition_by: list[str]
    ) -> None:
        self._spark = spark
        self._table = table
        self._path = path
        self.partition_by = table.partition_by if table.version >= 0 else partition_by

    def offsets(self, topic: str, queues: list[int]) -> Mapping[int, int]:
        return self._table.offsets(topic, queues)

    def check(self, topic: str, identity: str) -> None:
        self._table.check_topic(topic, identity)

    def epochs(self, topic: str, queues: list[int]) -> Mapping[int, int]:
        return self._table.epochs(topic, queues)

    def versions(self) -> DataFrame | None:
        files = [f"{self._path.rstrip('/')}/{below}" for below in self._table.files()]
        return (
            _versions(self._spark.read.schema(_VERSION_COLUMNS).parquet(*files)) if files else None
        )

    def write(self, events: DataFrame, increment: Increment) -> None:
        folder = f"data-{uuid4().hex}"
        place = f"{self._path.rstrip('/')}/{folder}"
        # Before executors write for hours: the table may have to grow, or may not be able to.
        schema = events.schema.json().replace('"nullable":false', '"nullable":true')
        self._table.create(schema, self.partition_by)
        writer = events.write.partitionBy(*self.partition_by)
        writer.option("compression", "zstd").parquet(place)
        files = list(self._written(events, place, folder))
        topic = increment.topic, increment.identity
        self._table.add_files(files, topic, increment.end, increment.epochs)

    def _written(self, events: DataFrame, place: str, folder: str) -> "Iterator[NewFile]":
        from headrace.spark.lake.delta import NewFile

        divided = [f"cast({name} as string) as {name}" for name in self.partition_by]
        # A schema of its own, because there may be no file.
        frame = self._spark.read.schema(events.schema).parquet(place)
        found = frame.selectExpr(
            "_metadata.file_path as path", "_metadata.file_size as size", *divided
        )
        counted = found.groupBy("path", "size", *self.partition_by).count().collect()
        for path, size, *values, rows in counted:
            _, _, below = path.partition(f"/{folder}/")
            partition = dict(zip(self.partition_by, values, strict=True))
            yield NewFile(f"{folder}/{below}", size, rows, partition)


def _rebalanced(events: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Has each folder written by one task, and a large one by more, so that files are few."""
    return events.hint("rebalance", *partition_by) if partition_by else events


def _versions(frame: DataFrame | None) -> DataFrame | None:
    if frame is None:
        return None
    return frame.selectExpr("context.aggregate_id as aggregate_id", "context.version as version")


@contextmanager
def _exact_timestamps(spark: SparkSession) -> Iterator[None]:
    """Has moments written as every reader of Parquet takes them; by default Spark uses an old form."""
    before = spark.conf.get(_TIMESTAMPS)
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMESTAMPS, before or "INT96")
