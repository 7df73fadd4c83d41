"""
The Spark job of a rebuild: which of `executor.fold`'s functions run in which order, and what they made.

Used by `rebuild`, which has a session and a plan; runs `executor.fold` on executors. It works with
a session of any kind, Spark Connect included. It must not know a database.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import expr

from headrace.errors import ProjectionError
from headrace.spark.executor.aggregates import fold_aggregates, route_aggregates
from headrace.spark.executor.event_reader import EVENT, read_typed
from headrace.spark.executor.fold import (
    BASE,
    DELETED,
    FAILED,
    MISSING,
    QUEUE,
    RECORD_SCHEMA,
    ROW,
    STREAM,
    TALLY,
    UNREAD,
    VERSION,
    Batches,
    fold_keys,
    read_slices,
    route_slices,
)
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.slices import fold_slices
from headrace.spark.executor.streams import fold_together, read_streams, route_together
from headrace.spark.executor.typed_streams import type_streams
from headrace.spark.failures import SPARK_ERRORS, reason_of
from headrace.spark.native import NativeFold, TypedFiles, finish_rows
from headrace.spark.progress.queues import Finished
from headrace.spark.result.copy import LEFT_OUT, Copying
from headrace.spark.result.disk import Stored, read_stored
from headrace.spark.result.live_rows import Beginning, read_shares
from headrace.spark.result.output import Ending
from headrace.spark.result.parts import FETCHED, FETCHED_ARROW_SCHEMA, Spool, fetch_parts
from headrace.spark.sql import plain_columns
from headrace.spark.tasks import by_key
from headrace.spark.typed_files import events_in_files, portion_moment, versions_in_files
from headrace_mq.spark.reader import rarely_collecting

__all__ = [
    "Folded",
    "in_two_queues",
    "map_records",
    "onto_versions",
    "read_result",
    "refuses_overflow",
    "run_fold",
    "run_fold_of",
]

# Enough of the aggregates with holes to see what they have in common.
_NAMED_MAX: Final = 5

# Of files that were there when they were checked by the driver.
_LOST: Final = ("FILE_NOT_EXIST", "PATH_NOT_FOUND", "FileNotFoundException")
_EVERYWHERE: Final = (
    "; every Spark executor has to see the folder of exported events under the same path"
)

Step = Callable[[FoldPlan, Batches], Batches]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What a job made.

    Attributes:
        rows: values of each new row, as `RowCodec` encodes them.
        deleted: keys of rows that are no more.
        versions: the new last version of each aggregate.
        counts: `events`, `duplicates`, `gaps` and `filled`; `shares` that tasks copied elsewhere.
            Of what was copied or spooled nothing is here.
        left_out: of aggregates with a stream that does not decode: id, from which offset on, and why.
        queues: what was measured of each queue, as in `RebuildReport`.
        tasks: that have read.
    """

    rows: pa.ChunkedArray
    deleted: list[str]
    versions: dict[str, int]
    counts: Counter[str] = field(default_factory=Counter)
    left_out: tuple[tuple[str, int, str], ...] = ()
    queues: dict[str, dict[str, int]] = field(default_factory=dict)
    tasks: int = 0

    @property
    def foreign(self) -> int:
        """How many messages were passed over: neither sealed by the event store nor in it."""
        return sum(each.get("foreign", 0) for each in self.queues.values())

    def require_all(self, projection: str) -> None:
        """Returns if nothing was left out; for those who have to go on from here.

        Raises:
            ProjectionError: names the first stream that does not decode.
        """
        for _, _, sentence in self.left_out:
            raise ProjectionError(f"projection {projection}: {sentence}")

    def row_chunks(self, size: int) -> Iterator[list[bytes]]:
        """Yields the encoded rows, so many at a time."""
        for start in range(0, len(self.rows), size):
            yield self.rows.slice(start, size).to_pylist()


def run_fold(
    spark: SparkSession,
    plan: FoldPlan,
    *,
    keyed_by_aggregate: bool,
    base: pa.Table | Beginning | Stored | None,
    native: NativeFold | None = None,
    finished: Finished | None = None,
    into: Copying | Spool | None = None,
) -> Folded:
    """Runs the job and brings its result here, or what it counted; blocks.

    Args:
        spark: where it runs.
        plan: what to read and fold.
        keyed_by_aggregate: whether a row's events are all of one aggregate.
        base: rows and versions from before the plan's slices, as records or as what tasks read;
            None to start from zero.
        native: the projection as SQL, used from zero where Spark refuses sums that are too large. If it
            has files, the slices begin where these end, and it is used in any case.
        finished: hears of each queue that was read, except where the projection is run as SQL and queues
            are read whole.
        into: where tasks copy rows, versions and deleted keys, which then do not come here; or
            where they are kept on this process's disk, while a part of them is in memory.

    Raises:
        ProjectionError: a fold failed, versions are missing, or an executor could not do its part;
            the sentence says what and where.
    """
    files = None if native is None else native.files
    if not plan.slices and files is None:
        return Folded(rows=pa.chunked_array([], pa.binary()), deleted=[], versions={})
    last = _ending(plan, into)
    # Where streams are brought together, events of a row have their order by places, not by turns.
    in_order = not (plan.together and keyed_by_aggregate)

    def make() -> DataFrame:
        if native is not None and files is not None:
            found = _with_files(spark, plan, native, files, finished)
            return _aggregated(found, plan, native, last)
        if native is not None and base is None and in_order and refuses_overflow(spark):
            return _aggregated(_read_native(spark, plan, native, finished), plan, native, last)
        return _frame(
            spark,
            plan,
            keyed_by_aggregate=keyed_by_aggregate,
            base=base,
            finished=finished,
            last=last,
        )

    return _result(plan, make, last, into, files=files is not None)


def run_fold_of(read: DataFrame, plan: FoldPlan, *, into: Copying | Spool | None = None) -> Folded:
    """Goes on with what a pass for several projections reads for one of them; else as `run_fold`.

    Args:
        read: rows, versions and tallies; or sorted streams, if the plan brings them together.
        plan: what is read, for a projection with a row per aggregate.
        into: as for `run_fold`.

    Raises:
        ProjectionError: as for `run_fold`.
    """
    last = _ending(plan, into)
    step = fold_together if plan.together else _as_they_are
    return _result(plan, lambda: map_records(read, step, plan, last=last), last, into)


def _as_they_are(_plan: FoldPlan, batches: Batches) -> Batches:
    return batches


def _ending(plan: FoldPlan, into: Copying | Spool | None) -> Ending:
    spool = into if isinstance(into, Spool) else None
    return Ending(
        plan=plan,
        copying=into if isinstance(into, Copying) else None,
        folder=None if spool is None else spool.folder,
        pieces=spool is not None and spool.folder is None,
    )


def _result(
    plan: FoldPlan,
    make: Callable[[], DataFrame],
    last: Ending,
    into: Copying | Spool | None,
    *,
    files: bool = False,
) -> Folded:
    """Runs a job and brings its result here, or what it counted."""
    try:
        frame = make()
        if last.pieces:
            found = fetch_parts(frame)
        else:
            found = iter(frame.select(*FETCHED).toArrow().to_batches())
        if isinstance(into, Spool):
            found = map(into.add, found)
        records = pa.Table.from_batches(found, schema=FETCHED_ARROW_SCHEMA)
    except SPARK_ERRORS as error:
        lost = files and any(word in str(error) for word in _LOST)
        raise ProjectionError(
            f"projection {plan.projection}: the Spark job failed: {reason_of(error)}"
            f"{_EVERYWHERE if lost else ''}"
        ) from error
    return read_result(plan, records)


def _frame(
    spark: SparkSession,
    plan: FoldPlan,
    *,
    keyed_by_aggregate: bool,
    base: pa.Table | Beginning | Stored | None,
    finished: Finished | None,
    last: Ending,
) -> DataFrame:
    count = len(plan.tasks)
    places = spark.range(0, count, 1, count)
    if base is None and plan.together:
        streams = by_key(map_records(places, read_streams, plan, finished), count)
        if keyed_by_aggregate:
            return map_records(streams, fold_together, plan, last=last)
        routed = map_records(streams, route_together, plan)
        return map_records(by_key(routed), fold_keys, plan, last=last)
    if base is None:
        if keyed_by_aggregate:
            return map_records(places, fold_slices, plan, finished, last)
        routed = map_records(places, route_slices, plan, finished)
        return map_records(by_key(routed), fold_keys, plan, last=last)
    streams = map_records(places, read_slices, plan, finished)
    rows, versions = (_known(spark, plan, base, kind) for kind in (BASE, VERSION))
    if keyed_by_aggregate:
        known = streams.union(rows).union(versions)
        return map_records(by_key(known), fold_aggregates, plan, last=last)
    routed = map_records(by_key(streams.union(versions)), route_aggregates, plan)
    return map_records(by_key(routed.union(rows)), fold_keys, plan, last=last)


def _known(
    spark: SparkSession, plan: FoldPlan, base: pa.Table | Beginning | Stored, kind: str
) -> DataFrame:
    if isinstance(base, pa.Table):
        records = base.filter(pc.equal(base["kind"], kind))
        return spark.createDataFrame(records, RECORD_SCHEMA)
    step: Step
    if isinstance(base, Stored):
        stored = replace(base, shares=base.of(kind))
        count, step = len(stored.shares), partial(read_stored, stored)
    else:
        shares = replace(base, shares=base.of(kind))
        count, step = len(shares.shares), partial(read_shares, shares)
    # There is no frame without a partition.
    return map_records(spark.range(0, count, 1, max(count, 1)), step, plan)


def refuses_overflow(spark: SparkSession) -> bool:
    """Whether a sum that is too large is an error in a session, and does not wrap around."""
    return spark.conf.get("spark.sql.ansi.enabled") == "true"


def _read_native(
    spark: SparkSession, plan: FoldPlan, native: NativeFold, finished: Finished | None
) -> DataFrame:
    """Returns the events of a topic as plain columns, and what the gate tells."""

    def read(batches: Batches) -> Batches:
        with rarely_collecting():
            if plan.together:
                yield from type_streams(plan, native.reading, batches)
            else:
                yield from read_typed(plan, native.reading, batches)

    count = len(plan.tasks)
    places = spark.range(0, count, 1, count)
    if plan.together:
        places = by_key(map_records(places, read_streams, plan, finished), count)
    events = places.mapInArrow(read, native.reading.schema)
    return events.selectExpr(*plain_columns(native.reading))


def onto_versions(streams: DataFrame, versions: DataFrame) -> DataFrame:
    """Returns streams with the last version of their aggregate as `number`, as `type_streams` takes them.

    Args:
        streams: as `read_streams` yields them.
        versions: columns `key` and `number`, several rows of an aggregate allowed.
    """
    known = versions.groupBy("key").agg(expr("max(number) as known"))
    names = [name for name in streams.columns if name != "number"]
    based = streams.join(known, "key", "left").selectExpr(
        *names, f"if(kind = '{STREAM}', coalesce(known, 0), number) as number"
    )
    # In the order of the records' own form.
    return based.select(*streams.columns)


def _with_files(
    spark: SparkSession,
    plan: FoldPlan,
    native: NativeFold,
    files: TypedFiles,
    finished: Finished | None,
) -> DataFrame:
    """Returns the events of files, and those of the topic that pass the gate after them."""
    versions = versions_in_files(spark, files)
    events = events_in_files(spark, files, native.reading)
    if plan.slices:

        def read(batches: Batches) -> Batches:
            with rarely_collecting():
                yield from type_streams(plan, native.reading, batches)

        count = len(plan.tasks)
        places = spark.range(0, count, 1, count)
        streams = map_records(places, read_streams, plan, finished)
        based = by_key(onto_versions(streams, versions), count)
        tail = based.mapInArrow(read, native.reading.schema)
        columns = plain_columns(native.reading)
        columns[columns.index("`moment`")] = (
            f"{portion_moment('moment', str(files.parts + 1))} as moment"
        )
        events = events.union(tail.selectExpr(*columns))
    told = events.unionByName(versions, allowMissingColumns=True)
    # Of an aggregate that has moved on in the topic there are two versions, of which the larger one is kept.
    return told.withColumn("part", expr(f"if(kind = '{VERSION}', null, part)"))


def _aggregated(events: DataFrame, plan: FoldPlan, native: NativeFold, last: Ending) -> DataFrame:
    """Returns what becomes of plain events, and of what the gate told."""

    def finish(batches: Batches) -> Batches:
        with rarely_collecting():
            yield from last.run(finish_rows(plan, native, batches))

    if len(native.keys) == 1:
        touched = events.selectExpr("*", "0 as place", f"coalesce(key, {native.keys[0]}) as `to`")
    else:
        touched_keys = ", ".join(
            f"named_struct('place', {place}, 'to', {key})" for place, key in enumerate(native.keys)
        )
        own = "array(named_struct('place', 0, 'to', key))"
        each = f"inline(if(kind = '{EVENT}', array({touched_keys}), {own}))"
        touched = events.selectExpr("*", each)
    groups = (
        touched.where(f"`to` is not null and (kind <> '{EVENT}' or {native.touches})")
        .selectExpr(
            "kind",
            "`to` as key",
            # What the gate tells of a slice stays apart from what it tells of another one.
            f"if(kind = '{EVENT}', null, part) as told_by",
            "number",
            *(f"{text} as {name}" for name, text in native.values.items()),
        )
        .groupBy("kind", "key", "told_by")
        .agg(expr("max(number) as number"), *map(_named, native.aggregates.items()))
    )
    return groups.mapInArrow(finish, last.schema)


def _named(aggregate: tuple[str, str]) -> Column:
    name, text = aggregate
    return expr(f"{text} as {name}")


def map_records(
    frame: DataFrame,
    step: Step,
    plan: FoldPlan,
    finished: Finished | None = None,
    last: Ending | None = None,
) -> DataFrame:
    """Runs one of `fold`'s functions on the partitions of a frame.

    Args:
        frame: what it is given.
        step: the function.
        plan: its first argument.
        finished: hears of queues that were read.
        last: what becomes of what it yields, if this is the last one.
    """

    # A function of its own travels by value, with the plan; the step it calls by name.
    def run(batches: Batches) -> Batches:
        with rarely_collecting():
            made = step(plan, batches)
            if finished is not None:
                made = finished.watch(made)
            yield from made if last is None else last.run(made)

    return frame.mapInArrow(run, RECORD_SCHEMA if last is None else last.schema)


def read_result(plan: FoldPlan, records: pa.Table) -> Folded:
    """Sorts out the records that a job made.

    Raises:
        ProjectionError: a fold failed, versions are missing, or an aggregate stands in two queues.
    """
    kinds = {
        kind: records.filter(pc.equal(records["kind"], kind))
        for kind in (ROW, DELETED, VERSION, TALLY, MISSING, QUEUE, UNREAD)
    }
    for sentence in records.filter(pc.equal(records["kind"], FAILED))["key"].to_pylist():
        raise ProjectionError(f"projection {plan.projection}: the Spark job failed: {sentence}")
    counts: Counter[str] = Counter()
    for name, count in _pairs(kinds[TALLY]):
        counts[name] += count
    missing = [data.decode() for data in kinds[MISSING]["data"].to_pylist()]
    if missing:
        named = "; ".join(sorted(missing)[:_NAMED_MAX])
        lacking = len(missing) + counts[LEFT_OUT]
        raise ProjectionError(
            f"projection {plan.projection}: {lacking} aggregates lack events that neither the"
            f" topic nor {plan.event_store or 'an event store (none was given)'} has: {named}"
        )
    versions = dict(_pairs(kinds[VERSION]))
    if len(versions) != kinds[VERSION].num_rows:
        twice = Counter(kinds[VERSION]["key"].to_pylist()).most_common(1)[0][0]
        raise in_two_queues(plan.projection, twice)
    queues: dict[str, dict[str, int]] = {}
    for told, number in sorted(_pairs(kinds[QUEUE])):
        name, _, measure = told.rpartition(" ")
        # Of a queue that several tasks have read.
        measured = queues.setdefault(name, {})
        measured[measure] = measured.get(measure, 0) + number
    return Folded(
        rows=kinds[ROW]["data"],
        deleted=kinds[DELETED]["key"].to_pylist(),
        versions=versions,
        counts=counts,
        left_out=tuple(
            (each["key"], each["number"], each["data"].decode())
            for each in sorted(kinds[UNREAD].to_pylist(), key=itemgetter("key"))
        ),
        queues=queues,
        tasks=len(plan.tasks),
    )


def in_two_queues(projection: str, aggregate_id: str) -> ProjectionError:
    """Returns the error for an aggregate of which two slices have a last version."""
    return ProjectionError(
        f"projection {projection}: the events of aggregate {aggregate_id} stand in more than one queue"
        " or under more than one key, and none was added or frozen: a producer of them has chosen"
        " queues or keys by itself; fold the event store instead, with `headrace projection rebuild"
        f" {projection} --from store`"
    )


def _pairs(records: pa.Table) -> Iterator[tuple[str, Any]]:
    return zip(records["key"].to_pylist(), records["number"].to_pylist(), strict=True)
