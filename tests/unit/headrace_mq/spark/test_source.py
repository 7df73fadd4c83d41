"""Options are checked where they are written; planning and reading fit together."""

import pickle
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace_mq.spark import reader as reader_module
from headrace_mq.spark import source
from headrace_mq.spark.source import SCHEMA, HeadraceDataSource, capture_offsets

GOOD = {"broker": "127.0.0.1:9876", "topic": "orders"}


@pytest.fixture
def connected(broker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts the broker made of lists where connections are opened."""

    def open_reader(address: str, *, timeout_ms: int) -> Any:
        return broker.connect(address, timeout_ms)

    monkeypatch.setattr(reader_module, "BlockingReader", open_reader)
    return broker


def test_the_declared_schema_is_the_one_of_the_arrow_batches() -> None:
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(reader_module.ARROW_SCHEMA)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": "orders"}, r"needs \.option\('broker', …\)"),
        ({"broker": "127.0.0.1:9876", "topic": " "}, r"needs \.option\('topic', …\)"),
        (GOOD | {"broker": "localhost"}, "broker is HOST:PORT, say .* not 'localhost'"),
        (GOOD | {"broker": "host:http"}, "broker is HOST:PORT"),
        (GOOD | {"topic": "orders,bad topic"}, "topic 'bad topic': use letters"),
        (GOOD | {"startingOffset": "latest"}, "knows no option 'startingOffset'; it knows broker"),
        (GOOD | {"startingOffsets": "newest"}, "startingOffsets: use"),
        (GOOD | {"splitRecords": "0"}, "splitRecords is a number of records, 1 or more, not '0'"),
        (GOOD | {"splitRecords": "many"}, "splitRecords is a number of records"),
    ],
)
def test_a_wrong_option_is_refused_when_the_source_is_made(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        HeadraceDataSource(options)


def test_a_schema_of_the_users_own_is_refused() -> None:
    with pytest.raises(ValueError, match="has its own columns"):
        HeadraceDataSource(dict(GOOD)).reader(StructType(SCHEMA.fields[:2]))


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

    class Session:
        dataSource = Registry()  # noqa: N815 - PySpark's spelling

    source.register(Session())  # type: ignore[arg-type]  # a session without Java
    assert registered == [HeadraceDataSource]


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra_the_import_names_the_command(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import headrace_mq.spark"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "MessageQueueError: reading topics with Spark needs" in done.stderr
    assert "pip install 'headrace[spark]'" in done.stderr
