"""Bounds: whoever is outside of them is never selected."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters.bounds import Bounds
from headrace_mq.filters.filter import Filter

SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-(10**30), 10**30), st.floats(-1e9, 1e9))


@pytest.mark.parametrize(
    ("text", "name", "low", "high"),
    [
        ("price > 10", "price", 10, math.inf),
        ("10 > price", "price", -math.inf, 10),
        ("price = 10", "price", 10, 10),
        ("price BETWEEN 1 AND 2", "price", 1, 2),
        ("price IN (3, 1, 2.5)", "price", 1, 3),
        ("price > 1 AND price <= 9 AND region = 'EU'", "price", 1, 9),
        ("price > 1 AND weight > 2", "price", 1, math.inf),
        ("price = 1 OR price = 5", "price", 1, 5),
    ],
)
def test_a_filter_knows_between_which_numbers_a_header_must_be(
    text: str, name: str, low: float, high: float
) -> None:
    bounds = Filter(text).bounds
    assert bounds is not None
    assert bounds.name == name
    assert (bounds.low, bounds.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    "text",
    [
        "price <> 10", "NOT price > 10", "price > 1 OR weight > 2", "price > 1 OR region = 'EU'",
        "price = '10'", "price > weight", "_key > 10", "price IN ('1', '2')", "price IS NULL",
    ],
)  # fmt: skip
def test_a_filter_without_bounds_has_none(text: str) -> None:
    assert Filter(text).bounds is None


@given(SIGNS, NUMBERS, NUMBERS)
def test_whoever_is_selected_is_within_the_bounds(sign: str, limit: float, number: float) -> None:
    # As SQL writes numbers: without an exponent's sign there is nothing that Python adds.
    wanted = Filter(f"n {sign} {limit!r}".replace("e+", "e"))
    if wanted.bounds is not None and wanted.selects({"n": repr(number)}):
        assert wanted.bounds.low <= float(repr(number)) <= wanted.bounds.high


def test_bounds_that_contradict_each_other_let_nobody_through() -> None:
    bounds = Filter("n > 5 AND n < 3").bounds
    assert isinstance(bounds, Bounds)
    assert bounds.low > bounds.high
