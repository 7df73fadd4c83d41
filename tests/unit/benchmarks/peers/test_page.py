"""The page of a run beside other queues."""

from typing import Any

from benchmarks.peers.page import text

MACHINE = {"cores": 2, "python": "3.11", "fdatasync_per_second": 4_000}


def line(system: str, mode: str, per_second: int, **more: Any) -> dict[str, Any]:
    return {
        "workload": "W1", "case": "send_many of 100", "system": system, "mode": mode,
        "version": "1", "settings": "set so", "promise": f"kept {mode}", "body": 100,
        "per_second": per_second, "per_second_min": per_second - 1,
        "per_second_max": per_second + 1, "server_bytes": 2**20, **more,
    }  # fmt: skip


def held(system: str, mib: int) -> dict[str, Any]:
    return {
        "workload": "backlog", "case": "memory", "system": system, "mode": "always", "body": 100,
        "version": "1", "settings": "s", "promise": "p", "messages": 1_000_000,
        "empty_bytes": 0, "server_bytes": mib * 2**20,
    }  # fmt: skip


def rows(page: str, title: str) -> list[str]:
    """The rows of the table in a section."""
    section = page.partition(f"## {title}")[2].partition("\n## ")[0]
    return [row for row in section.splitlines() if row.startswith("| ")][1:]


def test_systems_that_flush_come_first_and_the_fastest_of_them_leads() -> None:
    lines = [
        line("headrace", "interval", 30_000),
        line("slow_one", "always", 1_000),
        line("headrace", "always", 2_000),
    ]
    names = [row.split(" | ")[0] for row in rows(text([MACHINE, *lines]), "W1")]
    assert names == ["| **headrace, always**", "| slow one, always", "| **headrace, interval**"]


def test_a_row_says_how_many_times_as_fast_ours_is() -> None:
    lines = [line("a", "always", 500), line("headrace", "always", 1_250)]
    ours, other = rows(text([MACHINE, *lines]), "W1")
    assert "| 2.5 x |" in other
    assert " x |" not in ours


def test_a_latency_is_ordered_from_the_shortest() -> None:
    paced = {"workload": "W4", "p99_us": 9_000}
    lines = [
        line("a", "always", 500, **paced, p50_us=2_000),
        line("b", "always", 500, **paced, p50_us=1_000),
    ]
    assert [row.split(", ")[0] for row in rows(text([MACHINE, *lines]), "W4")] == ["| b", "| a"]


def test_targets_compare_each_systems_fastest_way_by_size() -> None:
    lines = [
        line("headrace", "always", 100),
        line("headrace", "always", 900, case="send_many of 1,000"),
        line("a", "always", 300),
        line("headrace", "always", 100, body=1024),
        line("a", "always", 90, body=1024),
    ]
    small, large = rows(text([MACHINE, *lines]), "Targets")
    assert small == "| W1, 100 bytes | after a flush | 900 | 300 (a, always) | 3.00 x | 2 x | met |"
    assert large.startswith("| W1, 1 KiB |")
    assert large.endswith("| missed |")
    page = text([MACHINE, *lines])
    assert "- W1, 1 KiB, after a flush. Why: the runs gave 99 to 101 a second" in page
    assert "- W1, 100 bytes" not in page


def test_a_backlogs_memory_is_told_from_the_smallest() -> None:
    page = text([MACHINE, held("headrace", 40), held("b", 50), held("a", 30)])
    names = [row.split(", ")[0] for row in rows(page, "The memory of")]
    assert names == ["| a", "| **headrace", "| b"]
    assert "Ours holds 40 MiB and the smallest of the others, a, always, 30" in page
    assert "no more than the smallest, is missed. Why: of ours 0 MiB are there with nothing" in page


def test_what_failed_is_told_and_not_in_a_table() -> None:
    broken = {"workload": "W1", "case": "c", "system": "a", "mode": "always", "body": 100}
    page = text([MACHINE, line("b", "always", 5), {**broken, "failed": "it fell over"}])
    assert page.rstrip().endswith("- W1: c, 100 bytes: a, always: it fell over")
    assert [row.split(", ")[0] for row in rows(page, "W1: send_many")] == ["| b"]


def test_a_system_without_a_figure_says_why_in_its_row() -> None:
    broken = {key: line("a", "always", 1)[key] for key in ("workload", "case", "system", "body")}
    page = text([MACHINE, line("b", "always", 5), {**broken, "mode": "always", "failed": "fell"}])
    assert "| a, always | fell |  |  |  |  |  |  |" in rows(page, "W1: send_many")


def test_every_system_is_described_once() -> None:
    lines = [line("a", "always", 1, workload=workload) for workload in ("W1", "W2")]
    assert text([MACHINE, *lines]).count("- a, always (1): kept always; set so.") == 1


def test_limits_of_the_machine_are_told() -> None:
    machine = {**MACHINE, "memory_copy_bytes_per_second": 3 * 2**30}
    said = text([machine, line("a", "always", 1)])
    assert "4,000 fdatasync a second" in said
    assert "3,072 MiB copied in memory a second" in said
