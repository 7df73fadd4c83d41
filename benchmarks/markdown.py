"""What pages of results have in common: the machine's sentence, tables, how figures are written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["limits", "mib", "number", "size", "table", "times"]

UNITS = {
    "fdatasync_per_second": "fdatasync a second",
    "commits_per_second": "single-row commits of PostgreSQL over one connection a second",
    "loopback_round_trips_per_second": "loopback round trips a second",
    "memory_copy_bytes_per_second": "MiB copied in memory a second",
    "append_bytes_per_second": "MiB appended to a file and flushed a second",
}


def limits(machine: Mapping[str, Any]) -> str:
    """A sentence on the machine and what it did at best in the run."""
    found = [
        f"{machine[name] / 2**20 if 'bytes' in name else machine[name]:,.0f} {unit}"
        for name, unit in UNITS.items()
        if name in machine
    ]
    least = f"{machine['cores']} cores, Python {machine['python']}"
    return f"{least}; in the same run {', '.join(found)}." if found else f"{least}."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a blank line behind it."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("| --- ", "|---") + "\n"


def number(value: float) -> str:
    """A rate as one reads it: no more digits than say something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def mib(count: float) -> str:
    """Bytes as whole MiB."""
    return f"{count / 2**20:,.0f}"


def size(count: int) -> str:
    """The size of a message as one says it."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count:,} bytes"


def times(ratio: float) -> str:
    """How many times as good, in two digits or in whole numbers."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
