"""A summary compares the best turns of a run."""

from benchmarks.spark.summary import summarize

FIGURES = [
    {"case": "topic", "events": 9},
    {"case": "plain loop, fold in Python", "per_second": 100},
    {"case": "source", "cores": 1, "turn": 1, "per_second": 10},
    {"case": "source", "cores": 1, "turn": 2, "per_second": 40},
    {"case": "spark.read.json", "cores": 1, "turn": 2, "per_second": 20},
    {"case": "spark.read.json", "cores": 2, "turn": 2, "per_second": 60},
    {"case": "source, peak memory", "cores": 1, "mib": {"driver": 7, "java": 9}},
    {"case": "source", "cores": 2, "turn": 1, "per_second": 60},
    {"case": "rebuild, folded", "cores": 2, "turn": 1, "per_second": 150},
]


def test_the_best_turn_stands_beside_the_yardsticks_and_the_fewest_cores() -> None:
    assert list(summarize(FIGURES)) == [
        {
            "case": "source, summary", "cores": 1, "per_second": 40,
            "times": {"spark.read.json": 2.0}, "times_fewest_cores": 1.0, "driver_mib": 7,
        },
        {
            "case": "source, summary", "cores": 2, "per_second": 60,
            "times": {"spark.read.json": 1.0}, "times_fewest_cores": 1.5, "driver_mib": None,
        },
        {
            "case": "rebuild, folded, summary", "cores": 2, "per_second": 150,
            "times": {"plain loop, fold in Python": 1.5}, "times_fewest_cores": 1.0,
            "driver_mib": None,
        },
    ]  # fmt: skip


def test_nothing_measured_comes_to_nothing() -> None:
    assert list(summarize(FIGURES[:2])) == []
