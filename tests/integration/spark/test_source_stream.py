"""A stream reads every record once, over micro-batches, failures, restarts and growth."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark import register

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 600


async def send(address: str, first: int, count: int) -> None:
    async with Producer(address) as producer:
        await producer.create_topic("orders", queues=3, retention="forever")
        await producer.send_many(
            [
                Message(topic="orders", key=f"k{number}", body=b"%d" % number)
                for number in range(first, first + count)
            ]
        )


class Sink:
    """What a `foreachBatch` wrote, by batch id: a batch that comes again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, bytes]]] = {}
        self.calls: list[int] = []
        self.after: Callable[[int], None] = lambda batch_id: None

    def __call__(self, frame: Any, batch_id: int) -> None:
        rows = frame.select("queue_id", "offset", "body").collect()
        self.batches[batch_id] = [(r["queue_id"], r["offset"], bytes(r["body"])) for r in rows]
        self.calls.append(batch_id)
        self.after(batch_id)

    @property
    def rows(self) -> list[tuple[int, int, bytes]]:
        return sorted(row for batch in self.batches.values() for row in batch)


@pytest.fixture
async def stream(broker: Any, spark: Any, tmp_path: Path) -> Any:
    """A topic of 600 records, and a function that starts a query on it from one checkpoint."""
    register(spark)
    await send(broker.address, 0, COUNT)

    def start(sink: Sink, *, forever: bool = False, **options: str) -> Any:
        source = spark.readStream.format("headrace").option("broker", broker.address)
        frame = source.option("topic", "orders").options(**options).load()
        writer = frame.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return (writer if forever else writer.trigger(availableNow=True)).start()

    return start


def read(spark: Any, broker: Any) -> list[tuple[int, int, bytes]]:
    source = spark.read.format("headrace").option("broker", broker.address)
    rows = source.option("topic", "orders").load().collect()
    return sorted((row["queue_id"], row["offset"], bytes(row["body"])) for row in rows)


async def test_available_messages_are_read_in_bounded_batches(
    stream: Any, spark: Any, broker: Any
) -> None:
    sink = Sink()
    sink.after = lambda batch_id: (
        asyncio.run(send(broker.address, COUNT, 50)) if batch_id == 0 else None
    )
    expected = read(spark, broker)
    stream(sink, maxRecordsPerBatch="150").awaitTermination()
    assert sink.rows == expected
    assert len(sink.batches) >= 4
    assert max(map(len, sink.batches.values())) <= 150
    # What came while the query ran is left to the next one.
    sink.after = lambda batch_id: None
    stream(sink).awaitTermination()
    assert sink.rows == read(spark, broker)


async def test_a_query_that_failed_after_writing_reads_exactly_on(
    stream: Any, spark: Any, broker: Any
) -> None:
    sink = Sink()

    def fail(batch_id: int) -> None:
        if batch_id == 2:
            raise RuntimeError("killed after writing")

    sink.after = fail
    with pytest.raises(PySparkException, match="killed after writing"):
        stream(sink, maxRecordsPerBatch="100").awaitTermination()
    written = list(sink.batches[2])
    await send(broker.address, COUNT, 100)
    sink.after = lambda batch_id: None
    stream(sink, maxRecordsPerBatch="100").awaitTermination()
    assert sink.calls.count(2) == 2
    assert sorted(sink.batches[2]) == sorted(written)
    assert sink.rows == read(spark, broker)
    assert len(sink.rows) == COUNT + 100


async def test_messages_that_arrive_are_read_and_a_stopped_query_goes_on(
    stream: Any, spark: Any, broker: Any
) -> None:
    sink = Sink()
    sink.after = lambda batch_id: (
        asyncio.run(send(broker.address, COUNT, 50)) if batch_id == 0 else None
    )
    query = stream(sink, forever=True)
    query.processAllAvailable()
    query.stop()
    assert sink.rows == read(spark, broker)
    assert len(sink.rows) == COUNT + 50
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    assert sum(one["numInputRows"] for one in progress) == COUNT + 50
    await send(broker.address, COUNT + 50, 50)
    sink.after = lambda batch_id: None
    query = stream(sink, forever=True)
    query.processAllAvailable()
    query.stop()
    assert sink.rows == read(spark, broker)


async def test_queues_that_are_added_to_the_topic_join_the_stream(
    stream: Any, spark: Any, broker: Any
) -> None:
    sink = Sink()
    stream(sink).awaitTermination()
    async with Producer(broker.address) as producer:
        await producer.create_topic("orders", queues=6, retention="forever")
    await send(broker.address, COUNT, 200)
    stream(sink, maxRecordsPerBatch="70").awaitTermination()
    assert {queue_id for queue_id, _, _ in sink.rows} == set(range(6))
    assert sink.rows == read(spark, broker)


async def test_a_restart_of_the_broker_is_waited_out(stream: Any, spark: Any, broker: Any) -> None:
    sink = Sink()
    starting: list[threading.Thread] = []

    def restart(batch_id: int) -> None:
        if batch_id == 1:
            broker.stop()
            starting.append(threading.Thread(target=broker.start))
            starting[0].start()

    sink.after = restart
    stream(sink, maxRecordsPerBatch="200").awaitTermination()
    starting[0].join()
    assert sink.rows == read(spark, broker)
    assert len(sink.rows) == COUNT


async def test_latest_is_resolved_once_and_kept_by_the_checkpoint(stream: Any, broker: Any) -> None:
    sink = Sink()
    stream(sink, startingOffsets="latest").awaitTermination()
    assert sink.rows == []
    await send(broker.address, COUNT, 30)
    stream(sink, startingOffsets="latest").awaitTermination()
    assert sorted(int(body) for _, _, body in sink.rows) == list(range(COUNT, COUNT + 30))


async def test_a_checkpoint_ahead_of_the_topic_is_an_error_or_a_new_beginning(
    stream: Any, broker: Any, tmp_path: Path, free_port: Any
) -> None:
    sink = Sink()
    stream(sink).awaitTermination()
    other = type(broker)(tmp_path / "other", free_port())
    try:
        await send(other.address, 5_000, 20)
        with pytest.raises(PySparkException) as raised:
            stream(sink, broker=other.address).awaitTermination()
        assert "was reached before, but the queue ends at" in str(raised.value)
        again = Sink()
        stream(again, broker=other.address, failOnDataLoss="false").awaitTermination()
        assert sorted(int(body) for _, _, body in again.rows) == list(range(5_000, 5_020))
    finally:
        other.stop()


async def test_an_option_of_a_batch_is_refused_by_a_stream(stream: Any) -> None:
    with pytest.raises(PySparkException) as raised:
        stream(Sink(), endingOffsets="latest").awaitTermination()
    assert "option 'endingOffsets' is for spark.read, not for .readStream" in str(raised.value)
