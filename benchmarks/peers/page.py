"""
The page of a run: a table and a plot for each case, and how each system was set up.

    python -m benchmarks.peers.page LINES.jsonl FOLDER
"""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

__all__ = ["text", "write"]

Line = Mapping[str, Any]

OURS = "headrace"
HEAD = """# Queues beside each other

Written by `make bench-peers`. Every system has its server in one process and its clients in Python,
by its own client library, in others; all of them did the same work in turns, in one run. A rate is the
median of the runs, with the least and the most; CPU is processor time for each message. Rates of
different durability do not compare: the upper part of each table is acknowledged after a flush.
"""
TABLE = """| System | Per second | Least, most | p50, p99 in ms | Server CPU | Clients CPU | Server MiB |
|---|---|---|---|---|---|---|"""


def write(folder: Path, lines: Sequence[Line]) -> None:
    """Writes `queues.md` and a PNG for each case; the first line describes the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "queues.md").write_text(text(lines))
    for number, (title, case) in enumerate(_cases(lines)):
        _plot(title, case, folder / f"queues-{number}.png")


def text(lines: Sequence[Line]) -> str:
    """The page in Markdown."""
    machine, results = lines[0], lines[1:]
    limits = ", ".join(
        f"{machine[name]:,} {name.removesuffix('_per_second').replace('_', ' ')} a second"
        for name in machine
        if name.endswith("_per_second")
    )
    parts = [
        HEAD,
        f"{machine['cores']} cores, Python {machine['python']}; in the same run {limits}.\n",
    ]
    for number, (title, case) in enumerate(_cases(lines)):
        parts += [f"## {title}\n", TABLE, *map(_row, case), f"\n![{title}](queues-{number}.png)\n"]
    return "\n".join([*parts, "## How each was set up\n", *_setups(results), ""])


def _cases(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """Each case's title and its systems: durable ones first, the best of them first."""
    return [
        (title, sorted(found, key=lambda line: (line["mode"] != "always", _order(line))))
        for title, found in groupby(lines[1:], key=_title)
    ]


def _title(line: Line) -> str:
    return f"{line['workload']}: {line['case']}, {line['body']} bytes"


def _is_time(line: Line) -> bool:
    return "p50_us" in line and (line["workload"] == "W4" or "one at a time" in line["case"])


def _order(line: Line) -> float:
    return float(line["p50_us"] if _is_time(line) else -line["per_second"])


def _name(line: Line) -> str:
    return f"{line['system'].replace('_', ' ')}, {line['mode']}"


def _row(line: Line) -> str:
    name = f"**{_name(line)}**" if line["system"] == OURS else _name(line)
    times = f"{line['p50_us'] / 1e3:.2f}, {line['p99_us'] / 1e3:.2f}" if "p50_us" in line else ""
    return (
        f"| {name} | {line['per_second']:,} | {line['per_second_min']:,}, {line['per_second_max']:,} "
        f"| {times} | {_microseconds(line, 'server_cpu_us')} | {_microseconds(line, 'client_cpu_us')} "
        f"| {line['server_bytes'] / 2**20:.0f} |"
    )


def _microseconds(line: Line, name: str) -> str:
    return f"{line[name]:.2f} us" if name in line else ""


def _setups(results: Sequence[Line]) -> list[str]:
    found = {(_name(line), line["version"], line["promise"], line["settings"]) for line in results}
    return [
        f"- {name} ({version}): {promise}; {settings}."
        for name, version, promise, settings in sorted(found)
    ]


def _plot(title: str, case: Sequence[Line], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.5 + 0.4 * len(case)), layout="constrained")
    values = [line["p50_us"] / 1e3 if _is_time(line) else line["per_second"] for line in case]
    colours = ["tab:blue" if line["system"] == OURS else "tab:gray" for line in case]
    bars = axes.barh([_name(line) for line in case], values, color=colours)
    axes.bar_label(bars, fmt="{:,.2f}" if _is_time(case[0]) else "{:,.0f}", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(title)
    axes.set_xlabel("ms, median" if _is_time(case[0]) else "messages per second")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    source, folder = sys.argv[1:]
    write(Path(folder), [json.loads(line) for line in Path(source).read_text().splitlines()])


if __name__ == "__main__":
    main()
