"""Functions over values in a time have the results that Prometheus's documentation and `promtool` give."""

import math

import pytest

from headrace.alarms.promql.functions import quantile, ranged


@pytest.mark.parametrize(
    ("function", "values", "result"),
    [
        ("increase", (0, 10, 20, 30), 30),
        ("increase", (0, 10, 0, 10), 20),
        ("rate", (0, 60, 120, 180), 1),
        ("delta", (30, 20, 10, 0), -30),
        ("changes", (1, 1, 2, 1), 2),
        ("deriv", (0, 60, 120, 180), 1),
    ],
)
def test_a_function_of_whole_minutes_is_exact(function: str, values: list, result: float) -> None:
    points = [(60.0 * number, float(value)) for number, value in enumerate(values)]
    assert ranged(function, points, 0.0, 180.0) == pytest.approx(result)


def test_a_function_extrapolates_to_the_ends_of_its_time() -> None:
    points = [(20.0, 100.0), (80.0, 110.0), (140.0, 120.0)]
    assert ranged("increase", points, 0.0, 180.0) == pytest.approx(20 * 180 / 120)


def test_a_counter_is_not_extrapolated_below_zero() -> None:
    points = [(60.0, 0.0), (120.0, 10.0)]
    assert ranged("increase", points, 0.0, 120.0) == pytest.approx(10)


def test_one_value_has_no_rate_but_no_changes_either() -> None:
    assert ranged("rate", [(0.0, 1.0)], 0.0, 60.0) is None
    assert ranged("changes", [(0.0, 1.0)], 0.0, 60.0) == 0


@pytest.mark.parametrize(
    ("counts", "result"),
    [
        ((0, 10, 20, 20), 0.9),
        ((50, 100, 100, 100), 0.42),
        ((0, 0, 0, 10), 1.0),
        ((0, 0, 0, 0), math.nan),
        ((10, 9, 20, 20), 0.9),
    ],
)
def test_a_quantile_lies_between_the_bounds_of_its_bucket(counts: tuple, result: float) -> None:
    bounds = (0.1, 0.5, 1.0, math.inf)
    buckets = list(zip(bounds, map(float, counts), strict=True))
    assert quantile(0.9, buckets) == pytest.approx(result, nan_ok=True)


def test_a_quantile_needs_the_infinite_bucket() -> None:
    assert math.isnan(quantile(0.9, [(0.1, 1.0), (1.0, 2.0)]))
    assert quantile(0.9, [(-1.0, 2.0), (math.inf, 2.0)]) == -1.0
