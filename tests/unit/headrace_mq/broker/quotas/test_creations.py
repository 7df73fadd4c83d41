"""How much the clients of an address may make in a minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.broker.quotas.creations import OFFSETS, QUEUES, Creations
from headrace_mq.errors import Throttled

MINUTE_MS = 60_000
steps = st.lists(
    st.tuples(st.integers(0, 20_000), st.sampled_from(["a", "b"]), st.integers(1, 200)), max_size=60
)


@given(steps=steps)
def test_an_address_never_makes_more_than_its_share_and_leaves_the_others_theirs(
    steps: list[tuple[int, str, int]],
) -> None:
    creations = Creations({QUEUES: 120})
    now_ms = 0
    made: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    for later_ms, host, count in steps:
        now_ms += later_ms
        try:
            creations.take(QUEUES, host, now_ms, count)
        except Throttled:
            continue
        made[host].append((now_ms, count))
    for host, taken in made.items():
        for begin, _ in taken:
            span = [count for at, count in taken if begin <= at < begin + MINUTE_MS]
            # What a minute gives, what was saved up before it, and one that is larger than both.
            assert sum(span) <= 2 * 120 + max(count for _, count in taken), host


def test_a_refusal_says_when_and_costs_nothing() -> None:
    creations = Creations({QUEUES: 60, OFFSETS: 0})
    creations.take(QUEUES, "10.0.0.1", 0, 60)
    for _ in range(3):
        with pytest.raises(Throttled, match="in 30 s; try again") as refused:
            creations.take(QUEUES, "10.0.0.1", 0, 30)
        assert "address_queues_per_minute" in str(refused.value)
    creations.take(QUEUES, "10.0.0.2", 0, 60)
    creations.take(QUEUES, "10.0.0.1", 30_000, 30)
    creations.take(OFFSETS, "10.0.0.1", 0, 1_000_000)


def test_past_creations_are_forgotten() -> None:
    creations = Creations({QUEUES: 60})
    creations.take(QUEUES, "a", 0, 10)
    creations.forget_idle(9_999)
    assert len(creations) == 1
    creations.forget_idle(10_000)
    assert len(creations) == 0
