"""What counts as drift."""

from benchmarks.soak import drifted

STEADY = {"per_second": 1_000.0, "p99_us": 500.0, "broker_bytes": 1_000_000.0}


def test_windows_that_stay_as_they_are_have_not_drifted() -> None:
    assert drifted([STEADY] * 6) == {}


def test_a_loss_of_throughput_is_drift_and_a_gain_is_not() -> None:
    less, more = STEADY | {"per_second": 900.0}, STEADY | {"per_second": 1_200.0}
    assert drifted([STEADY] * 4 + [less] * 2) == {"per_second": -0.1}
    assert drifted([STEADY] * 4 + [more] * 2) == {}


def test_growing_memory_is_drift() -> None:
    grown = [STEADY | {"broker_bytes": 1_000_000.0 * (1 + n / 10)} for n in range(6)]
    assert list(drifted(grown)) == ["broker_bytes"]


def test_one_slow_window_is_no_drift() -> None:
    slow = STEADY | {"p99_us": 50_000.0}
    assert drifted([*[STEADY] * 4, slow, *[STEADY] * 4]) == {}
