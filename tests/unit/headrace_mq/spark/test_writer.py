"""Rows that cannot be messages are refused, with a sentence; others are sent as they stand."""

from typing import Any

import pyarrow as pa
import pytest
import structlog
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from headrace_mq.errors import ConnectionLost
from headrace_mq.message import Message, SendResult
from headrace_mq.spark import writer as writer_module
from headrace_mq.spark.writer import RowsSent, TopicWriter, check_columns

ADDRESS = "127.0.0.1:1"


KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "text_map": MapType(StringType(), StringType()),
    "int_map": MapType(StringType(), IntegerType()),
}


def schema(columns: str) -> StructType:
    pairs = [one.split() for one in columns.split(",")]
    return StructType([StructField(name, KINDS[kind]) for name, kind in pairs])


class FakeProducer:
    """Keeps what is sent."""

    sent: list[Message]
    refuses: bool
    open: int

    def __init__(self, address: str) -> None:
        self.address = address

    async def start(self) -> None:
        if FakeProducer.refuses:
            raise ConnectionLost("nobody answers")
        FakeProducer.open += 1

    async def aclose(self) -> None:
        FakeProducer.open -= 1

    async def send_many(self, messages: list[Message]) -> list[SendResult]:
        self.sent.extend(messages)
        return []


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> type[FakeProducer]:
    FakeProducer.sent, FakeProducer.refuses, FakeProducer.open = [], False, 0
    monkeypatch.setattr(writer_module, "Producer", FakeProducer)
    return FakeProducer


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        ("key string", "orders", "add a column 'body'"),
        ("body int", "orders", "column 'body' is int, not string or binary"),
        ("body string, key int", "orders", "column 'key' is int, not string"),
        ("body string, headers string", "orders", "'headers' is string, not map<string,string>"),
        ("body string, headers int_map", "orders", "not map<string,string>"),
        ("body string, colour string", "orders", "no 'colour'; its columns are topic, key, tag"),
        ("body string", None, r"\.option\('topic', …\) or a column 'topic'"),
    ],
)
def test_columns_that_make_no_message_are_refused(
    columns: str, topic: str | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_columns(schema(columns), topic)


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        ("body string", "orders"),
        ("body binary, key string, tag string, headers text_map", "orders"),
        ("topic string, body binary", None),
        ("topic string, body binary, queue_id int, offset int, stored_at int", "orders"),
    ],
)
def test_columns_that_make_messages_are_accepted(columns: str, topic: str | None) -> None:
    check_columns(schema(columns), topic)


def test_rows_are_sent_in_order_and_pieces(producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROWS_AT_ONCE_MAX", 3)
    batches = [
        pa.RecordBatch.from_pydict({"key": ["a", None] * 4, "body": [str(n) for n in range(8)]}),
        pa.RecordBatch.from_pydict({"key": [], "body": []}),
    ]
    told = TopicWriter(ADDRESS, "orders").write(iter(batches))
    assert told == RowsSent(8)
    assert [message.body for message in producer.sent] == [str(n).encode() for n in range(8)]
    assert [message.key for message in producer.sent] == ["a", ""] * 4
    assert producer.open == 0


def test_every_column_becomes_its_field(producer: Any) -> None:
    headers = pa.array([[("h", "1")], None], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["x", "y"]), pa.array(["t", None]), headers, pa.array([b"\xff", b""])],
        names=["topic", "tag", "headers", "body"],
    )
    TopicWriter(ADDRESS, None).write(iter([batch]))
    assert producer.sent == [
        Message(topic="x", tag="t", headers={"h": "1"}, body=b"\xff"),
        Message(topic="y", body=b""),
    ]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"topic": "x", "key": "k", "body": None}, "a row with the key 'k' has no body"),
        ({"topic": None, "key": "k", "body": ""}, "a row with the key 'k' has no topic"),
    ],
)
def test_a_row_without_body_or_topic_is_refused(
    producer: Any, row: dict[str, Any], sentence: str
) -> None:
    batch = pa.RecordBatch.from_pylist([row])
    with pytest.raises(ValueError, match=sentence):
        TopicWriter(ADDRESS, None).write(iter([batch]))
    assert (producer.sent, producer.open) == ([], 0)


def test_a_broker_that_is_not_there_is_said_with_the_machine_that_tried(producer: Any) -> None:
    producer.refuses = True
    with pytest.raises(ConnectionLost, match="nobody answers; this was tried on"):
        TopicWriter(ADDRESS, "orders").write(iter([]))


def test_the_end_of_a_write_is_logged_with_its_rows() -> None:
    written = TopicWriter(ADDRESS, "orders")
    with structlog.testing.capture_logs() as logs:
        written.commit([RowsSent(3), RowsSent(4)])
        written.abort([RowsSent(3), None])
    assert [(log["log_level"], log["rows"]) for log in logs] == [("info", 7), ("warning", 3)]
