"""What a case says about the targets."""

from typing import Any

import pytest

from benchmarks.peers.ratios import best, ratio, sentences


def line(system: str, mode: str, per_second: int, **more: Any) -> dict[str, Any]:
    return {
        "workload": "W1", "case": "send_many of 100", "system": system, "mode": mode,
        "per_second": per_second, "per_second_min": per_second - 1,
        "per_second_max": per_second + 1, **more,
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
    assert f"best of the others, a peer, always: the target of 2 is {verdict}." in said[0]


@pytest.mark.parametrize(("others", "verdict"), [(60, "met"), (70, "missed")])
def test_without_a_flush_one_and_a_half_times_meets_it(others: int, verdict: str) -> None:
    said = sentences([line("headrace", "interval", 100), line("a", "default", others)])
    assert [f"the target of 1.5 is {verdict}." in one for one in said] == [True]


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


def spent(system: str, mode: str, per_second: int, server_us: float) -> dict[str, Any]:
    return line(system, mode, per_second, server_cpu_us=server_us, client_cpu_us=2.0)


@pytest.mark.parametrize(
    ("unflushed", "said"),
    [(400_000, "what is missing goes to the disk."), (240_000, "it is not the disk.")],
)
def test_a_missed_target_is_explained_by_the_figures_of_the_run(unflushed: int, said: str) -> None:
    case = [
        spent("headrace", "always", 200_000, 3.0),
        spent("a", "always", 150_000, 7.0),
        spent("headrace", "interval", unflushed, 2.0),
    ]
    (verdict,) = sentences(case)
    assert "ours takes 3.00 us of the server and 2.00 of its clients" in verdict
    assert "at this rate is 1.0 busy cores; the other 7.00 and 2.00, 1.4 cores." in verdict
    assert verdict.endswith(said)


def test_a_case_that_splits_no_processor_time_tells_how_far_apart_runs_were() -> None:
    (verdict,) = sentences([line("headrace", "always", 9), line("a", "always", 9)])
    assert "8 to 10 a second, and 8 to 10: from 0.80 to 1.25 times" in verdict


def test_a_latency_that_is_missed_says_what_each_message_costs() -> None:
    ours = {**paced("headrace", 2, 9), "server_cpu_us": 446.3, "client_cpu_us": 463.0}
    other = {**paced("a", 1, 5), "server_cpu_us": 336.1, "client_cpu_us": 694.0}
    unflushed = {**ours, "mode": "interval", "p50_us": 550, "p99_us": 1_790}
    verdict = sentences([ours, other, unflushed])[0]
    assert "headrace, always 446 and 463; a, always 336 and 694." in verdict
    assert verdict.endswith("Without a flush ours has 0.55 and 1.79 ms: the rest is the disk's.")
