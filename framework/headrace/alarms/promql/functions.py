"""
Functions over the values of a series in a time, with the arithmetic of Prometheus. PURE.

Used by `evaluate`. `increase`, `rate` and `delta` extrapolate to the ends of the time, as Prometheus does.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

__all__ = ["RANGED", "quantile", "ranged"]

Points: TypeAlias = Sequence[tuple[float, float]]
RANGED: Final = frozenset({"changes", "delta", "deriv", "increase", "rate"})
# Up to this share of the distance between two values, a series is thought to go on to the end of the time.
_NEAR: Final = 1.1


def ranged(function: str, points: Points, start_s: float, end_s: float) -> float | None:
    """Returns what a function says of the values in a time; None: there are too few.

    Args:
        function: one of `RANGED`.
        points: time and value, the oldest first; at least one.
        start_s: when the time begins, in seconds since 1970.
        end_s: when it ends.
    """
    if function == "changes":
        return float(sum(before[1] != after[1] for before, after in pairwise(points)))
    if len(points) < 2:
        return None
    if function == "deriv":
        return _slope(points)
    grown = _extrapolated(points, start_s, end_s, counts=function != "delta")
    return grown / (end_s - start_s) if function == "rate" else grown


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Returns the value below which a share of the observations is; NaN where there are none.

    Args:
        share: such as 0.99.
        buckets: upper bound and count of all that is not above it, sorted; the last bound is infinite.
    """
    nan = float("nan")
    if len(buckets) < 2 or buckets[-1][0] != float("inf"):
        return nan
    counts, most = [], 0.0
    for _, count in buckets:
        most = max(most, count)
        counts.append(most)
    if most == 0:
        return nan
    rank = share * most
    at = next(number for number, count in enumerate(counts) if count >= rank)
    if at == len(buckets) - 1:
        return buckets[-2][0]
    upper, lower = buckets[at][0], buckets[at - 1][0] if at else 0.0
    if at == 0 and upper <= 0:
        return upper
    below = counts[at - 1] if at else 0.0
    return lower + (upper - lower) * (rank - below) / (counts[at] - below)


def _slope(points: Points) -> float:
    """The slope of the line through the values, by the least squares."""
    first = points[0][0]
    times, values = [time - first for time, _ in points], [value for _, value in points]
    count = len(points)
    middle, height = sum(times) / count, sum(values) / count
    spread = sum((time - middle) ** 2 for time in times)
    if not spread:
        return float("nan")
    return sum((t - middle) * (v - height) for t, v in zip(times, values, strict=True)) / spread


def _extrapolated(points: Points, start_s: float, end_s: float, *, counts: bool) -> float:
    """How much the values grew in the time; a counter that goes down began again."""
    (first_s, first), (last_s, last) = points[0], points[-1]
    grown = last - first
    if counts:
        grown += sum(before[1] for before, after in pairwise(points) if after[1] < before[1])
    sampled = last_s - first_s
    between = sampled / (len(points) - 1)
    to_start, to_end = first_s - start_s, end_s - last_s
    if counts and grown > 0 and first >= 0:
        # A counter was not below 0.
        to_start = min(to_start, sampled * (first / grown))
    reach = sampled
    for gap in (to_start, to_end):
        reach += gap if gap < between * _NEAR else between / 2
    return grown * reach / sampled
