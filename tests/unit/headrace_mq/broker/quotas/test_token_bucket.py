from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.broker.quotas.token_bucket import TokenBucket

RATES = st.integers(1, 10_000)
BURSTS = st.integers(1, 5_000)
# Pauses before a request, and how much it wants.
REQUESTS = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 20_000)), max_size=40)


def passed(
    rate: int, burst_ms: int, requests: list[tuple[int, int]]
) -> tuple[TokenBucket, list[tuple[int, int]]]:
    """When each amount passed, one after the other, each as soon as it may."""
    bucket = TokenBucket(rate, burst_ms=burst_ms, now_ms=0)
    now_ms, found = 0, []
    for pause_ms, amount in requests:
        now_ms += pause_ms
        now_ms += bucket.wait_ms(now_ms, amount)
        assert bucket.wait_ms(now_ms, amount) == 0
        bucket.charge(now_ms, amount)
        found.append((now_ms, amount))
    return bucket, found


@given(rate=RATES, burst_ms=BURSTS, requests=REQUESTS)
def test_over_any_window_no_more_passes_than_the_rate_and_the_burst_allow(
    rate: int, burst_ms: int, requests: list[tuple[int, int]]
) -> None:
    bucket, found = passed(rate, burst_ms, requests)
    sums = [0, *accumulate(amount for _, amount in found)]
    for first, (from_ms, _) in enumerate(found):
        for last in range(first, len(found)):
            to_ms = found[last][0]
            most = max([bucket.burst, *(amount for _, amount in found[first : last + 1])])
            assert (sums[last + 1] - sums[first]) * 1_000 <= rate * (to_ms - from_ms) + most * 1_000


@given(rate=RATES, burst_ms=BURSTS, requests=REQUESTS, amount=st.integers(1, 20_000))
def test_every_amount_passes_once_the_debt_is_paid_and_the_bucket_holds_it(
    rate: int, burst_ms: int, requests: list[tuple[int, int]], amount: int
) -> None:
    bucket, found = passed(rate, burst_ms, requests)
    now_ms = found[-1][0] if found else 0
    wait_ms = bucket.wait_ms(now_ms, amount)
    filling_ms = -(-min(amount, bucket.burst) * 1_000 // rate)
    assert wait_ms <= bucket.owed_ms(now_ms) + filling_ms
    assert wait_ms == 0 or bucket.wait_ms(now_ms + wait_ms - 1, amount) > 0
    assert bucket.wait_ms(now_ms + wait_ms, amount) == 0


@given(rate=RATES, burst_ms=BURSTS, cuts=st.lists(st.integers(0, 700), max_size=30))
def test_a_bucket_does_not_depend_on_how_often_it_is_asked(
    rate: int, burst_ms: int, cuts: list[int]
) -> None:
    asked, left = (TokenBucket(rate, burst_ms=burst_ms, now_ms=0) for _ in range(2))
    for bucket in (asked, left):
        bucket.charge(0, 10 * bucket.burst)
    now_ms = 0
    for cut in cuts:
        now_ms += cut
        asked.wait_ms(now_ms)
    assert asked.owed_ms(now_ms) == left.owed_ms(now_ms)
    assert asked.room(now_ms) == left.room(now_ms)


def test_a_bucket_is_full_at_first_and_again_after_its_burst_is_paid_for() -> None:
    bucket = TokenBucket(10, burst_ms=2_000, now_ms=0)
    assert (bucket.burst, bucket.is_full(0), bucket.room(0)) == (20, True, 20)
    bucket.charge(0, 25)
    assert (bucket.owed_ms(0), bucket.room(0), bucket.wait_ms(0)) == (500, 0, 600)
    assert not bucket.is_full(2_499)
    assert bucket.is_full(2_500)
