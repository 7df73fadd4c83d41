"""
The data source `headrace`: one Spark partition per queue and offset range, and rows as messages.

Used by Spark for `format("headrace")`; makes the readers and the writer. Spark plans and reads in
separate Python processes, so a reader or its partition must hold everything that reading needs.
The module `options` lists the options.
"""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import ClassVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
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

from headrace_mq._net.address import BrokerAddress
from headrace_mq.spark.columns import ARROW_SCHEMA
from headrace_mq.spark.filters import RowFilter, take_filters
from headrace_mq.spark.offsets import split_slices
from headrace_mq.spark.options import SourceOptions
from headrace_mq.spark.plan import SlicePartition, slices_of
from headrace_mq.spark.reader import Choice, fetch_ranges, read_record_batches
from headrace_mq.spark.stream import TopicsStream
from headrace_mq.spark.writer import TopicWriter, check_columns

__all__ = [
    "SCHEMA",
    "HeadraceDataSource",
    "UnregisteredDataSource",
    "capture_offsets",
    "register",
]

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


def register(spark: SparkSession) -> None:
    """Registers `format("headrace")` with a session; a second call changes nothing.

    This turns on the session's setting `spark.sql.python.filterPushdown.enabled`: without it, Spark
    refuses a data source that accepts filters.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(HeadraceDataSource)


def capture_offsets(broker: str, topics: Sequence[str]) -> str:
    """Returns the current ends of the topics, as the JSON that `endingOffsets` takes.

    Spark plans a DataFrame again for every action. With these offsets as its end, the DataFrame reads
    the same records each time.

    Raises:
        TopicNotFound: one of them does not exist.
        ConnectionLost: the broker cannot be reached.
    """
    ends: dict[str, dict[str, int]] = {}
    for queue in fetch_ranges(broker, topics):
        ends.setdefault(queue.topic, {})[str(queue.queue_id)] = queue.end
    return msgspec.json.encode(ends).decode()


class HeadraceDataSource(DataSource):
    """One or more topics as rows.

    Attributes:
        stream: what plans and reads micro-batches.
    """

    stream: ClassVar[type[TopicsStream]] = TopicsStream

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = SourceOptions.parse(options, check=self.check_address)

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format(…)`."""
        return "headrace"

    @staticmethod
    def check_address(address: str) -> None:
        """Raises ValueError for a broker's address that cannot be used."""
        if address.startswith("kafka://"):
            raise ValueError("read a topic of a Kafka cluster with Spark's own format('kafka')")
        BrokerAddress.parse(address)

    def schema(self) -> StructType:
        """Returns all columns; a user's own schema may choose some of them."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader that plans and reads a batch.

        Raises:
            ValueError: an option is missing or does not fit a batch, or the schema has other columns.
        """
        options = self._parsed.for_batch()
        choice = _choice(options, schema)
        pushed = options.push_filters and self._pushes(options)
        return _FilteringReader(options, choice) if pushed else _TopicsReader(options, choice)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's
        """Returns the reader that plans and reads micro-batches; raises as `reader`."""
        options = self._parsed.for_stream()
        return self.stream(options, _choice(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns the writer that sends rows; checks first that the rows can be messages.

        Raises:
            ValueError: the rows have columns that no message has, or the write would overwrite rows.
            TopicNotFound: there is no such topic.
            ConnectionLost: the broker cannot be reached from the driver.
        """
        options = self._parsed.for_writing()
        if overwrite:
            raise ValueError("a topic can only be appended to: use .mode('append')")
        topic = options.topics[0] if options.topics else None
        check_columns(schema, topic)
        fetch_ranges(options.broker, options.topics)
        return TopicWriter(options.broker, topic)

    def _pushes(self, options: SourceOptions) -> bool:  # noqa: ARG002 - what a subclass asks
        """Whether filters go to the source unless an option says otherwise."""
        return True


class UnregisteredDataSource(HeadraceDataSource):
    """The data source as Spark finds it by itself, in a session without `register`.

    Spark refuses a source that accepts filters where its setting for that is off, as it is by default. So
    this one leaves filters to Spark, unless the option `pushFilters` is set.
    """

    def _pushes(self, options: SourceOptions) -> bool:
        return "pushFilters" in options.given


def _choice(options: SourceOptions, schema: StructType) -> Choice:
    known = {field.name: field.dataType for field in SCHEMA.fields}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise ValueError(
                f"format('headrace') has no column {field.name} {field.dataType.simpleString()};"
                f" leave .schema(…) out, or choose from {columns}"
            )
    fields = [ARROW_SCHEMA.field(one.name).with_nullable(one.nullable) for one in schema.fields]
    return Choice(
        schema=pa.schema(fields),
        include_headers=options.include_headers,
        skip_deleted=not options.fail_on_data_loss,
    )


class _TopicsReader(DataSourceReader):
    """Reads all records that the options name."""

    def __init__(self, options: SourceOptions, choice: Choice) -> None:
        self._options = options
        self._choice = choice
        self._wanted = RowFilter()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        whole = slices_of(options, fetch_ranges(options.broker, options.topics))
        pieces = split_slices(self._wanted.narrow(whole), options.split_records)
        return [SlicePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For a plan without partitions, Spark makes one partition without a value.
        if partition.value is None:
            return iter(())
        choice = msgspec.structs.replace(self._choice, keep=self._wanted.chooser())
        return read_record_batches(self._options.broker, partition.value, choice)


class _FilteringReader(_TopicsReader):
    """Reads the records that may pass the filters.

    It is a class of its own because Spark looks for the method `pushFilters`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's
        self._wanted, left = take_filters(filters)
        return left
