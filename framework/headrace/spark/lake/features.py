"""
A table of features for machine learning: the row of a projection, as it was at given times.

    labels (key, as_of) ─▶ the events of these keys that were recorded before ─▶ fold ─▶ a row each

A model that is trained on it has seen nothing that was recorded at a label's time or later. Used by jobs
and notebooks, which bring a session; uses the rules of the live projection.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.app import load_app
from headrace.errors import DefinitionError, ProjectionError
from headrace.projections.definition.fold import raise_poisoned
from headrace.spark.executor.fold import (
    MISSING,
    TOUCH,
    UNREAD,
    Batches,
    FoldWork,
    route_slices,
)
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.streams import read_streams, route_together
from headrace.spark.failures import reason_of
from headrace.spark.job import map_records
from headrace.spark.lake.as_of import RowsAsOf
from headrace.spark.lake.columns import rows_to_arrow, spark_columns
from headrace.spark.lake.increment import divided, plan_increment
from headrace.spark.tasks import by_key
from headrace_mq.spark.reader import rarely_collecting

__all__ = ["features"]

_LABEL: Final = "label"
_AS_OF: Final = "as_of"
# Rows of one Arrow batch, as for the data source.
_BATCH_ROWS: Final = 32_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)


def features(
    spark: SparkSession,
    app: str,
    projection_name: str,
    labels: DataFrame,
    *,
    broker: str,
    event_store_url: str | None = None,
) -> DataFrame:
    """Returns, for each label, the row that its key had from events recorded strictly before its time.

    Args:
        spark: a session of any kind.
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        projection_name: of the projection, whose row model names the features.
        labels: has the columns `key` (string: of a row) and `as_of` (timestamp); others are ignored.
        broker: `host:port`, as this process and every executor reach it.
        event_store_url: fills gaps of the event topic, and knows foreign messages; without it all that
            stands in the topic is believed.

    Returns:
        The column `as_of`, and those of the row model, once per key and time. Where there was no row,
        all but the key are null. It is read again by every action, up to the same offsets.

    Raises:
        ProjectionError: the broker is away, or labels lack a column.
        DefinitionError: the row model has a field called `as_of`.
    """
    projection = load_app(app).projection(projection_name)
    names = [field.name for field in projection.shape.fields]
    if _AS_OF in names:
        raise DefinitionError(
            f"projection {projection_name} has a field called {_AS_OF}, which is the name of a column of"
            " every table of features; rename the field"
        )
    if not {"key", _AS_OF} <= set(labels.columns):
        raise ProjectionError(
            f"labels need the columns key and {_AS_OF}, and have {', '.join(labels.columns)}"
        )
    increment = plan_increment(
        app,
        broker=broker,
        event_store_url=event_store_url,
        start=lambda _topic, _queues: {},
        projection=projection_name,
    )
    try:
        wanted = labels.selectExpr("key", f"unix_micros({_AS_OF}) as number").distinct()
        plan = divided(spark, increment.plan, onto=False)
        touches = _touches(spark, plan, wanted)
    except PySparkException as error:
        raise ProjectionError(f"projection {projection_name}: {reason_of(error)}") from error
    told = wanted.selectExpr(
        f"'{_LABEL}' as kind",
        "key",
        "cast(-1 as bigint) as moment",
        "0 as queue",
        "cast(0 as bigint) as offset",
        "cast(0 as bigint) as turn",
        "number",
        "cast(null as binary) as data",
    )

    def fold(batches: Batches) -> Batches:
        with rarely_collecting():
            yield from fold_as_of(plan, batches)

    schema = ", ".join([f"{_AS_OF} timestamp", *spark_columns(projection)])
    return by_key(touches.union(told)).mapInArrow(fold, schema)


def _touches(spark: SparkSession, plan: FoldPlan, wanted: DataFrame) -> DataFrame:
    """Returns the events that touch wanted keys, each version of an aggregate once."""
    count = len(plan.tasks)
    places = spark.range(0, count, 1, max(count, 1))
    if plan.together:
        routed = map_records(
            by_key(map_records(places, read_streams, plan), count), route_together, plan
        )
    else:
        routed = map_records(places, route_slices, plan)
    lacking = f"kind in ('{MISSING}', '{UNREAD}')"
    refused = "cast(raise_error(concat('the events are not complete: ', key)) as boolean)"
    found = routed.where(f"case when {lacking} then {refused} else kind = '{TOUCH}' end")
    return found.join(wanted.select("key").distinct(), "key", "left_semi").select(*routed.columns)


def fold_as_of(plan: FoldPlan, batches: Batches) -> Batches:
    """Folds sorted touches, each key's behind its labels; yields a row per label.

    Raises:
        ProjectionError: a fold raised, or a value does not fit its column.
    """
    with closing(FoldWork(plan)) as work:
        projection = work.projection
        names = [field.name for field in projection.shape.fields]
        times: list[datetime] = []
        rows: list[tuple[Any, ...]] = []
        for key, records in groupby(_records(batches), itemgetter(1)):
            for time, row in _as_of(work, records):
                times.append(_EPOCH + time * _US)
                values = dict.fromkeys(names) if row is None else row.__dict__
                rows.append(tuple((values | {projection.key: key})[name] for name in names))
            if len(rows) >= _BATCH_ROWS:
                yield from _batches(work, times, rows)
                times, rows = [], []
        yield from _batches(work, times, rows)


def _records(batches: Batches) -> Iterator[tuple[str, str, int, bytes]]:
    for batch in batches:
        columns = (batch[name].to_pylist() for name in ("kind", "key", "number", "data"))
        yield from zip(*columns, strict=True)


def _as_of(work: FoldWork, records: Iterable[tuple[str, str, int, bytes]]) -> list[tuple[int, Any]]:
    times: list[int] = []
    rows: RowsAsOf[Any] | None = None
    for kind, key, number, data in records:
        if kind == _LABEL:
            times.append(number)
            continue
        if rows is None:
            rows = RowsAsOf(times)
        event, context, rule = work.touches.read(number, data)
        fold = partial(_next_row, rule.next_row, event=event, context=context, key=key)
        try:
            rows.take((context.recorded_at - _EPOCH) // _US, fold)
        except Exception as error:  # noqa: BLE001 - raised as a ProjectionError
            raise_poisoned(work.projection, event, context, error)
    return (RowsAsOf(times) if rows is None else rows).rows()


def _next_row(next_row: Any, row: Any, *, event: Any, context: Any, key: str) -> Any:
    return next_row(row, event, context, key)


def _batches(work: FoldWork, times: list[datetime], rows: list[tuple[Any, ...]]) -> Batches:
    table = rows_to_arrow(work.projection, rows)
    moments = pa.array(times, pa.timestamp("us", tz="UTC"))
    yield from table.add_column(0, _AS_OF, moments).to_batches()
