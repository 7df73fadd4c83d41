"""Halving a queue's range finds where it passes a moment."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.times import fetch_offsets_at, offset_at

ADDRESS = "127.0.0.1:1"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=20),
    cut=st.integers(0, 8),
    moment=st.integers(-1, 60),
)
def test_the_offset_is_the_first_that_was_stored_then_or_later(
    make_broker: Any, plain_columns: Any, batches: list[tuple[int, int]], cut: int, moment: int
) -> None:
    broker = make_broker()
    queue = broker.add_queue("orders", 0)
    stored: list[int] = []
    now = 0
    for count, later in batches:
        now += later
        broker.append(queue, plain_columns(count), stored_ms=now)
        stored += [now] * count
    first = min(cut, len(stored))
    held = QueueRange("orders", 0, first, len(stored))
    expected = next((n for n in range(first, len(stored)) if stored[n] >= moment), len(stored))
    assert offset_at(broker.connect("", 0), held, moment) == expected


def test_offsets_that_are_missing_do_not_stop_the_search(broker: Any, plain_columns: Any) -> None:
    queue = broker.add_queue("orders", 0)
    broker.append(queue, plain_columns(2), stored_ms=10)
    broker.end[queue] = 90
    broker.append(queue, plain_columns(2), stored_ms=20)
    held = QueueRange("orders", 0, 0, 92)
    assert offset_at(broker.connect("", 0), held, 10) == 0
    # Nothing stands between 2 and 90, so any of them begins the same read.
    assert 2 <= offset_at(broker.connect("", 0), held, 15) <= 90
    assert offset_at(broker.connect("", 0), held, 21) == 92


def test_one_connection_serves_all_queues_and_a_break_is_taken_up(
    broker: Any, plain_columns: Any
) -> None:
    for queue_id in range(3):
        queue = broker.add_queue("orders", queue_id)
        for stored in (10, 20, 30):
            broker.append(queue, plain_columns(4), stored_ms=stored + queue_id)
    held = broker.connect("", 0).ranges(["orders"])
    before = broker.connections
    assert fetch_offsets_at(ADDRESS, held, 21, connect=broker.connect) == {
        QueueRef("orders", 0): 8,
        QueueRef("orders", 1): 4,
        QueueRef("orders", 2): 4,
    }
    assert broker.connections == before + 1
