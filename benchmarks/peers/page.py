"""
The page of a run: a table and a plot for each case, the targets, and how each system was set up.

    python -m benchmarks.peers.page LINES.jsonl FOLDER
"""

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.lines import Line, read
from benchmarks.markdown import limits, mib, size, table, times
from benchmarks.peers.ratios import (
    DURABLE_TARGET,
    OTHER_TARGET,
    OURS,
    RATED,
    best,
    is_durable,
    is_time,
    name,
    order,
    ratio,
    sentences,
    why,
)
from benchmarks.plots import bars

__all__ = ["text", "write"]

HEAD = """# Queues compared

Written by `make bench-peers`. Every system has its server in one process and its clients in Python,
by its own client library, in others; all of them did the same work in turns, in one run. A rate is the
median of the runs, with the least and the most; CPU is processor time for each message; memory counts once
what processes share. Rates of different durability do not compare: the upper part of each table is
acknowledged after a flush, and "ours is" says how many times as fast Headrace is with the same promise.
"""
OLD_KAFKA = """Kafka is 0.9: no newer broker is in a package of npm, PyPI or Debian. A newer one was measured elsewhere, on
another machine of two cores, with the same client and 100 bytes: 605,000 to 690,000 messages a second in W1 and
795,000 in W2 where every batch is flushed, 807,000 and 866,000 to 920,000 as it comes; at 1 KiB 232,000 to 365,000
in W1. Figures of different machines do not compare.
"""
COLUMNS = (
    "System", "Per second", "Least, most", "Ours is", "p50, p99 in ms", "Server CPU", "Clients CPU",
    "Server MiB",
)  # fmt: skip
BACKLOG = "backlog"
PROFILE = "../engineering/performance.md#why-a-target-is-missed"


def write(folder: Path, lines: Sequence[Line]) -> None:
    """Writes `queues.md` and a PNG for each case; the first line describes the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "queues.md").write_text(text(lines))
    for old in folder.glob("queues-*.png"):
        old.unlink()
    for number, (title, case) in enumerate(_cases(lines)):
        timed = is_time(case[0])
        values = {
            name(line): line["p50_us"] / 1e3 if timed else line["per_second"] for line in case
        }
        unit = "ms, median" if timed else "messages per second"
        bars(folder / f"queues-{number}.png", title, unit, values)


def text(lines: Sequence[Line]) -> str:
    """The page in Markdown."""
    machine, results = lines[0], lines[1:]
    parts = [HEAD, limits(machine) + "\n"]
    if any(line["system"] == "kafka" for line in results):
        parts.append(OLD_KAFKA)
    parts += [_targets(results), *_backlog(results)]
    for number, (title, case) in enumerate(_cases(lines)):
        parts += [
            f"## {title}\n",
            table(COLUMNS, [*(_row(line, case) for line in case), *_empty(title, results)])
            + "".join(f"{sentence}\n\n" for sentence in sentences(case)).removesuffix("\n"),
            f"![{title}](queues-{number}.png)\n",
        ]
    parts += ["## How each was set up\n", *_setups(results), *_failures(results), ""]
    return "\n".join(parts)


def _cases(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """Each case's title and its systems: durable ones first, the best of them first."""
    measured = [line for line in lines[1:] if "per_second" in line]
    return [
        (title, sorted(found, key=lambda line: (not is_durable(line), order(line))))
        for title, found in groupby(measured, key=_title)
    ]


def _title(line: Line) -> str:
    return f"{line['workload']}: {line['case']}, {size(line['body'])}"


def _row(line: Line, case: Sequence[Line]) -> list[str]:
    ours, _ = best(case, durable=is_durable(line))
    mine = line["system"] == OURS
    return [
        f"**{name(line)}**" if mine else name(line),
        f"{line['per_second']:,}",
        f"{line['per_second_min']:,}, {line['per_second_max']:,}",
        "" if mine or ours is None else f"{times(ratio(ours, line))} x",
        f"{line['p50_us'] / 1e3:.2f}, {line['p99_us'] / 1e3:.2f}" if "p50_us" in line else "",
        _microseconds(line, "server_cpu_us"),
        _microseconds(line, "client_cpu_us"),
        mib(line["server_bytes"]),
    ]


def _empty(title: str, results: Sequence[Line]) -> list[list[str]]:
    """Rows of systems that have no figures in a case: they say why."""
    return [
        [name(line), line["failed"].replace("|", "/"), *[""] * (len(COLUMNS) - 2)]
        for line in results
        if "failed" in line and _title(line) == title
    ]


def _microseconds(line: Line, field: str) -> str:
    return f"{line[field]:.2f} us" if field in line else ""


def _targets(results: Sequence[Line]) -> str:
    """Each workload's best way of sending, ours beside the best of the others."""
    rows, missed = [], []
    rated = [line for line in results if line["workload"] in RATED and "per_second" in line]
    keys = sorted({(line["workload"], line["body"]) for line in rated})
    for workload, body in keys:
        case = [
            line
            for line in rated
            if (line["workload"], line["body"]) == (workload, body) and not is_time(line)
        ]
        for durable, target in ((True, DURABLE_TARGET), (False, OTHER_TARGET)):
            ours, other = best(case, durable=durable)
            if ours is None or other is None:
                continue
            is_met = ratio(ours, other) >= target
            rows.append([
                f"{workload}, {size(body)}", "after a flush" if durable else "without one",
                f"{ours['per_second']:,}", f"{other['per_second']:,} ({name(other)})",
                f"{ratio(ours, other):.2f} x", f"{target:g} x", "met" if is_met else "missed",
            ])  # fmt: skip
            if not is_met:
                when = "after a flush" if durable else "without one"
                same = [line for line in case if line["case"] == ours["case"]]
                missed.append(f"- {workload}, {size(body)}, {when}.{why(same, ours, other)}\n")
    head = ("Work", "Acknowledged", "Ours", "Best of the others", "Ours is", "Target", "")
    told = (
        "## Targets\n\nOf several ways to send, each system's fastest. A target is met where ours is at least so "
        "many times as fast as the best of the others with the same promise.\n\n"
    )
    if missed:
        missed = [f"Missed, and why ([more]({PROFILE})):\n\n", *missed]
    return (told + table(head, rows) + "".join(missed)).rstrip("\n") + "\n"


def _backlog(results: Sequence[Line]) -> list[str]:
    held = [line for line in results if line["workload"] == BACKLOG and "messages" in line]
    if not held:
        return []
    rows = [
        [
            f"**{name(line)}**" if line["system"] == OURS else name(line),
            f"{line['messages']:,}", mib(line["empty_bytes"]), mib(line["server_bytes"]),
        ]
        for line in sorted(held, key=lambda line: line["server_bytes"])
    ]  # fmt: skip
    said = ""
    others = [line for line in held if line["system"] != OURS]
    ours = next((line for line in held if line["system"] == OURS), None)
    if ours and others:
        least = min(others, key=lambda line: line["server_bytes"])
        is_met = ours["server_bytes"] <= least["server_bytes"]
        said = (
            f"Ours holds {mib(ours['server_bytes'])} MiB and the smallest of the others, {name(least)}, "
            f"{mib(least['server_bytes'])}: the target, no more than the smallest, is "
            f"{'met' if is_met else 'missed'}.\n"
        )
        if not is_met:
            said = said.rstrip("\n") + (
                f" Why: of ours {mib(ours['empty_bytes'])} MiB are there with nothing stored, the interpreter and its "
                f"libraries; the other {mib(ours['server_bytes'] - ours['empty_bytes'])} came with the backlog: its "
                "indexes, and what the allocator keeps of requests.\n"
            )
    head = ("System", "Messages", "Empty, MiB", "With them, MiB")
    return ["## The memory of a server that holds a backlog\n", table(head, rows) + said]


def _setups(results: Sequence[Line]) -> list[str]:
    found = {
        (name(line), line["version"], line["promise"], line["settings"])
        for line in results
        if "version" in line
    }
    return [
        f"- {who} ({version}): {promise}; {settings}."
        for who, version, promise, settings in sorted(found)
    ]


def _failures(results: Sequence[Line]) -> list[str]:
    found = [
        f"- {_title(line)}: {name(line)}: {line['failed']}" for line in results if "failed" in line
    ]
    return ["\n## What failed\n", *found] if found else []


def main() -> None:
    source, folder = map(Path, sys.argv[1:])
    write(folder, read(source))


if __name__ == "__main__":
    main()
