"""How long small batches are put off."""

import pytest

from headrace.projections.batch_delay import is_small, pause_s


@pytest.mark.parametrize(("took_ms", "wanted_ms"), [(0, 10), (1, 9), (9, 1), (10, 0), (500, 0)])
def test_small_batches_begin_an_interval_apart_and_at_once_after_a_slow_one(
    took_ms: int, wanted_ms: int
) -> None:
    assert pause_s(took_ms / 1_000, 10) == pytest.approx(wanted_ms / 1_000)


def test_without_an_interval_nothing_is_put_off() -> None:
    assert pause_s(0.0, 0) == 0


def test_a_batch_is_small_until_it_is_full_or_its_transaction_costs_little_beside_it() -> None:
    assert is_small(249, 1_000)
    assert not is_small(250, 1_000)
    assert is_small(9, 10)
    assert not is_small(10, 10)
