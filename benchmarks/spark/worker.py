"""
The driver that is measured: one session on some cores, and one kind of work in it.

    python -m benchmarks.spark.worker source|rebuild|rows|plain ASKED

ASKED is JSON. Each figure is printed as a line of JSON.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.application import APP, TOPIC, app, folded
from benchmarks.spark.usage import cpu_seconds, cpu_ticks, peak_mib
from headrace.projections.definition.fold import fold_streams
from headrace.rebuild.local.rebuild import rebuild_together
from headrace.rebuild.report import RebuildReport
from headrace.spark.executor.gate import StreamGate
from headrace.spark.rebuild import rebuild
from headrace.spark.session import local_session
from headrace_mq.spark import register
from headrace_mq.spark.offsets import plan_slices
from headrace_mq.spark.reader import fetch_ranges, rarely_collecting, read_columns

# Spark reads these; the topic's own columns are theirs too.
SCHEMA = (
    "topic string, queue_id int, offset bigint, key string, tag string,"
    " headers map<string, string>, body string, born_at timestamp, stored_at timestamp"
)
FEW = "key string, body binary"


class Stopwatch:
    """Times work by the clock on the wall and by the processors of driver and broker."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._roots = (os.getpid(), asked["broker_pid"])
        self._events = asked["events"]

    def measure(self, name: str, work: Callable[[], Any], **figures: Any) -> Any:
        """Does the work, prints what it took, and returns what it returns."""
        began, before = time.perf_counter(), cpu_ticks(*self._roots)
        result = work()
        seconds = time.perf_counter() - began
        cpu = cpu_seconds(before, cpu_ticks(*self._roots))
        tell(
            case=name,
            events=self._events,
            seconds=round(seconds, 2),
            per_second=round(self._events / seconds),
            cpu_us=round(cpu / self._events * 1e6, 2),
            **figures,
        )
        return result


def tell(**figures: Any) -> None:
    print(json.dumps({"benchmark": "spark", **figures}), flush=True)


def session(cores: int) -> SparkSession:
    began = time.perf_counter()
    spark = local_session("headrace-bench", cores=cores)
    tell(case="session start", cores=cores, seconds=round(time.perf_counter() - began, 2))
    register(spark)
    return spark


def consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def source(asked: Mapping[str, Any]) -> None:
    """The topic, and the same rows in files of Spark's own formats; the first turn warms up."""
    spark, watch, cores = session(asked["cores"]), Stopwatch(asked), asked["cores"]
    topic = spark.read.format("headrace").options(broker=asked["broker"], topic=TOPIC)
    parquet, lines = asked["folder"] + "/rows.parquet", asked["folder"] + "/rows.json"
    if not Path(parquet).exists():
        rows = topic.load()
        rows.withColumn("body", rows["body"].cast("string")).write.parquet(parquet)
        spark.read.parquet(parquet).write.json(lines)
    frames = {
        "source": topic.load,
        "source, without headers": lambda: topic.option("includeHeaders", "false").load(),
        "source, keys and bodies": lambda: topic.schema(FEW).load(),
        "spark.read.parquet": lambda: spark.read.parquet(parquet),
        "spark.read.json": lambda: spark.read.schema(SCHEMA).json(lines),
    }
    for turn, (name, make) in product(range(asked["turns"]), frames.items()):
        watch.measure(name, lambda make=make: consume(make()), cores=cores, turn=turn + 1)
    tell(case="source, peak memory", cores=cores, mib=peak_mib(os.getpid()))
    spark.stop()


def rebuilds(asked: Mapping[str, Any]) -> None:
    """Both projections, from an empty topic's length to whole ones; the first warms up."""
    spark, watch = session(asked["cores"]), Stopwatch(asked)
    for turn in range(asked["turns"]):
        for name in ("declared", "folded"):
            report: RebuildReport = watch.measure(
                f"rebuild, {name}",
                lambda name=name: asyncio.run(
                    rebuild(
                        APP, name, broker=asked["broker"], spark=spark, verify=False,
                        read_models_url=f"sqlite:///{asked['folder']}/read-{asked['cores']}.db",
                    )
                ),
                cores=asked["cores"],
                turn=turn + 1,
            )  # fmt: skip
            assert report.switched
            assert report.events == asked["events"]
            tell(
                case=f"rebuild, {name}, split", cores=asked["cores"], turn=turn + 1,
                rows=report.rows, fold_per_second=round(report.events_per_second),
                seconds=report.seconds, workers_seconds=apart(report),
            )  # fmt: skip
    tell(case="rebuild, peak memory", cores=asked["cores"], mib=peak_mib(os.getpid()))
    spark.stop()


def rows(asked: Mapping[str, Any]) -> None:
    """A row per event, into PostgreSQL: the most that the driver could have to hold."""
    spark, watch = session(asked["cores"]), Stopwatch(asked)
    for turn in range(asked["turns"]):
        before = peak_mib(os.getpid())
        report: RebuildReport = watch.measure(
            "rebuild, row per event",
            lambda: asyncio.run(
                rebuild(
                    APP, "entries", broker=asked["broker"], spark=spark, verify=False,
                    read_models_url=asked["postgres"],
                )
            ),
            cores=asked["cores"],
            turn=turn + 1,
        )  # fmt: skip
        assert report.switched
        assert report.rows == asked["events"]
        tell(
            case="rebuild, row per event, split", cores=asked["cores"], turn=turn + 1,
            rows=report.rows, seconds=report.seconds, before_mib=before, mib=peak_mib(os.getpid()),
        )  # fmt: skip
    spark.stop()


def apart(report: RebuildReport) -> dict[str, float]:
    """The seconds of all workers together: waiting for the broker, and decoding and folding."""
    parts = {"read": "read_ms", "fold": "work_ms"}
    return {
        name: round(sum(queue[part] for queue in report.queues.values()) / 1_000, 2)
        for name, part in parts.items()
    }


def plain(asked: Mapping[str, Any]) -> None:
    """The same without Spark: a loop, and the rebuild in one process."""
    watch = Stopwatch(asked)
    slices = plan_slices(fetch_ranges(asked["broker"], [TOPIC]))

    def read() -> int:
        parts = (part for piece in slices for part in read_columns(asked["broker"], piece))
        return sum(last - first for _, _, first, last in parts)

    def loop() -> int:
        serializer = app.serializer
        rows: dict[str, Any] = {}
        for piece in slices:
            gate = StreamGate({})
            for _, columns, first, last in read_columns(asked["broker"], piece):
                streams = gate.admit(map(serializer.decode_stream, columns.bodies[first:last]))
                rows.update(fold_streams(folded, rows, streams))
        return len(rows)

    with rarely_collecting():
        assert watch.measure("plain loop, reading alone", read) == asked["events"]
        watch.measure("plain loop, fold in Python", loop)
    for name in ("declared", "folded"):
        watch.measure(
            f"rebuild without Spark, {name}",
            lambda name=name: asyncio.run(
                rebuild_together(
                    APP, [name], broker=asked["broker"], verify=False,
                    read_models_url=f"sqlite:///{asked['folder']}/read-plain.db",
                )
            ),
        )  # fmt: skip
    tell(case="without Spark, peak memory", mib=peak_mib(os.getpid()))


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    task, asked = sys.argv[1:]
    {"source": source, "rebuild": rebuilds, "rows": rows, "plain": plain}[task](json.loads(asked))


if __name__ == "__main__":
    main()
