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


def rows(page: str) -> list[str]:
    return [row for row in page.splitlines() if row.startswith("| ") and " MiB" not in row]


def test_systems_that_flush_come_first_and_the_fastest_of_them_leads() -> None:
    lines = [
        line("headrace", "interval", 30_000),
        line("slow_one", "always", 1_000),
        line("headrace", "always", 2_000),
    ]
    names = [row.split(" | ")[0] for row in rows(text([MACHINE, *lines]))]
    assert names == ["| **headrace, always**", "| slow one, always", "| **headrace, interval**"]


def test_a_latency_is_ordered_from_the_shortest() -> None:
    paced = {"workload": "W4", "p99_us": 9_000}
    lines = [
        line("a", "always", 500, **paced, p50_us=2_000),
        line("b", "always", 500, **paced, p50_us=1_000),
    ]
    assert [row.split(", ")[0] for row in rows(text([MACHINE, *lines]))] == ["| b", "| a"]


def test_every_system_is_described_once() -> None:
    lines = [line("a", "always", 1, workload=workload) for workload in ("W1", "W2")]
    assert text([MACHINE, *lines]).count("- a, always (1): kept always; set so.") == 1


def test_limits_of_the_machine_are_told() -> None:
    assert "4,000 fdatasync a second" in text([MACHINE, line("a", "always", 1)])
