"""
The data source `headrace`: options, schema, and one Spark partition per queue and offset range.

Sits between: `spark.read.format("headrace")` and `reader`. Spark runs planning and reading in
separate Python processes, so everything that a reader needs travels inside its partition.

| option | value |
| --- | --- |
| `broker` | `host:port`, as every executor reaches it |
| `topic` | one topic, or several separated by commas |
| `startingOffsets` | `earliest` (default), `latest`, or JSON `{"orders": {"0": 12}}` |
| `endingOffsets` | `latest` (default), `earliest`, or the same JSON |
| `splitRecords` | the most records in one Spark partition; default: a queue is one partition |
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace_mq.message import check_topic
from headrace_mq.spark.offsets import Bound, QueueSlice, parse_bound, plan_slices
from headrace_mq.spark.reader import ARROW_SCHEMA, fetch_ranges, read_record_batches

__all__ = ["SCHEMA", "HeadraceDataSource", "capture_offsets", "register"]

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("offset", LongType()),
        StructField("key", StringType()),
        StructField("tag", StringType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("body", BinaryType()),
        StructField("born_at", TimestampType()),
        StructField("stored_at", TimestampType()),
    ]
)

_OPTIONS = ("broker", "topic", "startingOffsets", "endingOffsets", "splitRecords")


def register(spark: SparkSession) -> None:
    """Makes `format("headrace")` known to a session; doing it twice changes nothing."""
    spark.dataSource.register(HeadraceDataSource)


def capture_offsets(broker: str, topics: Sequence[str]) -> str:
    """Returns where the topics end now, as the JSON that `endingOffsets` takes.

    Spark plans a DataFrame anew for every action; one that is given these offsets reads the same
    records each time.

    Raises:
        TopicNotFound: one of them does not exist.
        ConnectionLost: the broker cannot be reached.
    """
    ends: dict[str, dict[str, int]] = {}
    for queue in fetch_ranges(broker, topics):
        ends.setdefault(queue.topic, {})[str(queue.queue_id)] = queue.end
    return msgspec.json.encode(ends).decode()


class HeadraceDataSource(DataSource):
    """A topic, or several, as rows; the module's table lists the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read = _ReadOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """The word for `format(…)`."""
        return "headrace"

    def schema(self) -> StructType:
        """The columns, always all of them."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns what plans and reads; a schema of the user's own is refused.

        Raises:
            ValueError: the DataFrame was given another schema than the data source's.
        """
        if schema.names != ARROW_SCHEMA.names:
            raise ValueError("format('headrace') has its own columns; leave .schema(…) out")
        return _TopicsReader(self._read)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadOptions:
    broker: str
    topics: tuple[str, ...]
    starting: Bound
    ending: Bound
    split_records: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "_ReadOptions":
        known = {option.lower() for option in _OPTIONS}
        unknown = sorted(name for name in options if name.lower() not in known)
        if unknown:
            raise ValueError(
                f"format('headrace') knows no option {unknown[0]!r}; it knows {', '.join(_OPTIONS)}"
            )
        topics = [topic.strip() for topic in _required(options, "topic").split(",")]
        return cls(
            broker=_address(_required(options, "broker")),
            topics=tuple(sorted({check_topic(topic) for topic in topics})),
            starting=parse_bound("startingOffsets", options.get("startingOffsets") or "earliest"),
            ending=parse_bound("endingOffsets", options.get("endingOffsets") or "latest"),
            split_records=_count(options.get("splitRecords")),
        )


def _required(options: Mapping[str, str], name: str) -> str:
    value = (options.get(name) or "").strip()
    if not value:
        raise ValueError(f"format('headrace') needs .option({name!r}, …)")
    return value


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"broker is HOST:PORT, say 127.0.0.1:9876, not {text!r}")
    return text


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError(f"splitRecords is a number of records, 1 or more, not {text!r}")
    return int(text)


class _SlicePartition(InputPartition):
    """One slice; the base class pickles its value."""

    value: QueueSlice


class _TopicsReader(DataSourceReader):
    def __init__(self, options: _ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        slices = plan_slices(
            fetch_ranges(options.broker, options.topics),
            starting=options.starting,
            ending=options.ending,
            split_records=options.split_records,
        )
        return [_SlicePartition(piece) for piece in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one partition without a value of a plan without partitions.
        if partition.value is None:
            return iter(())
        return read_record_batches(self._options.broker, partition.value)
