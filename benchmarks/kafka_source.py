"""
A Kafka topic read by Spark's own source and by the framework's reader: every byte, in one session, in turn.

    python -m benchmarks.kafka_source --runs 5 --messages 400000

Needs Kafka's jars (`make kafka` brings them), and Maven's central repository for Spark's source.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.spark.session import local_session
from headrace.spark.topic import fetch_ranges, read_columns
from headrace.transports.topic_writer import open_topic_writer
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns
from headrace_mq.spark.offsets import QueueSlice
from samples.kafka import KafkaBrokers, jars

ROOT = Path(__file__).parents[1]
# The newest that is there for this version of Spark or an earlier one.
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
TOPIC, QUEUES, PAGE, BODY = "bank.events", 4, 5_000, 300
HEADERS = {"command": "c" * 36, "kind": "events", "seal": "s" * 43}


def fill(address: str, messages: int) -> None:
    """Writes messages like those of the bank."""
    with open_topic_writer(address) as writer:
        writer.ensure(TOPIC, queues=QUEUES, forever=True)
        page = Columns(
            [f"account-{number}" for number in range(PAGE)],
            [],
            [HEADERS] * PAGE,
            [bytes(BODY)] * PAGE,
            [],
        )
        for number in range(messages // PAGE):
            writer.write(QueueRef(TOPIC, number % QUEUES), page)


def by_port(spark: SparkSession, address: str) -> int:
    """Reads as a rebuild does: a slice for each partition, in Python, keys and headers decoded."""
    slices = [
        QueueSlice(queue=QueueRef(one.topic, one.queue_id), start=one.first, end=one.end)
        for one in fetch_ranges(address, [TOPIC])
    ]

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                size = sum(
                    len(body)
                    for _, columns, first, last in read_columns(address, slices[number])
                    for body in columns.bodies[first:last]
                )
                yield pa.RecordBatch.from_pydict({"size": [size]})

    frame = spark.range(0, len(slices), 1, len(slices)).mapInArrow(read, "size long")
    return int(frame.groupBy().sum("size").collect()[0][0])


def by_source(spark: SparkSession, address: str) -> int:
    """Reads by Spark's own source into Arrow batches of a Python worker, as a fold would get them."""

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            size = sum(map(len, batch.column("value").to_pylist()))
            batch.column("key").to_pylist()
            batch.column("headers").to_pylist()
            yield pa.RecordBatch.from_pydict({"size": [size]})

    source = spark.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": address.removeprefix("kafka://"),
            "subscribe": TOPIC,
            "includeHeaders": "true",
        }
    )
    frame = source.load().select("key", "value", "headers").mapInArrow(read, "size long")
    return int(frame.groupBy().sum("size").collect()[0][0])


def main() -> None:
    """Prints messages per second of each: median and range."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_source", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--messages", type=int, default=400_000)
    told = parser.parse_args()
    spark = local_session(
        "headrace-bench", cores=2, driver_memory="1g", settings={"spark.jars.packages": PACKAGE}
    )
    ways: dict[str, Callable[[SparkSession, str], int]] = {"port": by_port, "source": by_source}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    with (
        tempfile.TemporaryDirectory(dir=ROOT / "var") as folder,
        KafkaBrokers(Path(folder), jars=jars()) as brokers,
    ):
        fill(brokers.address, told.messages)
        for _ in range(told.runs + 1):
            for name, read in ways.items():
                began = time.perf_counter()
                assert read(spark, brokers.address) == told.messages // PAGE * PAGE * BODY
                rates[name].append(told.messages / (time.perf_counter() - began))
    for name, found in rates.items():
        kept = found[1:]
        print(f"{name}: {statistics.median(kept):,.0f}/s ({min(kept):,.0f} to {max(kept):,.0f})")
    spark.stop()


if __name__ == "__main__":
    main()
