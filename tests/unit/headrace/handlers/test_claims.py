"""Outages that one call meets and others do not last for a bounded time, and no others do."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.handlers.claims import Claims


async def send(event: Any, context: Any) -> None: ...


async def print_it(event: Any, context: Any) -> None: ...


# Milliseconds to the next attempt, and whether another call of the handler succeeds before it.
attempts = st.lists(st.tuples(st.integers(1, 1_000), st.booleans()), max_size=30)


@given(attempts=attempts, fifth=st.integers(1, 1_000))
def test_the_time_between_successes_of_other_calls_counts_up_to_a_limit(
    attempts: list[tuple[int, bool]], fifth: int
) -> None:
    claims, now, charged_at, charged = Claims(5 * fifth), 0, 0, 0
    claim = claims.begin(send, now)
    for ms, succeeds in attempts:
        now += ms
        claims.succeeded(print_it)  # of another handler, which needs something else
        if succeeds:
            claims.succeeded(send)
            charged += min(now - charged_at, fifth)
            charged_at = now
        assert claim.again(now) is (charged < 5 * fifth)


def test_an_outage_of_all_calls_is_waited_out_and_its_end_causes_no_failures() -> None:
    claims = Claims(300_000)
    claim = claims.begin(send, 0)
    for day in range(1, 400):
        assert claim.again(day * 86_400_000)
    # Others get through first: those that try again in a moment are not taken for failures.
    for attempt in range(4):
        claims.succeeded(send)
        assert claim.again(400 * 86_400_000 + 5_000 * attempt)
