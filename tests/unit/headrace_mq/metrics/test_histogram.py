"""Durations are counted at the bound that holds them."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.metrics.histogram import BOUNDS_S, Histogram


def test_a_duration_counts_below_its_own_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS_S[0], BOUNDS_S[1], 31.0):
        histogram.add(seconds)
    counts = histogram.read().counts
    assert (counts[0], counts[1], counts[-1]) == (2, 1, 1)
    assert histogram.read().total == 4


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5)), max_size=20))
def test_a_histogram_adds_up_what_it_counts(durations: list[tuple[float, int]]) -> None:
    histogram = Histogram()
    for seconds, times in durations:
        histogram.add(seconds, times)
    found = histogram.read()
    assert found.total == sum(times for _, times in durations)
    assert abs(found.seconds - sum(seconds * times for seconds, times in durations)) < 1e-6


def test_counts_that_were_read_do_not_change() -> None:
    histogram = Histogram()
    before = histogram.read()
    histogram.add(1)
    assert (before.total, histogram.read().total) == (0, 1)


def test_bounds_grow() -> None:
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))
