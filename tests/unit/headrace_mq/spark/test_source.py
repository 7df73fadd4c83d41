"""Options are checked where they are written; planning and reading fit together."""

import pickle
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThan, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace_mq.errors import ConnectionLost
from headrace_mq.protocol.batch import Columns
from headrace_mq.spark import source
from headrace_mq.spark.columns import ARROW_SCHEMA
from headrace_mq.spark.source import SCHEMA, HeadraceDataSource, capture_offsets
from headrace_mq.spark.writer import TopicWriter

GOOD = {"broker": "127.0.0.1:9876", "topic": "orders"}


def test_the_declared_schema_is_the_one_of_the_arrow_batches() -> None:
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(ARROW_SCHEMA)


def test_a_wrong_option_is_refused_when_the_source_is_made() -> None:
    with pytest.raises(ValueError, match="has no option 'startingOffset'"):
        HeadraceDataSource(GOOD | {"startingOffset": "latest"})


@pytest.mark.parametrize("use", ["reader", "streamReader"])
@pytest.mark.parametrize(
    "field",
    [StructField("price", LongType()), StructField("offset", StringType())],
)
def test_a_schema_with_other_columns_is_refused(use: str, field: StructField) -> None:
    with pytest.raises(ValueError, match=f"has no column {field.name} .*choose from topic string"):
        getattr(HeadraceDataSource(dict(GOOD)), use)(StructType([field]))


@pytest.mark.parametrize("push", ["true", "false"])
def test_a_reader_takes_filters_unless_its_options_say_no(push: str) -> None:
    # Spark refuses a reader that has the method where the session's setting is off.
    planned = HeadraceDataSource(GOOD | {"pushFilters": push}).reader(SCHEMA)
    has_own = type(planned).pushFilters is not DataSourceReader.pushFilters
    assert has_own == (push == "true")


def test_filters_narrow_partitions_and_skip_batches(connected: Any) -> None:
    for queue_id in range(2):
        queue = connected.add_queue("orders", queue_id)
        for tag in ("x", "y", "x"):
            connected.append(queue, Columns([], [tag, tag], [], [b"1", b"2"], []))
    planned: Any = HeadraceDataSource(GOOD | {"splitRecords": "2"}).reader(SCHEMA)
    tag = EqualTo(("tag",), "y")
    filters = [EqualTo(("queue_id",), 1), GreaterThan(("offset",), 0), tag]
    assert list(planned.pushFilters(filters)) == [tag]
    places = [(p.value.queue.queue_id, p.value.start, p.value.end) for p in planned.partitions()]
    assert places == [(1, 1, 3), (1, 3, 5), (1, 5, 6)]
    reading = pickle.loads(pickle.dumps(planned))
    rows = [
        row["offset"]
        for partition in planned.partitions()
        for batch in reading.read(partition)
        for row in batch.to_pylist()
    ]
    assert rows == [2, 3]


def test_a_write_is_looked_at_before_it_starts(connected: Any) -> None:
    connected.add_queue("orders", 0)
    made = HeadraceDataSource(dict(GOOD))
    good = StructType([StructField("body", StringType())])
    assert isinstance(made.writer(good, overwrite=False), TopicWriter)
    with pytest.raises(ValueError, match="can only be appended to"):
        made.writer(good, overwrite=True)
    with pytest.raises(ValueError, match="add a column 'body'"):
        made.writer(StructType([]), overwrite=False)
    connected.refuses = True
    with pytest.raises(ConnectionLost, match="this was tried on"):
        made.writer(good, overwrite=False)


def test_partitions_survive_pickling_and_read_everything_once(
    connected: Any, plain_columns: Any
) -> None:
    for queue_id in (0, 1):
        queue = connected.add_queue("orders", queue_id)
        connected.append(queue, plain_columns(7))
    planned = HeadraceDataSource(GOOD | {"splitRecords": "4"}).reader(SCHEMA)
    partitions = pickle.loads(pickle.dumps(planned.partitions()))
    assert len(partitions) == 4
    reading = pickle.loads(pickle.dumps(planned))
    offsets = [
        (row["queue_id"], row["offset"])
        for partition in partitions
        for batch in reading.read(partition)
        for row in batch.to_pylist()
    ]
    assert sorted(offsets) == [(queue, offset) for queue in (0, 1) for offset in range(7)]


def test_the_partition_that_spark_makes_of_an_empty_plan_is_empty() -> None:
    reading = HeadraceDataSource(dict(GOOD)).reader(SCHEMA)
    assert list(reading.read(InputPartition(None))) == []


def test_captured_offsets_are_the_ending_offsets_of_a_later_read(
    connected: Any, plain_columns: Any
) -> None:
    queue = connected.add_queue("orders", 0)
    connected.append(queue, plain_columns(5))
    captured = capture_offsets("127.0.0.1:9876", ["orders"])
    connected.append(queue, plain_columns(5))
    planned = HeadraceDataSource(GOOD | {"endingOffsets": captured}).reader(SCHEMA)
    [partition] = planned.partitions()
    assert (partition.value.start, partition.value.end) == (0, 5)


def test_registering_names_the_class_to_the_session() -> None:
    registered: list[type] = []

    class Registry:
        register = staticmethod(registered.append)

    class Settings(dict[str, str]):
        set = dict.__setitem__

    class Session:
        dataSource = Registry()  # noqa: N815 - PySpark's spelling
        conf = Settings()

    source.register(Session())  # type: ignore[arg-type]  # a session without Java
    assert registered == [HeadraceDataSource]
    assert Session.conf == {"spark.sql.python.filterPushdown.enabled": "true"}


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra_the_import_names_the_command(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import headrace_mq.spark"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "MessageQueueError: reading topics with Spark needs" in done.stderr
    assert "pip install 'headrace[spark]'" in done.stderr


def test_the_address_of_another_queue_names_the_source_that_reads_it() -> None:
    with pytest.raises(ValueError, match=r"option 'broker': .* with Spark's own format\('kafka'\)"):
        HeadraceDataSource({"broker": "kafka://h:9092", "topic": "orders"})
