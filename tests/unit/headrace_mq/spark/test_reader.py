"""A slice becomes Arrow batches, each record once, whatever the connection does."""

import gc
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace_mq.errors import ConnectionLost, OffsetOutOfRange
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns
from headrace_mq.spark.columns import ARROW_SCHEMA
from headrace_mq.spark.offsets import QueueSlice
from headrace_mq.spark.reader import (
    Choice,
    ReadSettings,
    ask,
    fetch_offsets_at,
    fetch_ranges,
    message_bytes,
    rarely_collecting,
    read_columns,
    read_record_batches,
)

ADDRESS = "127.0.0.1:1"


def whole(queue: QueueRef, end: int, *, start: int = 0) -> QueueSlice:
    return QueueSlice(queue=queue, start=start, end=end)


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_every_field_of_a_record_has_its_column(broker: Any) -> None:
    queue = broker.add_queue("orders", 3, first=10)
    broker.append(
        queue,
        Columns(["k", "l"], ["new", ""], [{"a": "1", "b": "2"}, {}], [b"x", b""], [0, 7]),
        born_ms=1_700_000_000_123,
        stored_ms=1_700_000_000_500,
    )
    [batch] = read_record_batches(ADDRESS, whole(queue, 12, start=10), connect=broker.connect)
    assert batch.schema.equals(ARROW_SCHEMA)
    first, second = batch.to_pylist()
    assert first == {
        "topic": "orders",
        "queue_id": 3,
        "offset": 10,
        "key": "k",
        "tag": "new",
        "headers": [("a", "1"), ("b", "2")],
        "body": b"x",
        "born_at": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "stored_at": datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC),
    }
    assert (second["offset"], second["key"], second["tag"], second["headers"], second["body"]) == (
        11, "l", "", [], b"",
    )  # fmt: skip
    assert second["born_at"] == datetime(2023, 11, 14, 22, 13, 20, 130_000, tzinfo=UTC)


def test_columns_of_defaults_are_filled(broker: Any, plain_columns: Any) -> None:
    queue = broker.add_queue("orders", 0)
    broker.append(queue, plain_columns(2))
    broker.append(queue, Columns(["k"], ["t"], [{"h": "v"}], [b"2"], [5]))
    rows = rows_of(read_record_batches(ADDRESS, whole(queue, 3), connect=broker.connect))
    assert [row["key"] for row in rows] == ["", "", "k"]
    assert [row["tag"] for row in rows] == ["", "", "t"]
    assert [row["headers"] for row in rows] == [[], [], [("h", "v")]]


def test_only_the_slice_is_read_where_it_begins_and_ends_inside_a_batch(
    broker: Any, plain_columns: Any
) -> None:
    queue = broker.add_queue("orders", 0)
    for start in range(0, 30, 10):
        broker.append(queue, plain_columns(10, start=start))
    rows = rows_of(read_record_batches(ADDRESS, whole(queue, 24, start=7), connect=broker.connect))
    assert [row["offset"] for row in rows] == list(range(7, 24))
    assert [row["body"] for row in rows] == [str(n).encode() for n in range(7, 24)]


def test_wire_batches_are_joined_up_to_the_batch_limits(broker: Any, plain_columns: Any) -> None:
    queue = broker.add_queue("orders", 0)
    for start in range(0, 100, 10):
        broker.append(queue, plain_columns(10, start=start))
    by_rows = list(
        read_record_batches(
            ADDRESS, whole(queue, 100), settings=ReadSettings(batch_rows=25), connect=broker.connect
        )
    )
    assert [batch.num_rows for batch in by_rows] == [30, 30, 30, 10]
    by_bytes = list(
        read_record_batches(
            ADDRESS,
            whole(queue, 100),
            settings=ReadSettings(batch_bytes=40),
            connect=broker.connect,
        )
    )
    assert [batch.num_rows for batch in by_bytes] == [30, 20, 20, 20, 10]


def test_a_broken_connection_is_taken_up_at_the_next_record(
    broker: Any, plain_columns: Any
) -> None:
    queue = broker.add_queue("orders", 0)
    for start in range(0, 50, 10):
        broker.append(queue, plain_columns(10, start=start))
    broker.break_after = [2, 4]
    pauses: list[float] = []
    parts = list(
        read_columns(ADDRESS, whole(queue, 50), connect=broker.connect, pause=pauses.append)
    )
    bodies = [body for _, columns, first, last in parts for body in columns.bodies[first:last]]
    assert bodies == [str(n).encode() for n in range(50)]
    assert broker.connections == 3
    assert broker.open == 0
    assert pauses == [0.1, 0.1]


def test_attempts_in_a_row_without_a_record_are_bounded_and_pauses_grow(
    broker: Any, plain_columns: Any
) -> None:
    queue = broker.add_queue("orders", 0)
    broker.append(queue, plain_columns(1))
    broker.refuses = True
    pauses: list[float] = []
    reading = read_columns(
        ADDRESS,
        whole(queue, 1),
        settings=ReadSettings(attempts_max=5, pause_ms_min=100, pause_ms_max=300),
        connect=broker.connect,
        pause=pauses.append,
    )
    with pytest.raises(
        ConnectionLost, match=r"refused; this was tried on .*, and every Spark executor"
    ):
        list(reading)
    assert pauses == [0.1, 0.2, 0.3, 0.3]


def test_a_broker_that_ends_before_the_slice_is_an_error_not_a_short_read(
    broker: Any, plain_columns: Any
) -> None:
    queue = broker.add_queue("orders", 0)
    broker.append(queue, plain_columns(3))
    with pytest.raises(ConnectionLost, match="only up to offset 3, not to 5"):
        list(read_columns(ADDRESS, whole(queue, 5), connect=broker.connect, pause=lambda _: None))


def test_an_answer_that_cannot_change_is_not_asked_for_again(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.add_queue("orders", 0)
    opened: list[str] = []

    def connect(address: str, timeout_ms: int) -> Any:
        opened.append(address)
        reader = broker.connect(address, timeout_ms)

        def read(*_: object, **__: object) -> Any:
            raise OffsetOutOfRange("orders/0 begins at 9")
            yield

        monkeypatch.setattr(reader, "read", read)
        return reader

    with pytest.raises(OffsetOutOfRange, match="begins at 9"):
        list(read_columns(ADDRESS, whole(queue, 5), connect=connect, pause=lambda _: None))
    assert len(opened) == 1


def test_deleted_records_are_an_error_or_left_out(broker: Any, plain_columns: Any) -> None:
    queue = broker.add_queue("orders", 0)
    for start in range(0, 30, 10):
        broker.append(queue, plain_columns(10, start=start))
    broker.first[queue] = 10
    with pytest.raises(OffsetOutOfRange, match="the first offset held is 10"):
        list(read_columns(ADDRESS, whole(queue, 30), connect=broker.connect))
    batches = read_record_batches(
        ADDRESS, whole(queue, 30), Choice(skip_deleted=True), connect=broker.connect
    )
    assert [row["offset"] for row in rows_of(batches)] == list(range(10, 30))
    broker.first[queue] = broker.end[queue] = 40
    gone = read_columns(ADDRESS, whole(queue, 30), skip_deleted=True, connect=broker.connect)
    assert list(gone) == []


def test_only_batches_that_are_kept_become_rows(broker: Any, plain_columns: Any) -> None:
    queue = broker.add_queue("orders", 0)
    for stored in (10, 20, 30):
        broker.append(queue, plain_columns(2), stored_ms=stored)
    choice = Choice(
        schema=pa.schema([ARROW_SCHEMA.field("offset")]),
        keep=lambda header: header.appended_at_ms != 20,
    )
    batches = read_record_batches(ADDRESS, whole(queue, 6), choice, connect=broker.connect)
    assert rows_of(batches) == [{"offset": 0}, {"offset": 1}, {"offset": 4}, {"offset": 5}]


def test_a_patient_question_is_asked_again_and_others_are_not(broker: Any) -> None:
    broker.add_queue("orders", 0)
    broker.refuses = True
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        broker.refuses = len(pauses) < 3

    def question(reader: Any) -> int:
        return len(reader.ranges(["orders"]))

    with pytest.raises(ConnectionLost, match="this was tried on"):
        ask(ADDRESS, question, connect=broker.connect, pause=pause)
    assert ask(ADDRESS, question, patient=True, connect=broker.connect, pause=pause) == 1
    assert pauses == [0.1, 0.2, 0.4]


def test_ranges_come_sorted(broker: Any) -> None:
    broker.add_queue("b", 1)
    broker.add_queue("b", 0)
    broker.add_queue("a", 0, first=4)
    ranges = fetch_ranges(ADDRESS, ["b", "a"], connect=broker.connect)
    assert [(r.topic, r.queue_id, r.first) for r in ranges] == [
        ("a", 0, 4),
        ("b", 0, 0),
        ("b", 1, 0),
    ]


def test_sizes_are_estimated_by_what_lies_in_the_middle(broker: Any) -> None:
    small, large, gone = (broker.add_queue("orders", number) for number in (0, 1, 2))
    for _ in range(10):
        broker.append(small, Columns([], [], [], [b"x" * 10] * 5, []))
        broker.append(large, Columns([], [], [], [b"x" * 300] * 5, []))
    slices = [whole(small, 50), whole(large, 50), whole(gone, 40)]
    sizes = message_bytes(ADDRESS, slices, connect=broker.connect)
    assert sizes == {small: 10.0, large: 300.0, gone: 155.0}
    assert message_bytes(ADDRESS, [whole(gone, 40)], connect=broker.connect) == {}


def test_offsets_at_a_moment_lie_within_what_was_held_when_the_read_was_planned(
    broker: Any, plain_columns: Any
) -> None:
    for queue_id in range(4):
        queue = broker.add_queue("orders", queue_id)
        for stored in (10, 20, 30)[queue_id % 3 :]:
            broker.append(queue, plain_columns(4), stored_ms=stored + queue_id)
    held = broker.connect("", 0).ranges(["orders"])[:3]
    broker.append(QueueRef("orders", 0), plain_columns(4), stored_ms=40)
    # The broker goes away once.
    broker.break_after = [0]
    found = fetch_offsets_at(
        ADDRESS, held, 31, settings=ReadSettings(pause_ms_min=0), connect=broker.connect
    )
    # Of the first queue what came since does not count; the last one came since.
    assert found == {
        QueueRef("orders", 0): 12,
        QueueRef("orders", 1): 4,
        QueueRef("orders", 2): 0,
    }


def test_a_broker_that_is_not_there_is_said_with_the_machine_that_tried(broker: Any) -> None:
    broker.refuses = True
    with pytest.raises(ConnectionLost, match="connection refused; this was tried on"):
        fetch_ranges(ADDRESS, ["a"], connect=broker.connect)


def test_garbage_is_collected_as_before_when_a_slice_is_read(
    broker: Any, plain_columns: Any
) -> None:
    queue = broker.add_queue("orders", 0)
    broker.append(queue, plain_columns(3))
    before = gc.get_threshold()
    reading = read_record_batches(ADDRESS, whole(queue, 3), connect=broker.connect)
    next(reading)
    assert gc.get_threshold()[0] > before[0]
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    assert gc.get_threshold() == before
    with pytest.raises(KeyError), rarely_collecting():
        raise KeyError
    assert gc.get_threshold() == before
