"""
How fast topics are read and written with Spark, beside a plain loop over a `BlockingReader`.

Starts a broker in its own process, writes rows with a body of about 200 bytes from a DataFrame, and
prints one JSON line each for: the write, the plain loop, and reads of all columns, of few columns
chosen by a schema, without headers, with a filter that Spark applies and with the same filter pushed
down. Every read is repeated beside the plain loop, and medians are told: rows for each second that
passes, and for each second of processor time spent by all processes, broker and Java included.

    python -m benchmarks.spark_source [--rows 1000000] [--cores 2] [--repeats 3]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.machine import facts
from headrace.spark.session import local_session
from headrace_mq.client.blocking import BlockingReader
from headrace_mq.client.producer import Producer
from headrace_mq.message import QueueRef
from headrace_mq.spark import register
from headrace_mq.spark.reader import rarely_collecting

TOPIC, WARM_UP = "bench.rows", "bench.warm-up"
QUEUES, KEYS, TAGS = 4, 10_000, 20
WARM_UP_ROWS = 20_000

BROKER = """
import sys
from pathlib import Path
import structlog
from headrace_mq.broker.server import run
from headrace_mq.settings import BrokerSettings, StoreSettings
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
store = StoreSettings(directory=Path(sys.argv[1]), flush="interval")
run(BrokerSettings(store=store, port=0), ready=lambda address: print(address, flush=True))
"""


def tell(name: str, **figures: object) -> None:
    print(json.dumps({"benchmark": name, **figures}), flush=True)


def cpu_seconds() -> float:
    """What this process and all below it have used: Java, its Python workers, the broker."""
    parent_of, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        number = int(stat.parent.name)
        parent_of[number] = int(fields[1])
        # Its own and that of children which have ended, in user and system mode.
        used[number] = sum(map(int, fields[11:15]))

    def ours(number: int) -> bool:
        while number not in {0, os.getpid()}:
            number = parent_of.get(number, 0)
        return number != 0

    ticks = sum(spent for number, spent in used.items() if ours(number))
    return ticks / os.sysconf("SC_CLK_TCK")


def seconds_of(work: Callable[[], Any]) -> tuple[float, float]:
    """Does the work and returns the seconds that passed and those that all processors spent."""
    begin, cpu = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - begin, cpu_seconds() - cpu


async def create_topics(address: str) -> None:
    async with Producer(address) as producer:
        for topic in (TOPIC, WARM_UP):
            await producer.create_topic(topic, queues=QUEUES, retention="forever")


def rows(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Rows whose tag stays the same for long stretches, as it does where kinds of events come."""
    number = F.col("id")
    return spark.range(count, numPartitions=partitions).select(
        F.concat(F.lit("key-"), (number % KEYS).cast("string")).alias("key"),
        F.concat(F.lit("tag-"), F.floor(number * TAGS / count).cast("string")).alias("tag"),
        F.create_map(F.lit("kind"), F.lit("events")).alias("headers"),
        F.concat(F.lit('{"text":"'), F.repeat(F.lit("x"), 180), number, F.lit('"}')).alias("body"),
    )


def write(frame: DataFrame, address: str, topic: str) -> None:
    frame.write.format("headrace").options(broker=address, topic=topic).mode("append").save()


def plain_loop(address: str) -> int:
    """Reads and decodes everything in this process, on one core."""
    count = 0
    with rarely_collecting(), BlockingReader(address) as reader:
        for held in reader.ranges([TOPIC]):
            queue = QueueRef(held.topic, held.queue_id)
            for _, _, first, last in reader.read(queue, held.first, held.end):
                count += last - first
    return count


def consume(make: Callable[[], DataFrame]) -> None:
    make().write.format("noop").mode("overwrite").save()


def measure_reads(spark: SparkSession, address: str, arguments: argparse.Namespace) -> None:
    def load(schema: str = "", **options: str) -> DataFrame:
        source = spark.read.format("headrace").options(broker=address, topic=TOPIC, **options)
        return (source.schema(schema) if schema else source).load()

    tagged = F.col("tag") == "tag-3"
    near = F.col("offset") < 1_000
    reads: dict[str, Callable[[], DataFrame]] = {
        "all columns": load,
        "all columns, few selected": lambda: load().select("key", "offset"),
        "few columns by schema": lambda: load("key string, offset long"),
        "without headers": lambda: load(includeHeaders="false"),
        "tag filtered by Spark": lambda: load(pushFilters="false").where(tagged),
        "tag pushed down": lambda: load().where(tagged),
        "offsets filtered by Spark": lambda: load(pushFilters="false").where(near),
        "offsets pushed down": lambda: load().where(near),
    }
    assert load().where(tagged).count() == load(pushFilters="false").where(tagged).count() > 0
    for name, make in reads.items():
        # The yardstick stands beside every read, for the machine may be busy now and idle then.
        spent, beside = [], []
        for _ in range(arguments.repeats):
            beside.append(seconds_of(partial(plain_loop, address)))
            spent.append(seconds_of(partial(consume, make)))
        seconds, cpu = map(statistics.median, zip(*spent, strict=True))
        plain, plain_cpu = map(statistics.median, zip(*beside, strict=True))
        tell(
            f"read, {name}",
            seconds=round(seconds, 3),
            rows_per_second=round(arguments.rows / seconds),
            rows_per_cpu_second=round(arguments.rows / cpu),
            plain_rows_per_second=round(arguments.rows / plain),
            plain_rows_per_cpu_second=round(arguments.rows / plain_cpu),
        )


def measure(address: str, arguments: argparse.Namespace) -> None:
    asyncio.run(create_topics(address))
    spark = local_session("headrace-bench", cores=arguments.cores)
    register(spark)
    # Workers load their modules with the first job.
    write(rows(spark, WARM_UP_ROWS, arguments.cores), address, WARM_UP)
    frame = rows(spark, arguments.rows, arguments.cores)
    seconds, cpu = seconds_of(partial(write, frame, address, TOPIC))
    tell(
        "write",
        seconds=round(seconds, 2),
        rows_per_second=round(arguments.rows / seconds),
        rows_per_cpu_second=round(arguments.rows / cpu),
    )
    assert plain_loop(address) == arguments.rows
    measure_reads(spark, address, arguments)
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    tell("machine", rows=arguments.rows, spark_cores=arguments.cores, **facts())
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        broker = subprocess.Popen(
            [sys.executable, "-c", BROKER, f"{folder}/broker"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert broker.stdout is not None
            measure(broker.stdout.readline().strip(), arguments)
        finally:
            broker.terminate()
            broker.communicate(timeout=30)


if __name__ == "__main__":
    main()
