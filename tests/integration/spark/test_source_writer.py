"""Rows become messages, in order per key, or the error says why not before the job starts."""

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from headrace_mq.client.producer.producer import Producer
from headrace_mq.spark import register

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS, KEYS = 10_000, 97


@pytest.fixture
async def topics(broker: Any, spark: Any) -> Any:
    """Two empty topics, and a function that reads one."""
    register(spark)
    async with Producer(broker.address) as producer:
        await producer.create_topic("orders", queues=3, retention="forever")
        await producer.create_topic("copies", queues=2, retention="forever")

    def read(topic: str) -> Any:
        source = spark.read.format("headrace").option("broker", broker.address)
        return source.option("topic", topic).load()

    return read


def write(frame: Any, address: str, /, **options: str) -> None:
    writer = frame.write.format("headrace").option("broker", address)
    writer.options(**options).mode("append").save()


async def test_rows_are_read_back_and_keep_the_order_of_their_key(
    spark: Any, broker: Any, topics: Any
) -> None:
    rows = spark.range(ROWS, numPartitions=4).select(
        F.concat(F.lit("k"), (F.col("id") % KEYS).cast("string")).alias("key"),
        F.when(F.col("id") % 2 == 0, "even").alias("tag"),
        F.create_map(F.lit("partition"), F.spark_partition_id().cast("string")).alias("headers"),
        F.col("id").cast("string").alias("body"),
    )
    write(rows, broker.address, topic="orders")
    stored = topics("orders").toArrow().to_pylist()
    assert sorted(int(row["body"]) for row in stored) == list(range(ROWS))
    queues_of: dict[str, set[int]] = {}
    last: dict[tuple[str, str], int] = {}
    for row in sorted(stored, key=lambda row: (row["queue_id"], row["offset"])):
        number = int(row["body"])
        assert row["key"] == f"k{number % KEYS}"
        assert row["tag"] == ("even" if number % 2 == 0 else "")
        queues_of.setdefault(row["key"], set()).add(row["queue_id"])
        place = (row["key"], dict(row["headers"])["partition"])
        assert last.get(place, -1) < number
        last[place] = number
    assert {len(queues) for queues in queues_of.values()} == {1}
    assert len(last) == 4 * KEYS


async def test_a_topic_is_copied_with_all_its_columns(spark: Any, broker: Any, topics: Any) -> None:
    rows = spark.createDataFrame(
        [("orders", "a", bytearray(b"\xff\x00"), {"h": "ü"}), ("copies", None, bytearray(), None)],
        "topic string, key string, body binary, headers map<string,string>",
    )
    write(rows, broker.address)
    write(topics("orders"), broker.address, topic="copies")
    copied = topics("copies").orderBy("key").collect()
    assert [(r["key"], bytes(r["body"]), r["headers"]) for r in copied] == [
        ("", b"", {}), ("a", b"\xff\x00", {"h": "ü"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("'k' AS key", {"topic": "orders"}, "add a column 'body'"),
        ("1 AS body", {"topic": "orders"}, "column 'body' is int, not string or binary"),
        ("'b' AS body, 'x' AS colour", {"topic": "orders"}, "a message has no 'colour'"),
        ("'b' AS body", {}, "say where to write"),
        ("'b' AS body", {"topic": "nowhere"}, "nowhere"),
        ("'b' AS body", {"topic": "orders", "splitRecords": "5"}, "not for .write"),
        ("'b' AS body", {"topic": "orders", "broker": "127.0.0.1:1"}, "this was tried on"),
        ("'b' AS body, map('a', 1) AS headers", {"topic": "orders"}, "not map<string,string>"),
        ("CAST(NULL AS string) AS body", {"topic": "orders"}, "has no body"),
    ],
)
async def test_a_wrong_option_is_named_in_the_error(
    spark: Any, broker: Any, topics: Any, columns: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        write(spark.sql(f"SELECT {columns}"), broker.address, **options)
    assert sentence in str(raised.value)
    assert topics("orders").count() == 0


async def test_a_topic_is_not_overwritten(spark: Any, broker: Any, topics: Any) -> None:
    write(spark.sql("SELECT 'kept' AS body"), broker.address, topic="orders")
    writer = spark.sql("SELECT 'new' AS body").write.format("headrace")
    with pytest.raises(PySparkException, match="can only be appended to"):
        writer.options(broker=broker.address, topic="orders").mode("overwrite").save()
    assert [bytes(row["body"]) for row in topics("orders").collect()] == [b"kept"]
