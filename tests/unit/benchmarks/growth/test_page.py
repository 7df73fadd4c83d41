"""The page of growth."""

from typing import Any

from benchmarks.growth.page import text

MACHINE = {"benchmark": "machine", "cores": 2, "python": "3.11", "fdatasync_per_second": 4_000}


def step(axis: str, at: int, *, system: str = "headrace", **found: Any) -> dict[str, Any]:
    spread = {
        f"{name}_{end}": value
        for name, value in found.items()
        if "bytes" not in name
        for end in ("min", "max")
    }
    return {"axis": axis, "system": system, "mode": "always", "at": at, **found, **spread}


def tables(page: str, title: str) -> list[list[str]]:
    """The tables of a section, row by row."""
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    parts = [part.strip().splitlines() for part in section.split("\n\n")]
    return [part for part in parts if part and part[0].startswith("| ")]


def test_steps_are_columns_and_systems_are_rows() -> None:
    lines = [
        step("body", 2**20, sent_per_second=7),
        step("body", 10, sent_per_second=900),
        step("body", 10, system="other", sent_per_second=30),
    ]
    (rows,) = tables(text([MACHINE, *lines]), "Larger messages")
    assert rows[0] == "| Messages sent a second | 10 bytes | 1 MiB |"
    assert rows[2:] == [
        "| **headrace, always** | 900 (900, 900) | 7 (7, 7) |",
        "| other, always | 30 (30, 30) |  |",
    ]


def test_each_quantity_has_a_table_and_bytes_are_mib() -> None:
    lines = [step("backlog", 10_000, taken_per_second=5, server_bytes=3 * 2**20)]
    taken, held = tables(text([MACHINE, *lines]), "A longer backlog")
    assert taken[2] == "| **headrace, always** | 5 (5, 5) |"
    assert held[0] == "| MiB of memory of the server | 10,000 |"
    assert held[2] == "| **headrace, always** | 3 |"


def test_what_ours_has_become_from_first_to_last_is_said() -> None:
    lines = [step("queues", at, sent_per_second=rate) for at, rate in ((1_000, 50), (1, 200))]
    page = text([MACHINE, *lines])
    assert "From 1 to 1,000 ours becomes 0.25 of what it was." in page


def test_what_failed_is_told() -> None:
    broken = {"axis": "body", "system": "other", "mode": "always", "failed": "it fell"}
    page = text([MACHINE, step("queues", 1, sent_per_second=1), broken])
    assert page.rstrip().endswith("- body: other, always: it fell")


def test_a_step_without_a_figure_says_why_in_its_cell() -> None:
    broken = {"axis": "queues", "system": "other", "mode": "always", "at": 10, "failed": "too slow"}
    lines = [step("queues", 1, system="other", sent_per_second=5), broken]
    page = text([MACHINE, step("queues", 1, sent_per_second=9), *lines])
    (rows,) = tables(page, "More queues")
    assert rows[0] == "| Messages sent a second | 1 | 10 |"
    assert rows[3] == "| other, always | 5 (5, 5) | too slow |"
    assert "What failed" not in page
