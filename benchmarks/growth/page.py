"""
The page of growth: tables and curves for each axis.

    python -m benchmarks.growth.page LINES.jsonl FOLDER
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.lines import Line, read
from benchmarks.markdown import limits, number, size, table
from benchmarks.peers.ratios import OURS, name
from benchmarks.plots import curves

__all__ = ["text", "write"]

HEAD = """# Growth

Written by `make bench-peers`: what becomes of rates and memory as there is more of something. Messages have 100
bytes where their size is not what grows; a rate is the median of the runs, with the least and the most. Each message
is acknowledged after a flush by every system, but with a longer backlog, which each system takes in as it does so
soonest. Queues are partitions of Kafka, streams of Redis, and in PostgreSQL a column's value, which costs nothing
and orders nothing; NATS and RabbitMQ have no group of consumers that shares out queues. An empty cell was not asked
for: others go to 100 queues, 16 consumers and a million messages. Where a system was asked and has no figure, the
cell says why.
"""


class Axis(NamedTuple):
    """What grows: its heading, its unit and how a step is written."""

    title: str
    unit: str
    step: Callable[[int], str]


def counted(number: int) -> str:
    return f"{number:,}"


AXES: Mapping[str, Axis] = {
    "body": Axis("Larger messages", "bytes of a message", size),
    "queues": Axis("More queues", "queues of a topic", counted),
    "consumers": Axis("More consumers", "members of a group on 64 queues", counted),
    "backlog": Axis("A longer backlog", "messages that wait", counted),
}
QUANTITIES: Mapping[str, str] = {
    "sent_per_second": "messages sent a second",
    "sent_bytes_per_second": "MiB sent a second",
    "taken_per_second": "messages taken a second",
    "server_bytes": "MiB of memory of the server",
}


def write(folder: Path, lines: Sequence[Line]) -> None:
    """Writes `growth.md` and its plots; the first line describes the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "growth.md").write_text(text(lines))
    for old in folder.glob("growth-*.png"):
        old.unlink()
    for axis, quantity, found in _tables(lines):
        by_system: dict[str, list[tuple[int, float]]] = {}
        for line in found:
            value = line[quantity] / 2**20 if "bytes" in quantity else line[quantity]
            by_system.setdefault(name(line), []).append((line["at"], value))
        title = f"{AXES[axis].title}: {QUANTITIES[quantity]}"
        units = (AXES[axis].unit, QUANTITIES[quantity])
        curves(folder / _plot(axis, quantity), title, units, by_system)


def text(lines: Sequence[Line]) -> str:
    """The page in Markdown."""
    parts = [HEAD, limits(lines[0]) + "\n"]
    before = ""
    for axis, quantity, found in _tables(lines):
        if axis != before:
            parts.append(f"## {AXES[axis].title}\n")
            before = axis
        told = [*found, *_failures(lines, axis)]
        steps = sorted({line["at"] for line in told})
        head = [QUANTITIES[quantity].capitalize().replace("Mib", "MiB"), *map(AXES[axis].step, steps)]  # fmt: skip
        systems = dict.fromkeys(name(line) for line in told)
        rows = [_row(system, steps, quantity, told) for system in systems]
        parts += [
            (table(head, rows) + _sentence(quantity, found, AXES[axis])).rstrip("\n") + "\n",
            f"![{AXES[axis].title}: {QUANTITIES[quantity]}]({_plot(axis, quantity)})\n",
        ]
    failures = [line for line in lines if "failed" in line and "at" not in line]
    if failures:
        parts += ["## What failed\n"]
        parts += [f"- {line['axis']}: {name(line)}: {line['failed']}" for line in failures]
        parts.append("")
    return "\n".join(parts)


def _tables(lines: Sequence[Line]) -> list[tuple[str, str, list[Line]]]:
    """Axis, quantity and the lines that have it."""
    measured = [line for line in lines if "at" in line]
    return [
        (axis, quantity, found)
        for axis in AXES
        for quantity in QUANTITIES
        if (found := [line for line in measured if line["axis"] == axis and quantity in line])
    ]


def _failures(lines: Sequence[Line], axis: str) -> list[Line]:
    """The steps of an axis that have no figures."""
    return [
        line for line in lines if line.get("axis") == axis and "at" in line and "failed" in line
    ]


def _plot(axis: str, quantity: str) -> str:
    return f"growth-{axis}-{quantity.removesuffix('_per_second').replace('_', '-')}.png"


def _row(system: str, steps: Sequence[int], quantity: str, found: Sequence[Line]) -> list[str]:
    mine = {line["at"]: line for line in found if name(line) == system}
    cells = [_cell(mine[step], quantity) if step in mine else "" for step in steps]
    return [f"**{system}**" if system.startswith(OURS) else system, *cells]


def _cell(line: Line, quantity: str) -> str:
    if "failed" in line:
        return str(line["failed"]).replace("|", "/")
    if "bytes" in quantity:
        return number(line[quantity] / 2**20)
    least, most = line[f"{quantity}_min"], line[f"{quantity}_max"]
    return f"{line[quantity]:,} ({least:,}, {most:,})"


def _sentence(quantity: str, found: Sequence[Line], axis: Axis) -> str:
    """From the first step to the last, what ours has become."""
    mine = sorted((line for line in found if line["system"] == OURS), key=lambda line: line["at"])
    if len(mine) < 2:
        return ""
    first, last = mine[0], mine[-1]
    return (
        f"From {axis.step(first['at'])} to {axis.step(last['at'])} ours becomes "
        f"{last[quantity] / first[quantity]:.3g} of what it was.\n"
    )


def main() -> None:
    source, folder = map(Path, sys.argv[1:])
    write(folder, read(source))


if __name__ == "__main__":
    main()
