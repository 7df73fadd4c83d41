from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_mq.client.group.allocation.circle import circle


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
