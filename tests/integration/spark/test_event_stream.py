"""Typed events as a stream: each version once in a sink, whatever the topic repeats and the query is killed by."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.spark import read_event_stream, read_events
from headrace_mq.client.producer.producer import Producer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APP = "ledger_app:app"

# Writes three micro-batches and goes on; then its Java process and it itself are killed.
KILLED = """
import os, signal, sys
from pathlib import Path
import ledger_app
from headrace.spark import local_session, read_event_stream

broker, folder = sys.argv[1], Path(sys.argv[2])
spark = local_session(cores=1, driver_memory="600m")
java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
events = read_event_stream(spark, "ledger_app:app", broker=broker, batch_max=60)
writer = events.of(ledger_app.Booked).writeStream.format("parquet").option("path", str(folder / "events"))
query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
while not (folder / "events" / "_spark_metadata" / "2").exists():
    query.awaitTermination(0.05)
os.kill(java, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_each_version_comes_once_over_micro_batches_kills_and_added_queues(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    child_environment: dict[str, str], tmp_path: Path,
) -> None:  # fmt: skip
    history = make_history(20, 12)
    whole = sorted(
        (one.aggregate_id, one.version, place)
        for one in history
        if one.version is not None
        for place, event in enumerate(one.events, start=1)
        if isinstance(event, ledger.Booked)
    )
    # Some out of order, some twice, far apart and close together.
    first = [*history[:80], *reversed(history[80:120]), *history[20:60], *history[120:170]]
    await publish(first)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, broker.address, str(tmp_path),
        env=child_environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert await child.wait() == -9
    async with Producer(broker.address) as producer:
        await producer.create_topic("ledger.events", queues=7, retention="forever")
    # Aggregates go on in other queues, which have old versions of them, too.
    await publish([*history[100:], *history[:30]])

    def run() -> None:
        events = read_event_stream(spark, APP, broker=broker.address, batch_max=60)
        writer = events.of(ledger.Booked).writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "events"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    await asyncio.to_thread(run)
    await asyncio.to_thread(run)
    written = spark.read.parquet(str(tmp_path / "events"))
    batch = read_events(spark, APP, broker=broker.address).of(ledger.Booked)
    assert [(each.name, each.dataType) for each in written.schema] == [
        (each.name, each.dataType) for each in batch.schema
    ]
    rows = [row.asDict(recursive=True) for row in written.collect()]
    found = Counter(
        tuple(row["context"][name] for name in ("aggregate_id", "version", "sequence"))
        for row in rows
    )
    assert set(found.values()) == {1}
    assert sorted(found) == whole

    def in_order(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(
            told, key=lambda row: (row["context"]["aggregate_id"], row["context"]["version"])
        )

    assert in_order(rows) == in_order([row.asDict(recursive=True) for row in batch.collect()])
