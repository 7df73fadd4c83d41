"""
The Spark job of a large micro-batch: its streams onto the rows and versions that are stored.

    keyed by aggregate  streams + versions + rows ─▶ fold_aggregates
    keyed otherwise     streams + versions ─▶ route_aggregates ─▶ touches + rows ─▶ fold_keys

Only what the batch touches is looked up. Used by `continuous`, which hands it to the `sink` of a database; runs
`executor.fold` on executors. It must not know a database itself.
"""

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.errors import ProjectionError
from headrace.spark.executor.aggregates import fold_aggregates, route_aggregates
from headrace.spark.executor.fold import (
    RECORD_ARROW_SCHEMA,
    RECORD_SCHEMA,
    TOUCH,
    Record,
    batched,
    fold_keys,
)
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.failures import SPARK_ERRORS, reason_of
from headrace.spark.job import Folded, map_records, read_result
from headrace.spark.tasks import by_key

__all__ = ["StoredLookup", "fold_increment"]


class StoredLookup(Protocol):
    """What is stored of aggregates and of rows, as records."""

    def versions(self, aggregates: Iterable[str]) -> list[Record]:
        """Returns the last version of each aggregate that has one."""
        ...

    def rows(self, keys: Iterable[str]) -> list[Record]:
        """Returns the row of each key that has one."""
        ...


def fold_increment(
    streams: DataFrame, plan: FoldPlan, known: StoredLookup, *, keyed_by_aggregate: bool
) -> Folded:
    """Folds streams onto what is known, and brings the result here; blocks.

    Args:
        streams: as records, each under its aggregate.
        plan: names the application and the projection; its slices, where the streams came from.
        known: looks up what is stored.
        keyed_by_aggregate: whether a row's events are all of one aggregate.

    Raises:
        ProjectionError: a fold failed, versions are missing, or an executor could not do its part.
    """
    try:
        aggregates = _keys(streams)
        if keyed_by_aggregate:
            base = _frame(streams, [*known.versions(aggregates), *known.rows(aggregates)])
            return _fetch(plan, map_records(by_key(streams.union(base)), fold_aggregates, plan))
        base = _frame(streams, known.versions(aggregates))
        # Read twice, once for its keys: routing must not run twice.
        routed = map_records(by_key(streams.union(base)), route_aggregates, plan).persist()
        try:
            rows = _frame(streams, known.rows(_keys(routed.where(f"kind = '{TOUCH}'"))))
            return _fetch(plan, map_records(by_key(routed.union(rows)), fold_keys, plan))
        finally:
            routed.unpersist()
    except SPARK_ERRORS as error:
        raise ProjectionError(
            f"projection {plan.projection}: the Spark job failed: {reason_of(error)}"
        ) from error


def _keys(frame: DataFrame) -> list[str]:
    keys: list[str] = frame.select("key").distinct().toArrow()["key"].to_pylist()
    return keys


def _frame(streams: DataFrame, records: list[Record]) -> DataFrame:
    table = pa.Table.from_batches(batched(records), schema=RECORD_ARROW_SCHEMA)
    return streams.sparkSession.createDataFrame(table, RECORD_SCHEMA)


def _fetch(plan: FoldPlan, frame: DataFrame) -> Folded:
    folded = read_result(plan, frame.select("kind", "key", "number", "data").toArrow())
    # Offsets move on with each batch: what is left out here would be gone without a word.
    folded.require_all(plan.projection)
    return folded
