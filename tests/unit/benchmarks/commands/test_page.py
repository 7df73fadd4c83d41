"""The page of commands beside other frameworks."""

from typing import Any

import pytest

from benchmarks.commands.page import text

MACHINE = {"benchmark": "machine", "cores": 2, "python": "3.11", "commits_per_second": 3_000}


def line(system: str, per_second: int, *, aggregates: int = 50, in_flight: int = 8) -> dict[str, Any]:  # fmt: skip
    return {
        "benchmark": "commands", "system": system, "store": "sqlite", "aggregates": aggregates,
        "in_flight": in_flight, "per_second": per_second, "per_second_min": per_second - 1,
        "per_second_max": per_second + 1, "p50_us": 1_000, "p99_us": 2_000, "cpu_us": 90,
    }  # fmt: skip


def folded(case: str, per_second: int) -> dict[str, Any]:
    return {
        "benchmark": "projections", "case": case, "keys": 10, "events": 100,
        "per_second": per_second, "cpu_us": 5,
    }  # fmt: skip


def section(page: str, title: str) -> str:
    return page.partition(f"## {title}")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("aggregates", "title", "ours", "verdict"),
    [
        (50, "SQLite, 50 accounts", 500, "the target of 5 is met"),
        (50, "SQLite, 50 accounts", 499, "the target of 5 is missed"),
        (1, "SQLite, one hot account", 2_000, "the target of 20 is met"),
        (1, "SQLite, one hot account", 1_999, "the target of 20 is missed"),
    ],
)
def test_many_accounts_and_a_hot_one_have_targets_of_their_own(
    aggregates: int, title: str, ours: int, verdict: str
) -> None:
    lines = [
        line("headrace, one process", ours, aggregates=aggregates),
        line("eventsourcing, default", 100, aggregates=aggregates),
    ]
    assert verdict in section(text([MACHINE, *lines]), title)


def test_each_side_is_taken_at_its_best_however_many_are_in_flight() -> None:
    lines = [
        line("headrace, one process", 100, in_flight=1),
        line("headrace, through its queue", 900, in_flight=64),
        line("eventsourcing, cached", 50, in_flight=1),
        line("eventsourcing, default", 150, in_flight=8),
        line("eventsourcing, default", 90, in_flight=64),
    ]
    said = section(text([MACHINE, *lines]), "SQLite")
    assert "2.00 with 1, 10.00 with 64 in flight" in said
    assert "(headrace, through its queue with 64, eventsourcing, default with 8) it is 6.00" in said


def test_a_system_has_one_row_with_a_column_for_each_number_in_flight() -> None:
    lines = [line("eventsourcing, default", rate, in_flight=n) for n, rate in ((8, 70), (1, 40))]
    said = section(text([MACHINE, *lines]), "SQLite")
    assert "| eventsourcing, default | 40 (39, 41) | 70 (69, 71) | 1.00, 2.00 | 90 us |" in said


@pytest.mark.parametrize(("rate", "verdict"), [(1_000, "met"), (999, "missed")])
def test_folding_anew_has_a_target(rate: int, verdict: str) -> None:
    lines = [folded("live", 300), folded("rebuild", rate), folded("eventsourcing", 100)]
    said = section(text([MACHINE, *lines]), "Projections")
    assert "| as they come, 100 events, 10 keys | 300 (5.0 us) | 100 (5.0 us) | 3.0 x |" in said
    assert f"the target of 10 is {verdict}." in said


def test_ours_alone_is_told_without_a_ratio() -> None:
    lines = [line("headrace, one process", 5), folded("rebuild", 5)]
    page = text([MACHINE, *lines])
    assert "target" not in section(page, "SQLite") + section(page, "Projections")


def test_what_failed_is_told() -> None:
    broken = {"benchmark": "commands", "system": "a", "store": "sqlite", "failed": "it fell"}
    page = text([MACHINE, line("headrace, one process", 5), broken])
    assert page.rstrip().endswith("- a, sqlite: it fell")


def test_a_load_that_took_too_long_says_so_in_its_cell() -> None:
    slow = {
        "benchmark": "commands", "system": "protean", "store": "sqlite", "aggregates": 50,
        "in_flight": 64, "failed": "64 in 24 s",
    }  # fmt: skip
    page = text([MACHINE, line("protean", 70), line("headrace, one process", 900), slow])
    assert "| protean | 70 (69, 71) | 64 in 24 s |  |  |" in page
    assert "What failed" not in page


def test_a_missed_target_is_explained_by_the_figures_of_the_run() -> None:
    lines = [line("headrace, one process", 400), line("eventsourcing, default", 100, in_flight=1)]
    said = section(text([MACHINE, *lines]), "SQLite")
    assert "5 times would leave 2000 us for a command. Ours takes 90 us" in said
    assert "Why" not in section(text([MACHINE, line("headrace", 500), lines[1]]), "SQLite")
