"""
The rows of a projection as a Delta table: the same definition as live, changed by key.

    topic from the table's offsets on ─▶ fold onto the rows it touches ─▶ versions ─▶ MERGE, offsets

Versions of aggregates, which tell what was folded, are a table of their own in `_versions`. They are
written before the rows. A run that was killed between the two finds versions that are ahead, and goes back
to those of its rows: Delta keeps earlier versions of a table. Used by jobs, which bring a session; uses
`delta`, and the folds of a rebuild.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from headrace.app import load_app
from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.spark.executor.fold import BASE, VERSION, Record, read_slices
from headrace.spark.job import Folded, map_records, run_fold
from headrace.spark.lake.columns import rows_to_arrow, schema_of
from headrace.spark.lake.events import lake_table
from headrace.spark.lake.increment import Increment, divided, plan_increment
from headrace.spark.rows import RowCodec
from headrace.spark.stream.increment import fold_increment

if TYPE_CHECKING:
    from headrace.spark.lake.delta import LakeTable

__all__ = ["WrittenRows", "write_read_model"]

_VERSIONS: Final = "_versions"
_VERSION_SCHEMA: Final = pa.schema([("aggregate_id", pa.string()), ("version", pa.int64())])
# Rows that are decoded at a time.
_ROWS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """What one run did.

    Attributes:
        messages: offsets of the topic that were read.
        rows: that were added or replaced.
        deleted: rows that are no more.
        start: the first offset of each queue that was read.
        end: the offset of each queue at which the next run begins.
    """

    messages: int
    rows: int
    deleted: int
    start: Mapping[int, int]
    end: Mapping[int, int]


def write_read_model(
    spark: SparkSession,
    app: str,
    projection_name: str,
    path: str,
    *,
    broker: str,
    event_store_url: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WrittenRows:
    """Brings a Delta table to the state of a projection at the end of the event topic.

    The first run folds all events; every other one folds what came since onto the rows that this
    touches. Rows that change pass this process: in the first run, all of them.

    Args:
        spark: a session of any kind.
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        projection_name: of the projection.
        path: of the table.
        broker: `host:port`, as this process and every executor reach it.
        event_store_url: fills gaps of the event topic, and knows foreign messages; without it all that
            stands in the topic is believed.
        storage_options: what delta-rs needs to reach the path, where that is not on this machine.

    Raises:
        ProjectionError: the broker is away; a fold failed or an event does not decode; a value does not
            fit its column; the table is of another row model; or another run has written meanwhile.
        ExtraMissing: the package for Delta is not installed.
    """
    projection = load_app(app).projection(projection_name)
    table = lake_table(path, storage_options)
    if table.version >= 0:
        columns = schema_of(projection)
        if table.columns != columns.names:
            raise ProjectionError(
                f"{path} has the columns {', '.join(table.columns)}, which are not those of the rows of"
                f" {projection_name} now; write into an empty folder"
            )
        # Refuses columns of another type.
        table.create(columns)
    increment = plan_increment(
        app,
        broker=broker,
        event_store_url=event_store_url,
        start=table.offsets,
        check=table.check_topic,
        epochs=table.epochs,
        projection=projection_name,
    )
    told = WrittenRows(
        messages=increment.messages, rows=0, deleted=0, start=increment.start, end=increment.end
    )
    if not increment.messages:
        return told
    versions = lake_table(f"{path.rstrip('/')}/{_VERSIONS}", storage_options)
    target = _LakeRows(spark, projection, table, versions)
    folded = target.fold(increment)
    rows = target.write(folded, increment)
    return replace(told, rows=rows, deleted=len(folded.deleted))


@dataclass(frozen=True, slots=True)
class _LakeRows:
    """Rows and versions of one projection."""

    spark: SparkSession
    projection: Projection[Any]
    rows: "LakeTable"
    versions: "LakeTable"

    def fold(self, increment: Increment) -> Folded:
        """Folds what came since onto what is there."""
        # A table without offsets has no rows: its first run has not come to its end.
        onto = bool(self.rows.offsets(increment.topic, increment.start))
        plan = divided(self.spark, increment.plan, onto=onto)
        by_aggregate = self.projection.keyed_by_aggregate
        if not onto:
            folded = run_fold(self.spark, plan, keyed_by_aggregate=by_aggregate, base=None)
            folded.require_all(self.projection.name)
            return folded
        count = len(plan.tasks)
        places = self.spark.range(0, count, 1, count)
        streams = map_records(places, read_slices, plan).persist(StorageLevel.DISK_ONLY)
        try:
            known = self._known(increment)
            return fold_increment(streams, plan, known, keyed_by_aggregate=by_aggregate)
        finally:
            streams.unpersist()

    def _known(self, increment: Increment) -> "_Known":
        topic, queues = increment.topic, list(increment.start)
        reached = self.rows.offsets(topic, queues)
        versions = self.versions
        if versions.offsets(topic, queues) != reached:
            versions = versions.at(topic, queues, reached)
        return _Known(self.projection, self.rows, versions)

    def write(self, folded: Folded, increment: Increment) -> int:
        """Writes versions, then rows; returns how many rows."""
        codec: RowCodec[Any] = RowCodec(self.projection)
        values = (codec.values(row) for some in folded.row_chunks(_ROWS_MAX) for row in some)
        rows = rows_to_arrow(self.projection, values)
        topic, end = (increment.topic, increment.identity), increment.end
        columns = [list(folded.versions), list(folded.versions.values())]
        self.versions.create(_VERSION_SCHEMA)
        versions = pa.table(columns, schema=_VERSION_SCHEMA)
        self.versions.merge(versions, [], "aggregate_id", topic, end, increment.epochs)
        self.rows.create(rows.schema)
        self.rows.merge(rows, folded.deleted, self.projection.key, topic, end, increment.epochs)
        return len(rows)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is stored, looked up by key; a `StoredLookup`."""

    projection: Projection[Any]
    stored_rows: "LakeTable"
    stored_versions: "LakeTable"

    def versions(self, aggregates: Iterable[str]) -> list[Record]:
        found = self.stored_versions.rows("aggregate_id", aggregates, _VERSION_SCHEMA)
        ids, versions = (column.to_pylist() for column in found.columns)
        return [
            Record.known(VERSION, aggregate_id, number=version)
            for aggregate_id, version in zip(ids, versions, strict=True)
        ]

    def rows(self, keys: Iterable[str]) -> list[Record]:
        return list(self._rows(keys))

    def _rows(self, keys: Iterable[str]) -> Iterator[Record]:
        codec: RowCodec[Any] = RowCodec(self.projection)
        key = self.projection.key
        found = self.stored_rows.rows(key, keys, schema_of(self.projection))
        columns = (column.to_pylist() for column in found.columns)
        place = codec.columns.index(key)
        for values in zip(*columns, strict=True):
            data = codec.encode_values(values)
            yield Record.known(BASE, values[place], data=data)
