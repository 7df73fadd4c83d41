"""How long small batches are put off."""

import pytest

from headrace._projecting.pacing import interval_s, is_small


@pytest.mark.parametrize(
    ("took_ms", "wanted_ms"), [(0, 10), (1, 10), (5, 10), (6, 12), (19, 38), (20, 40), (500, 40)]
)
def test_a_slow_transaction_takes_half_of_the_time_and_nobody_waits_for_ever(
    took_ms: int, wanted_ms: int
) -> None:
    assert interval_s(took_ms / 1_000, 10) == pytest.approx(wanted_ms / 1_000)


def test_without_a_least_interval_nothing_is_put_off() -> None:
    assert interval_s(3.0, 0) == 0


def test_a_batch_is_small_until_it_is_full_or_its_transaction_costs_little_beside_it() -> None:
    assert is_small(249, 1_000)
    assert not is_small(250, 1_000)
    assert is_small(9, 10)
    assert not is_small(10, 10)
