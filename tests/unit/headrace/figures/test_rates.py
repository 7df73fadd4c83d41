"""Rates from two looks: counters divided by the time between, lags as they are now."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.figures.rates import rates
from headrace.figures.sample import TopSample
from headrace_mq.protocol.administration import (
    NO_TRAFFIC,
    BrokerStatus,
    ConnectionDescription,
    GroupSummary,
    LogDescription,
    ProcessDescription,
    QueueDescription,
    Traffic,
)

TRAFFIC = Traffic(5, 500, 20, 2_000)


def sample(at_ms: int = 0, **changed: Any) -> TopSample:
    values: dict[str, Any] = {
        "status": None, "queues": [], "groups": [], "oldest_ms": {}, "connections": [],
    }  # fmt: skip
    return TopSample(at_ms, **values | changed)


def queue(topic: str, number: int, end: int, first: int = 0) -> QueueDescription:
    return QueueDescription(topic, number, first, end, True, True, 0, 0, TRAFFIC, TRAFFIC)


def connection(name: str = "c", produced: int = 0, **changed: Any) -> ConnectionDescription:
    values: dict[str, Any] = {
        "client_id": name, "address": "h:1", "software": "s", "since_ms": 1, "roles": ["producer"],
        "groups": ["g"], "received_bytes": 10 * produced, "sent_bytes": produced, "produced": produced,
    }  # fmt: skip
    return ConnectionDescription(**values | changed)


def status(end: int = 0, cpu_ms: int = 0, **changed: Any) -> BrokerStatus:
    values: dict[str, Any] = {
        "now_ms": 0, "topics": 1, "queues": 2, "groups": 3, "connections": 4, "refuses": "",
        "produced": TRAFFIC, "fetched": NO_TRAFFIC, "logs": [LogDescription("transient", 1, 1 << 20, 10, end)],
        "process": [ProcessDescription("headrace 1", cpu_ms, 7 << 20, 100, 25, 90)],
    }  # fmt: skip
    return BrokerStatus(**values | changed)


def test_a_topic_has_what_its_queues_have_together() -> None:
    before = sample(0, queues=[queue("t", 0, 10), queue("t", 1, 10), queue("u", 0, 5)])
    now = sample(
        2_000,
        queues=[queue("u", 0, 5), queue("t", 0, 30, first=5), queue("t", 1, 20), queue("t", 2, 6)],
    )
    t, u = rates(before, now).topics
    # 20 and 10 came in, and 6 in a queue that is new, in two seconds.
    assert t == ("t", 3, 51, 18.0, 1_500, 15, 1_500)
    assert (u.topic, u.messages_in) == ("u", 0.0)


def test_without_an_earlier_look_nothing_came_in() -> None:
    one = sample(5_000, queues=[queue("t", 0, 10)], status=status(50, 1_000))
    found = rates(one, one)
    assert found.topics[0].messages_in == 0
    assert found.broker is not None
    assert found.broker.cpu_percent == 0
    first = rates(sample(0), sample(1_000, queues=[queue("t", 0, 10)]))
    assert first.topics[0].messages_in == 0


def test_the_broker_has_its_processor_memory_disk_and_logs() -> None:
    before = sample(0, status=status(50, 1_000, throttled=2))
    found = rates(before, sample(2_000, status=status(250, 2_500, throttled=4, held=1))).broker
    assert found is not None
    assert (found.software, found.cpu_percent, found.memory_bytes) == ("headrace 1", 75.0, 7 << 20)
    assert (found.disk_percent, found.disk_free_bytes) == (75.0, 25)
    assert (found.log_bytes, found.log_growth) == (240, 100.0)
    assert (found.messages_in, found.bytes_in, found.throttled, found.held) == (5, 500, 1.0, 1)


@pytest.mark.parametrize("process", [[], [ProcessDescription("headrace 1", 0, -1, -1, -1, 90)]])
def test_a_broker_that_does_not_tell_has_no_figures(process: list[ProcessDescription]) -> None:
    one = sample(0, status=status(process=process))
    found = rates(one, one._replace(at_ms=1_000)).broker
    assert found is not None
    assert (found.memory_bytes, found.disk_percent, found.disk_free_bytes) == (None, None, None)


def test_a_group_has_its_lag_and_whether_it_grows() -> None:
    before = sample(
        0, groups=[GroupSummary("a", 1, 2, 10), GroupSummary("own", 1, 2, 9, commits=False)]
    )
    groups = [
        GroupSummary("own", 1, 2, 9, commits=False), GroupSummary("new", 0, 1, 4),
        GroupSummary("a", 1, 2, 4, TRAFFIC, consume=False), GroupSummary("even", 1, 1, 0),
    ]  # fmt: skip
    a, even, new, own = rates(before, sample(2_000, groups=groups, oldest_ms={"a": 700})).groups
    assert a == ("a", 1, 4, 700, -3.0, 5, 500, True)
    assert (even.lag, even.lag_ms) == (0, 0)
    assert (new.lag, new.lag_ms, new.change) == (4, None, None)
    assert (own.lag, own.lag_ms, own.change) == (None, None, None)


def test_a_connection_that_was_made_again_begins_to_count_again() -> None:
    before = sample(0, connections=[connection(produced=100), connection("d", 50)])
    now = sample(2_000, connections=[connection(produced=120), connection("d", 10, since_ms=2)])
    first, second = rates(before, now).connections
    assert (first.messages_in, first.bytes_in, first.bytes_out) == (10.0, 100.0, 10.0)
    assert (second.messages_in, second.bytes_in, second.bytes_out) == (5.0, 50.0, 5.0)
    assert (first.roles, first.groups) == ("producer", "g")


def test_replicas_are_apart_from_other_connections() -> None:
    now = sample(1_000, connections=[connection(), connection("r", software="headrace replica")])
    found = rates(sample(), now)
    assert [one.client_id for one in found.connections] == ["c"]
    assert [one.client_id for one in found.replicas] == ["r"]


def test_figures_without_permission_are_missing_and_named() -> None:
    found = rates(sample(), sample(1_000, denied=("ann may not read cluster",)))
    assert (found.broker, found.denied) == (None, ("ann may not read cluster",))


ends = st.lists(st.integers(0, 10**9), min_size=1, max_size=5)


@given(before=ends, now=ends, milliseconds=st.integers(0, 10**6))
def test_no_rate_is_below_zero_and_all_messages_are_counted(
    before: list[int], now: list[int], milliseconds: int
) -> None:
    earlier = sample(0, queues=[queue("t", number, end) for number, end in enumerate(before)])
    later = sample(milliseconds, queues=[queue("t", number, end) for number, end in enumerate(now)])
    found = rates(earlier, later)
    (topic,) = found.topics
    known = [*before, *[0] * len(now)]
    grown = sum(max(0, end - known[number]) for number, end in enumerate(now))
    assert topic.messages_in >= 0
    assert topic.messages_in * found.seconds == pytest.approx(grown)
