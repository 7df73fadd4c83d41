from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_mq.client.group.allocation.average import average, circle


def test_it_gives_neighbours_and_the_larger_shares_to_the_first(shares: Any) -> None:
    assert shares(average, 10, 4) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert shares(average, 8, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert shares(average, 2, 3) == [[0], [1], []]
    assert shares(average, 3, 3) == [[0], [1], [2]]


def rocketmq_average(place: int, queue_count: int, member_count: int) -> range:
    """The description of RocketMQ's AVG in its own terms."""
    mod = queue_count % member_count
    if queue_count <= member_count:
        size = 1
    else:
        size = queue_count // member_count + (1 if place < mod else 0)
    start = place * size if place < mod else place * size + mod
    return range(start, min(start + size, queue_count))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queue_count=st.integers(1, 200), member_count=st.integers(1, 60))
def test_it_is_rocketmqs(shares: Any, queue_count: int, member_count: int) -> None:
    expected = [list(rocketmq_average(n, queue_count, member_count)) for n in range(member_count)]
    assert shares(average, queue_count, member_count) == expected


def test_it_deals_the_queues_out_one_by_one(shares: Any) -> None:
    assert shares(circle, 5, 2) == [[0, 2, 4], [1, 3]]
    assert shares(circle, 1, 2) == [[0], []]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queue_count=st.integers(1, 200), member_count=st.integers(1, 60))
def test_queue_q_is_of_member_q_modulo_their_number(
    shares: Any, queue_count: int, member_count: int
) -> None:
    expected = [
        [q for q in range(queue_count) if q % member_count == n] for n in range(member_count)
    ]
    assert shares(circle, queue_count, member_count) == expected
