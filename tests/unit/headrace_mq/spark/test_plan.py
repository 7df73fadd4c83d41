"""The options and what the broker holds make the ranges to read."""

from collections.abc import Callable
from typing import Any

import pytest
import structlog

from headrace_mq.message import QueueRef
from headrace_mq.spark.options import SourceOptions
from headrace_mq.spark.plan import slices_of, starts_of
from headrace_mq.spark.reader import fetch_ranges

GOOD = {"broker": "127.0.0.1:9876", "topic": "orders"}


@pytest.fixture
def plan(connected: Any, plain_columns: Any) -> Callable[..., list[tuple[int, int, int]]]:
    """Plans over two queues: 0 holds 10 to 40, stored at 1, 2, 3 s; 1 holds 0 to 10, at 2 s."""
    zero, one = connected.add_queue("orders", 0, first=10), connected.add_queue("orders", 1)
    for second in (1, 2, 3):
        connected.append(zero, plain_columns(10), stored_ms=second * 1_000)
    connected.append(one, plain_columns(10), stored_ms=2_000)

    def make(**options: str) -> list[tuple[int, int, int]]:
        held = fetch_ranges(GOOD["broker"], ["orders"])
        slices = slices_of(SourceOptions.parse(GOOD | options), held)
        return [(piece.queue.queue_id, piece.start, piece.end) for piece in slices]

    return make


def test_without_options_all_that_is_held_is_read(plan: Any) -> None:
    assert plan() == [(0, 10, 40), (1, 0, 10)]


def test_times_bound_every_queue(plan: Any) -> None:
    assert plan(startingTimestamp="2000") == [(0, 20, 40), (1, 0, 10)]
    assert plan(startingTimestamp="2001") == [(0, 30, 40)]
    assert plan(endingTimestamp="1970-01-01T00:00:02Z") == [(0, 10, 20)]
    assert plan(startingTimestamp="1500", endingTimestamp="2500") == [(0, 20, 30), (1, 0, 10)]


def test_a_time_and_offsets_go_together(plan: Any) -> None:
    bounds = {"startingTimestamp": "2000", "endingOffsets": '{"orders": {"0": 25, "1": 4}}'}
    assert plan(**bounds) == [(0, 20, 25), (1, 0, 4)]


def test_deleted_offsets_are_an_error_that_names_queue_and_both_offsets(plan: Any) -> None:
    with pytest.raises(ValueError, match="asks for offset 3 of orders/0, which holds 10 to 40"):
        plan(startingOffsets='{"orders": {"0": 3}}')


def test_deleted_offsets_are_a_warning_where_that_was_asked_for(plan: Any) -> None:
    with structlog.testing.capture_logs() as logs:
        pieces = plan(startingOffsets='{"orders": {"0": 3, "1": 4}}', failOnDataLoss="false")
    assert pieces == [(0, 10, 40), (1, 4, 10)]
    [warning] = logs
    assert (warning["log_level"], warning["topic"], warning["queue_id"]) == ("warning", "orders", 0)
    assert (warning["first"], warning["next"]) == (3, 10)
    ended = plan(startingOffsets="earliest", endingOffsets='{"orders": {"0": 3}}', failOnDataLoss="false")  # fmt: skip
    assert ended == [(1, 0, 10)]


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ({}, [10, 0]),
        ({"startingOffsets": "latest"}, [40, 10]),
        ({"startingOffsets": '{"orders": {"1": 4}}'}, [10, 4]),
        ({"startingTimestamp": "2000"}, [20, 0]),
        ({"startingOffsets": '{"orders": {"0": 4}}', "failOnDataLoss": "false"}, [10, 0]),
    ],
)
def test_a_stream_begins_at_an_offset_of_every_queue(
    plan: Any, options: dict[str, str], starts: list[int]
) -> None:
    held = fetch_ranges(GOOD["broker"], ["orders"])
    begun = starts_of(SourceOptions.parse(GOOD | options), held)
    assert begun == {QueueRef("orders", n): offset for n, offset in enumerate(starts)}


def test_a_stream_cannot_begin_outside_what_is_held(plan: Any) -> None:
    held = fetch_ranges(GOOD["broker"], ["orders"])
    options = SourceOptions.parse(GOOD | {"startingOffsets": '{"orders": {"0": 41}}'})
    with pytest.raises(ValueError, match="asks for offset 41 of orders/0"):
        starts_of(options, held)
