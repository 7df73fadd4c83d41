"""`format("headrace")` in a real session, over a real broker."""

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark import capture_offsets, lag, register

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
async def orders(broker: Any, spark: Any) -> Any:
    """A topic of 1,000 messages in 3 queues, and a function that reads it with options."""
    register(spark)
    async with Producer(broker.address) as producer:
        await producer.create_topic("orders", queues=3, retention="forever")
        await producer.send_many(
            [
                Message(
                    topic="orders",
                    key=f"k{number % 50}",
                    tag="even" if number % 2 == 0 else "",
                    headers={"number": str(number)} if number % 10 == 0 else {},
                    body=f"body {number}".encode(),
                )
                for number in range(1_000)
            ]
        )

    def read(**options: str) -> Any:
        source = spark.read.format("headrace").option("broker", broker.address)
        return source.option("topic", "orders").options(**options).load()

    return read


async def test_every_record_is_read_once_with_all_its_columns(orders: Any) -> None:
    table = orders().toArrow()
    rows = table.to_pylist()
    assert table.column_names == [
        "topic", "queue_id", "offset", "key", "tag", "headers", "body", "born_at", "stored_at",
    ]  # fmt: skip
    assert sorted(row["body"] for row in rows) == sorted(b"body %d" % n for n in range(1_000))
    by_queue: dict[int, list[int]] = {}
    for row in rows:
        number = int(row["body"].split()[1])
        assert row["key"] == f"k{number % 50}"
        assert row["tag"] == ("even" if number % 2 == 0 else "")
        assert dict(row["headers"]) == ({"number": str(number)} if number % 10 == 0 else {})
        assert timedelta() <= row["stored_at"] - row["born_at"] < timedelta(minutes=5)
        by_queue.setdefault(row["queue_id"], []).append(row["offset"])
    assert all(sorted(offsets) == list(range(len(offsets))) for offsets in by_queue.values())
    assert len({(row["key"], row["queue_id"]) for row in rows}) == 50


async def test_a_session_needs_no_registration_and_keeps_its_settings(
    orders: Any, spark: Any, broker: Any, free_port: Any, tmp_path: Path
) -> None:
    assert orders().count() == 1_000
    plain = spark.newSession()
    before = dict(plain.conf.getAll)
    assert plain.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    # The first address is of a broker that moved.
    place = {"broker": f"127.0.0.1:{free_port()},{broker.address}", "topic": "orders"}
    read = plain.read.format("headrace").options(**place)
    assert read.load().where("tag = 'even' and queue_id < 3").count() == 500
    stream = plain.readStream.format("headrace").options(**place, maxRecordsPerBatch="100")
    writer = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.start()
    try:
        query.processAllAvailable()
        left, told = 1_000, [each for each in query.recentProgress if each["numInputRows"]]
        assert lag(query).messages == 0
    finally:
        query.stop()
    assert len(told) >= 10
    for progress in told:
        left -= progress["numInputRows"]
        assert lag(SimpleNamespace(lastProgress=progress)).messages == left
    assert dict(plain.conf.getAll) == before


async def test_a_frame_can_be_queried_and_split(orders: Any) -> None:
    frame = orders(splitRecords="100")
    assert frame.rdd.getNumPartitions() > 3
    even = frame.where(F.col("tag") == "even").groupBy("key").count().collect()
    assert {(row["key"], row["count"]) for row in even} == {(f"k{n}", 20) for n in range(0, 50, 2)}


async def test_offsets_bound_what_is_read(orders: Any, broker: Any) -> None:
    ends = json.loads(capture_offsets(broker.address, ["orders"]))["orders"]
    last = orders(startingOffsets=json.dumps({"orders": {q: end - 1 for q, end in ends.items()}}))
    assert {(str(row["queue_id"]), row["offset"] + 1) for row in last.collect()} == set(
        ends.items()
    )
    first = orders(endingOffsets='{"orders": {"0": 2, "1": 0, "2": 1}}')
    assert sorted((row["queue_id"], row["offset"]) for row in first.collect()) == [
        (0, 0), (0, 1), (2, 0),
    ]  # fmt: skip
    assert orders(startingOffsets="latest").count() == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": "nothing"}, "nothing"),
        ({"startingOffsets": '{"orders": {"0": 99999}}'}, "asks for offset 99999 of orders/0"),
        ({"endingOffsets": "soon"}, 'endingOffsets: use "earliest", "latest" or JSON'),
        ({"spliRecords": "5"}, "has no option 'splirecords'"),
        ({"broker": "127.0.0.1:1"}, "every Spark executor must reach the broker"),
    ],
)
async def test_a_wrong_option_is_named_in_the_error(
    orders: Any, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        orders(**options).collect()
    assert sentence in str(raised.value)
