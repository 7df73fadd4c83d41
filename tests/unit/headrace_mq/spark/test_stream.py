"""Micro-batches are planned from offsets alone; a restart plans the same ones."""

import json
import pickle
from typing import Any

import pytest
import structlog
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace_mq.errors import OffsetOutOfRange
from headrace_mq.spark.source import SCHEMA, HeadraceDataSource

GOOD = {"broker": "127.0.0.1:9876", "topic": "orders"}


@pytest.fixture
def queues(connected: Any, plain_columns: Any) -> Any:
    """Two queues of 10 and 30 records."""
    for queue_id, count in enumerate((10, 30)):
        connected.append(connected.add_queue("orders", queue_id), plain_columns(count))
    return list(connected.end)


def make(**options: str) -> Any:
    return HeadraceDataSource(GOOD | options).streamReader(SCHEMA)


def rows(stream: Any, start: Any, end: Any) -> list[tuple[int, int]]:
    # As Spark does it: offsets and partitions travel as text and pickles, the reader as a copy.
    partitions = stream.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    copy = pickle.loads(pickle.dumps(make()))
    return [
        (row["queue_id"], row["offset"])
        for partition in pickle.loads(pickle.dumps(partitions))
        for batch in copy.read(partition)
        for row in batch.to_pylist()
    ]


def test_batches_until_nothing_is_left_read_every_record_once(queues: Any) -> None:
    stream = make(maxRecordsPerBatch="12", splitRecords="5")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(12)
    at, read = stream.initialOffset(), []
    while (end := stream.latestOffset(at, limit)) != at:
        batch = rows(stream, at, end)
        assert 0 < len(batch) <= 12
        read += batch
        at = end
    assert sorted(read) == [(0, n) for n in range(10)] + [(1, n) for n in range(30)]
    assert stream.partitions(at, at) == []
    assert stream.reportLatestOffset() == {"orders": {"0": 10, "1": 30}}


def test_without_a_limit_all_there_is_makes_one_batch(queues: Any) -> None:
    stream = make()
    assert stream.reportLatestOffset() is None
    assert stream.getDefaultReadLimit() == ReadAllAvailable()
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert end == {"orders": {"0": 10, "1": 30}}
    assert len(rows(stream, {"orders": {"0": 4, "1": 30}}, end)) == 6


def test_an_available_now_query_leaves_messages_that_come_after_its_start(
    queues: Any, connected: Any, plain_columns: Any
) -> None:
    stream = make()
    stream.prepareForTriggerAvailableNow()
    connected.append(queues[0], plain_columns(5))
    connected.append(connected.add_queue("orders", 2), plain_columns(5))
    end = stream.latestOffset({"orders": {"0": 0, "1": 0}}, ReadAllAvailable())
    assert end == {"orders": {"0": 10, "1": 30}}
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    goes_on = make().latestOffset(end, ReadAllAvailable())
    assert goes_on == {"orders": {"0": 15, "1": 30, "2": 5}}
    assert rows(make(), end, goes_on) == [(0, n) for n in range(10, 15)] + [
        (2, n) for n in range(5)
    ]


def test_latest_begins_at_the_end(queues: Any) -> None:
    assert make(startingOffsets="latest").initialOffset() == {"orders": {"0": 10, "1": 30}}


def test_deleted_records_are_an_error_in_planning(queues: Any, connected: Any) -> None:
    connected.first[queues[1]] = 8
    stream, start = make(), {"orders": {"0": 0, "1": 3}}
    sentence = "offset 3 of orders/1 was deleted; the first one held is 8; set failOnDataLoss=false"
    with pytest.raises(OffsetOutOfRange, match=sentence):
        stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(OffsetOutOfRange, match=sentence):
        stream.partitions(start, {"orders": {"0": 0, "1": 30}})


def test_deleted_records_are_a_warning_where_that_was_asked_for(
    queues: Any, connected: Any
) -> None:
    connected.first[queues[1]] = 8
    stream, start = make(failOnDataLoss="false"), {"orders": {"0": 10, "1": 3}}
    with structlog.testing.capture_logs() as logs:
        end = stream.latestOffset(start, ReadMaxRows(5))
    assert end == {"orders": {"0": 10, "1": 13}}
    assert [(log["log_level"], log["queue_id"], log["next"], log["first"]) for log in logs] == [
        ("warning", 1, 3, 8)
    ]
    assert rows(stream, start, end) == [(1, n) for n in range(8, 13)]


def test_a_recreated_topic_is_an_error_or_read_from_its_start(queues: Any) -> None:
    start = {"orders": {"0": 99, "1": 30}}
    with pytest.raises(OffsetOutOfRange, match="offset 99 of orders/0 was reached before"):
        make().latestOffset(start, ReadAllAvailable())
    stream = make(failOnDataLoss="false")
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {"orders": {"0": 10, "1": 30}}
    assert rows(stream, start, end) == [(0, n) for n in range(10)]


def lose(connected: Any, plain_columns: Any, queues: Any) -> None:
    """Another broker leads: it has half of the longer queue, and then got more than were lost."""
    queue = queues[1]
    connected.batches[queue].clear()
    connected.end[queue] = 0
    connected.append(queue, plain_columns(15))
    connected.append(queue, plain_columns(25))
    connected.epochs, connected.changed[queue] = (5, 4), 15


def test_a_checkpoint_behind_other_messages_is_an_error_or_read_again_from_there(
    queues: Any, connected: Any, plain_columns: Any
) -> None:
    connected.epochs = (3, 0)
    stream = make()
    at = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert at == {"orders": {"0": 10, "1": 30}, "%epochs%orders": {"0": 3, "1": 3}}
    assert stream.reportLatestOffset() == {"orders": {"0": 10, "1": 30}}
    lose(connected, plain_columns, queues)
    with pytest.raises(OffsetOutOfRange, match="orders/1 was read up to offset 30, but brokers lo"):
        make().latestOffset(at, ReadAllAvailable())
    for available_now in (False, True):
        stream = make(failOnDataLoss="false")
        if available_now:
            stream.prepareForTriggerAvailableNow()
        end = stream.latestOffset(at, ReadAllAvailable())
        assert end == {"orders": {"0": 10, "1": 40}, "%epochs%orders": {"0": 3, "1": 5}}
        assert rows(stream, at, end) == [(1, n) for n in range(15, 40)]
        assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_a_loss_before_the_first_question_is_an_error_or_read_again_from_there(
    queues: Any, connected: Any, plain_columns: Any
) -> None:
    place = {
        "startingOffsets": '{"orders": {"0": 10, "1": 30}}',
        "startingEpochs": '{"orders": {"0": 3, "1": 3}}',
    }
    connected.epochs = (4, 0)
    start = {"orders": {"0": 10, "1": 30}, "%epochs%orders": {"0": 3, "1": 3}}
    assert make(**place).initialOffset() == start
    lose(connected, plain_columns, queues)
    with pytest.raises(OffsetOutOfRange, match="orders/1 was read up to offset 30, but brokers lo"):
        make(**place).initialOffset()
    stream = make(failOnDataLoss="false", **place)
    assert stream.initialOffset() == start
    end = stream.latestOffset(start, ReadAllAvailable())
    assert rows(stream, start, end) == [(1, n) for n in range(15, 40)]


def test_a_planned_batch_of_lost_messages_is_an_error_or_cut(
    queues: Any, connected: Any, plain_columns: Any
) -> None:
    connected.epochs = (3, 0)
    stream = make()
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    lose(connected, plain_columns, queues)
    with pytest.raises(OffsetOutOfRange, match="build it again"):
        make().partitions(start, end)
    stream = make(failOnDataLoss="false")
    assert len(rows(stream, start, end)) == 10 + 15
    after = stream.latestOffset(end, ReadAllAvailable())
    assert rows(stream, end, after) == [(1, n) for n in range(15, 40)]


def test_a_checkpoint_of_an_earlier_version_goes_on(queues: Any, connected: Any) -> None:
    connected.epochs = (5, 4)
    old = {"orders": {"0": 10, "1": 7}}
    stream = make()
    end = stream.latestOffset(old, ReadAllAvailable())
    assert end == {"orders": {"0": 10, "1": 30}, "%epochs%orders": {"1": 5}}
    assert rows(stream, old, end) == [(1, n) for n in range(7, 30)]
