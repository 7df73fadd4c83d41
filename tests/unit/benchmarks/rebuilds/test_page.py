"""The page of rebuilds beside other ways to the same table."""

from typing import Any

import pytest

from benchmarks.rebuilds.page import text

MACHINE = {"benchmark": "machine", "cores": 2, "python": "3.11", "fdatasync_per_second": 3_000}
ABOUT = {
    "benchmark": "rebuilds", "exported_seconds": 6.074, "events": 20_000, "accounts": 1_000,
    "runs": 3, "load": 2.04,
}  # fmt: skip


def line(system: str, per_second: int, **others: Any) -> dict[str, Any]:
    return {
        "benchmark": "rebuilds", "system": system, "seconds": 1.5, "per_second": per_second,
        "per_second_min": per_second - 1, "per_second_max": per_second + 1, "cpu_us": 2.5,
        "rows": 1_000, "folded": 20_000, "digest": "abc", **others,
    }  # fmt: skip


@pytest.mark.parametrize(("ours", "verdict"), [(5_000, "met"), (4_999, "missed")])
def test_the_faster_of_ours_is_held_to_the_target(ours: int, verdict: str) -> None:
    page = text([
        MACHINE, ABOUT, line("headrace", 700), line("headrace with spark", ours),
        line("eventsourcing", 500, digest="other"), line("polars", 90_000),
    ])  # fmt: skip
    assert f"the target of 10 is {verdict}" in page
    assert "20,000 events of 1,000 accounts, 3 runs; exporting them took 6.07 s. At the" in page
    assert "load average of 15 minutes was 2.0.\n" in page
    assert "takes one part in 1 of its processor time" in page
    systems = [row.split(" | ")[0] for row in page.splitlines() if "us |" in row]
    assert systems == [
        "| polars", "| **headrace with spark**", "| **headrace**", "| eventsourcing"
    ]  # fmt: skip


def test_without_the_peer_nothing_is_judged_and_what_failed_is_told() -> None:
    failed = {"benchmark": "rebuilds", "system": "duckdb", "failed": "took longer than 9 s"}
    page = text([MACHINE, ABOUT, line("headrace", 700), failed])
    assert "target of" not in page
    assert "duckdb has no figure: took longer than 9 s." in page


@pytest.mark.parametrize("other", [{"digest": "abd"}, {"rows": 999}, {"folded": 1}])
def test_tables_that_are_not_the_same_have_no_page(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="different tables"):
        text([MACHINE, ABOUT, line("headrace", 700), line("duckdb", 800, **other)])


def test_a_machine_with_other_work_is_told_of() -> None:
    page = text([MACHINE, {**ABOUT, "load": 13.5}, line("headrace", 700)])
    assert "was 13.5: other work wanted the processors, so CPU says more than rates." in page


def test_a_missed_target_is_explained_by_the_figures_of_the_run() -> None:
    peer = line("eventsourcing", 20_000, digest="other")
    lines = [MACHINE, ABOUT, line("headrace", 100_000, cpu_us=8.0), peer]
    page = text([*lines, line("python loop", 90_000, cpu_us=6.5)])
    assert "10 times would leave 5.0 us for an event, and headrace takes 8.0 us" in page
    assert "keeps no versions takes 6.5 us." in page
    assert "Why" not in text([MACHINE, ABOUT, line("headrace", 200_000), peer])


def test_a_run_that_ended_early_has_a_page_as_well() -> None:
    assert "It ended before anything was measured." in text([MACHINE])
