"""The page: what is shown of rates, in which order, and how much of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.top.page import KEYS, SORTS, TopTable, page, sorted_by
from headrace.figures.rates import (
    BrokerRates,
    ConnectionRates,
    GroupRates,
    TopicRates,
    TopRates,
)

BROKER = BrokerRates(
    software="headrace 1", cpu_percent=12.4, memory_bytes=3 << 20, disk_percent=55.5, disk_free_bytes=2 << 30,
    log_bytes=1_536, log_growth=100.0, messages_in=1_234, bytes_in=2_048, messages_out=5, bytes_out=10,
    connections=4, topics=3, queues=2, groups=1, throttled=0.5, held=2, refuses="",
)  # fmt: skip
A = TopicRates("a", 1, 10, 5.0, 100, 1, 9_000)
B = TopicRates("b", 1, 99, 1.0, 200, 9, 100)
C = TopicRates("c", 1, 20, 3.0, 300, 3, 300)
BEHIND = GroupRates("behind", 2, 17, 1_500, -2.5, 4, 400, paused=True)
OWN = GroupRates("own", 1, None, None, None, 40, 4_000, paused=False)
CLIENT = ConnectionRates("till", "h:1", "s", "producer", "g", 2.0, 200.0, 20.0, 1.0)
REPLICA = ConnectionRates("r", "h:2", "headrace replica", "", "", 0.0, 10.0, 2_000.0, 0.0)


def rates(**changed: object) -> TopRates:
    return TopRates(1.0, BROKER, [A, B, C], [BEHIND, OWN], [CLIENT], [REPLICA], ())._replace(
        **changed
    )


def test_the_head_is_about_the_broker() -> None:
    head = page(
        rates(denied=("ann may not read topic:*",)), address="h:1", sort="lag", rows_max=9
    ).head
    assert head == [
        "headrace top h:1, over 1.0 s, sorted by lag",
        "in 1,234 messages/s, 2.0 KiB/s   out 5 messages/s, 10 B/s   held up 0.5 requests/s, 2 wait",
        "processor 12 %   memory 3.0 MiB   disk 56 % full, 2.0 GiB free   logs 1.5 KiB, +100 B/s",
        "connections 4   topics 3   queues 2   groups 1   takes messages: yes",
        "replicas 1",
        "ann may not read topic:*",
    ]


def test_unknown_figures_are_left_out() -> None:
    unknown = BROKER._replace(
        cpu_percent=None, memory_bytes=None, disk_percent=None, refuses="it is full"
    )
    head = page(rates(broker=unknown, replicas=[]), address="h:1", sort="name", rows_max=9).head
    assert head[2:] == [
        "logs 1.5 KiB, +100 B/s",
        "connections 4   topics 3   queues 2   groups 1   takes messages: no: it is full",
    ]
    assert (
        len(page(rates(broker=None, replicas=[]), address="h", sort="name", rows_max=9).head) == 1
    )


def test_each_kind_is_a_table() -> None:
    topics, groups, connections, replicas = page(
        rates(), address="h:1", sort="name", rows_max=2
    ).sections
    assert topics.rows[0] == ("a", 1, 10, 5.0, "100 B", 1.0, "8.8 KiB")
    assert topics.more == 1
    assert list(groups.rows) == [
        ("behind", 2, 17, 1.5, "-2.5", 4.0, "400 B", "paused"),
        ("own", 1, None, None, None, 40.0, "3.9 KiB", ""),
    ]
    assert list(connections.rows) == [("till", "h:1", "producer", "g", 2.0, "200 B", "20 B", 1.0)]
    assert list(replicas.rows) == [("r", "h:2", "10 B", "2.0 KiB")]
    for each in (topics, groups, connections, replicas):
        assert all(len(row) == len(each.columns) for row in each.rows)


def test_a_table_without_rows_is_left_out() -> None:
    empty = rates(topics=[], groups=[], connections=[], replicas=[])
    assert page(empty, address="h:1", sort="name", rows_max=2).sections == []


@pytest.mark.parametrize(
    ("sort", "order"), [("messages", "bac"), ("bytes", "acb"), ("lag", "bca"), ("name", "abc")]
)
def test_a_key_sorts_the_busiest_first(sort: str, order: str) -> None:
    assert "".join(one.topic for one in sorted_by(sort, [C, A, B])) == order
    assert KEYS[sort[0]] == sort


@pytest.mark.parametrize("sort", SORTS)
def test_every_table_can_be_sorted_by_every_key(sort: str) -> None:
    first = page(rates(), address="h:1", sort=sort, rows_max=9)
    assert len(first.sections) == 4
    assert all(isinstance(each, TopTable) for each in first.sections)


numbers = st.integers(0, 9)
topic_rates = st.builds(
    TopicRates, st.text("ab", max_size=3), numbers, numbers, st.floats(0, 9), numbers, numbers, numbers
)  # fmt: skip


@given(
    rows=st.lists(topic_rates, max_size=8, unique_by=lambda one: one.topic),
    sort=st.sampled_from(SORTS),
)
def test_sorting_loses_no_row_and_depends_on_no_order(rows: list[TopicRates], sort: str) -> None:
    found = sorted_by(sort, rows)
    assert sorted(found) == sorted(rows)
    assert sorted_by(sort, rows[::-1]) == found
