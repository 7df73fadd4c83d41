"""What a case says about the targets."""

from typing import Any

import pytest

from benchmarks.peers.ratios import best, ratio, sentences


def line(system: str, mode: str, per_second: int, **more: Any) -> dict[str, Any]:
    return {
        "workload": "W1", "case": "send_many of 100", "system": system, "mode": mode,
        "per_second": per_second, **more,
    }  # fmt: skip


def paced(system: str, p50_ms: float, p99_ms: float) -> dict[str, Any]:
    return line(system, "always", 500, workload="W4", p50_us=p50_ms * 1e3, p99_us=p99_ms * 1e3)


def test_the_best_of_the_others_is_of_the_same_promise() -> None:
    case = [
        line("headrace", "always", 100),
        line("slow", "always", 40),
        line("less_slow", "always", 50),
        line("careless", "default", 900),
    ]
    ours, other = best(case, durable=True)
    assert ours is not None
    assert other is not None
    assert (ours["system"], other["system"]) == ("headrace", "less_slow")
    assert ratio(ours, other) == 2
    assert best(case, durable=False) == (None, case[3])


def test_half_the_time_is_twice_as_fast() -> None:
    assert ratio(paced("headrace", 1, 2), paced("a", 2, 2)) == 2


@pytest.mark.parametrize(("others", "verdict"), [(50, "met"), (51, "missed")])
def test_after_a_flush_twice_as_fast_meets_the_target(others: int, verdict: str) -> None:
    said = sentences([line("headrace", "always", 100), line("a_peer", "always", others)])
    assert len(said) == 1
    assert said[0].endswith(f"best of the others, a peer, always: the target of 2 is {verdict}.")


@pytest.mark.parametrize(("others", "verdict"), [(60, "met"), (70, "missed")])
def test_without_a_flush_one_and_a_half_times_meets_it(others: int, verdict: str) -> None:
    said = sentences([line("headrace", "interval", 100), line("a", "default", others)])
    assert [one.endswith(f"the target of 1.5 is {verdict}.") for one in said] == [True]


def test_one_message_at_a_time_has_a_ratio_and_no_target() -> None:
    single = {"case": "send, one at a time", "p50_us": 100, "p99_us": 200}
    said = sentences([line("headrace", "always", 9, **single), line("a", "always", 9, **single)])
    assert said == [
        "After a flush ours is 1.00 times as fast as the best of the others, a, always."
    ]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [((1, 5), "met"), ((2, 5), "missed"), ((1, 6), "missed")],
)
def test_a_latency_must_be_no_worse_than_the_best_median_and_the_best_tail(
    ours: tuple[float, float], verdict: str
) -> None:
    # Neither of the others is best in both.
    others = [paced("quick", 1, 9), paced("even", 3, 5)]
    (said,) = sentences([paced("headrace", *ours), *others])
    assert "(quick, always)" in said
    assert "(even, always)" in said
    assert said.endswith(f"is {verdict}.")


def test_nothing_is_said_where_nobody_can_be_compared() -> None:
    assert sentences([line("headrace", "always", 1), line("a", "default", 1)]) == []
