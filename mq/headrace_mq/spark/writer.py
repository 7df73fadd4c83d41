"""
Rows as messages: `frame.write.format("headrace")`.

Used by Spark's Python worker, which has Arrow batches; uses a producer. Each attempt of a task sends
all its rows, so a row is stored at least once, and again each time Spark repeats the task. Rows of one
Spark partition with the same key keep their order within an attempt.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from headrace_mq._runtime.log import get_logger
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import ConnectionLost
from headrace_mq.message import Message
from headrace_mq.spark.reader import unreachable_here

__all__ = ["RowsSent", "TopicWriter", "check_columns"]

# Rows that become messages at a time: enough for many wire batches, little for a worker's memory.
ROWS_AT_ONCE_MAX = 10_000

_TEXT: tuple[type[DataType], ...] = (StringType,)
_TAKEN: dict[str, tuple[type[DataType], ...]] = {
    "topic": _TEXT,
    "key": _TEXT,
    "tag": _TEXT,
    "headers": (MapType,),
    "body": (StringType, BinaryType),
}
# Ignored: the broker assigns new ones. So you can write the rows of one topic to another.
_ASSIGNED_BY_BROKER = frozenset({"queue_id", "offset", "born_at", "stored_at"})

_log = get_logger(__name__)


@dataclass
class RowsSent(WriterCommitMessage):
    """The report of one task attempt to the driver."""

    rows: int


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises ValueError unless the rows of a schema can be messages.

    Args:
        schema: of the rows.
        topic: the option `topic`; None if each row must name its topic.
    """
    if "body" not in schema.names:
        raise ValueError("a message needs a body: add a column 'body' of text or binary")
    if topic is None and "topic" not in schema.names:
        raise ValueError("say where to write: .option('topic', …) or a column 'topic'")
    for field in schema.fields:
        if field.name in _ASSIGNED_BY_BROKER:
            continue
        kinds = _TAKEN.get(field.name)
        if kinds is None:
            raise ValueError(
                f"a message has no {field.name!r}; its columns are {', '.join(_TAKEN)}"
            )
        if not isinstance(field.dataType, kinds) or not _text_map(field.dataType):
            wanted = " or ".join(
                "map<string,string>" if kind is MapType else kind.typeName() for kind in kinds
            )
            raise ValueError(
                f"column {field.name!r} is {field.dataType.simpleString()}, not {wanted}"
            )


class TopicWriter(DataSourceArrowWriter):
    """Sends the rows of a frame.

    Args:
        address: the broker's `host:port`.
        topic: where all rows go; None if each row names it in its column `topic`.
    """

    def __init__(self, address: str, topic: str | None) -> None:
        self._address = address
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Sends the rows of one Spark partition and waits until all are durable.

        Raises:
            ConnectionLost: the broker cannot be reached from this machine.
            ValueError: a row has no body or no topic, or breaks a limit of messages.
            SendTimeout, BrokerError: as the producer raises them.
        """
        return RowsSent(asyncio.run(self._send_all(iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Logs how many rows were written; readers have seen them since they were sent."""
        _log.info("rows were written to topics", topic=self._topic, rows=_rows(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Logs that the rows sent before the failure stay: a topic cannot take them back."""
        _log.warning(
            "a write to topics failed; the rows already sent stay, and a retry sends them again",
            topic=self._topic,
            rows=_rows(messages),
        )

    async def _send_all(self, batches: Iterator[pa.RecordBatch]) -> int:
        rows = 0
        producer = Producer(self._address)
        try:
            await producer.start()
        except ConnectionLost as error:
            raise unreachable_here(error) from error
        async with aclosing(producer):
            for batch in batches:
                for start in range(0, batch.num_rows, ROWS_AT_ONCE_MAX):
                    piece = batch.slice(start, ROWS_AT_ONCE_MAX)
                    await producer.send_many(_messages(piece, self._topic))
                    rows += piece.num_rows
        return rows


def _messages(batch: pa.RecordBatch, topic: str | None) -> list[Message]:
    count, names = batch.num_rows, set(batch.schema.names)
    nothing = [None] * count

    def column(name: str) -> list[Any]:
        return batch.column(name).to_pylist() if name in names else nothing

    topics = column("topic") if topic is None else [topic] * count
    messages = []
    for to, key, tag, headers, body in zip(
        topics, column("key"), column("tag"), column("headers"), column("body"), strict=True
    ):
        if body is None or to is None:
            raise ValueError(
                f"a row with the key {key!r} has no {'body' if body is None else 'topic'}"
            )
        messages.append(
            Message(
                topic=to,
                body=body.encode() if isinstance(body, str) else body,
                key=key or "",
                tag=tag or "",
                headers=dict(headers) if headers else {},
            )
        )
    return messages


def _text_map(kind: DataType) -> bool:
    if not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


def _rows(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(one.rows for one in messages if isinstance(one, RowsSent))
