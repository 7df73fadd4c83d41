"""Filters, chosen columns and times narrow what is fetched, never what comes out."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import MapType, StringType

from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark import register

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SENDS, EACH = 20, 30


@pytest.fixture
async def read(broker: Any, spark: Any) -> Any:
    """Two topics, stored send by send, and a function that reads them with options."""
    register(spark)
    async with Producer(broker.address) as producer:
        for topic, queues in (("orders", 3), ("refunds", 1)):
            await producer.create_topic(topic, queues=queues, retention="forever")
            for send in range(SENDS):
                await producer.send_many(
                    [
                        Message(
                            topic=topic,
                            key=f"k{number}",
                            tag=f"t{send % 5}" if send % 5 else "",
                            headers={"send": str(send)},
                            body=b"%d/%d" % (send, number),
                        )
                        for number in range(EACH)
                    ]
                )

    def load(schema: str | None = None, **options: str) -> Any:
        source = spark.read.format("headrace").option("broker", broker.address)
        source = source.option("topic", "orders,refunds").options(**options)
        return (source.schema(schema) if schema else source).load()

    return load


def places(frame: Any) -> list[tuple[str, int, int]]:
    rows = frame.select("topic", "queue_id", "offset").collect()
    return sorted((row["topic"], row["queue_id"], row["offset"]) for row in rows)


def some_condition(chance: random.Random, stored: list[datetime]) -> Any:
    column, value = chance.choice(
        [
            ("topic", lambda: chance.choice(["orders", "refunds", "none"])),
            ("tag", lambda: chance.choice(["", "t1", "t2", "t9"])),
            ("queue_id", lambda: chance.randrange(4)),
            ("offset", lambda: chance.randrange(SENDS * EACH)),
            ("stored_at", lambda: chance.choice(stored)),
            ("key", lambda: f"k{chance.randrange(EACH)}"),
        ]
    )
    shape = chance.choice(["=", "<", "<=", ">", ">=", "in", "not"])
    subject = F.col(column)
    if shape == "in":
        return subject.isin([value() for _ in range(4)])
    if shape == "not":
        return ~(subject == value())
    compare: dict[str, Callable[[Any], Any]] = {
        "=": subject.__eq__, "<": subject.__lt__, "<=": subject.__le__,
        ">": subject.__gt__, ">=": subject.__ge__,
    }  # fmt: skip
    return compare[shape](value())


async def test_filters_that_are_pushed_down_leave_the_rows_that_spark_would(read: Any) -> None:
    unfiltered = read(pushFilters="false").cache()
    stored = [row["stored_at"] for row in unfiltered.select("stored_at").distinct().collect()]
    assert len(stored) > 5
    chance = random.Random(11)
    found = 0
    for _ in range(16):
        one, other = some_condition(chance, stored), some_condition(chance, stored)
        condition = one & other if chance.random() < 0.7 else one
        expected = places(unfiltered.where(condition))
        assert places(read(splitRecords="250").where(condition)) == expected
        found += len(expected)
    assert found
    unfiltered.unpersist()


async def test_partitions_that_no_row_can_come_from_are_not_planned(read: Any) -> None:
    assert read().rdd.getNumPartitions() == 4
    narrowed = read().where((F.col("topic") == "orders") & (F.col("queue_id") > 1))
    assert narrowed.rdd.getNumPartitions() == 1
    plan = read().where(F.col("offset") < 3)._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan
    plan = read().where(F.col("tag") == "t1")._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" in plan


async def test_a_schema_chooses_the_columns_that_are_built(read: Any) -> None:
    frame = read("body binary, offset long").where(F.col("offset") < 2)
    assert frame.columns == ["body", "offset"]
    assert sorted({row["offset"] for row in frame.collect()}) == [0, 1]
    assert read("key string").distinct().count() == EACH


async def test_headers_that_are_not_selected_are_null(read: Any) -> None:
    frame = read(includeHeaders="false")
    assert frame.schema["headers"].dataType == MapType(StringType(), StringType())
    assert frame.where(F.col("headers").isNull()).count() == 2 * SENDS * EACH
    assert read().where(F.col("headers").isNull()).count() == 0


async def test_times_bound_what_is_read(read: Any) -> None:
    stored = sorted(row["stored_at"] for row in read("stored_at timestamp").distinct().collect())
    moment = stored[len(stored) // 2].replace(tzinfo=UTC)
    expected_after = places(read().where(F.col("stored_at") >= F.lit(moment)))
    after = read(startingTimestamp=str((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)))  # fmt: skip
    before = read(endingTimestamp=moment.isoformat())
    assert places(after) == expected_after
    assert sorted(places(before) + expected_after) == places(read())
    assert read(startingTimestamp="2200-01-01T00:00:00Z").count() == 0


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        ("price double", {}, "has no column price double"),
        ("offset string", {}, "has no column offset string"),
        (None, {"startingTimestamp": "yesterday"}, "startingTimestamp: use milliseconds"),
        (None, {"maxRecordsPerBatch": "5"}, "is for spark.readStream, not for .read"),
        (None, {"includeHeaders": "no"}, "includeHeaders is true or false, not 'no'"),
    ],
)
async def test_a_wrong_option_is_named_in_the_error(
    read: Any, schema: str | None, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        read(schema, **options).collect()
    assert sentence in str(raised.value)
