"""
The page of commands compared with other frameworks: a table for each store and kind of load, the targets.

    python -m benchmarks.commands.page LINES.jsonl FOLDER
"""

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.lines import Line, read
from benchmarks.markdown import limits, table
from benchmarks.plots import bars

__all__ = ["text", "write"]

OURS = "headrace"
# In times of the best of the others.
MANY_TARGET, HOT_TARGET, REBUILD_TARGET = 5.0, 20.0, 10.0
STORES = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}
HEAD = """# Commands compared with other frameworks

Written by `make bench-peers`. Accounts take deposits; each is durable before its caller goes on. Every contender
has a process and a store of its own, and all of them did the same work in turns, in one run: rates are commands a
second, the median of the runs with the least and the most. The others, `eventsourcing` 9.5.6 and `protean` 0.18 with
Message DB, have no queue and no replies here: their callers are threads that call the application. So compare them
with ours in one process. Through its queue ours does more: a broker and a service run in processes of their own, and
there are three flushes before the reply. "Cached" are the fastest settings of `eventsourcing` that are safe with
several processes. CPU is the processor time of a command, of all processes but the database's, with as many commands
in flight as the last column of rates has. A target is a number of times: the faster of ours, compared with the best of
the others, each with as many commands in flight as suit it best. Where a target is missed, a sentence says why.
A cell without a rate says how long so few commands took.
"""


def write(folder: Path, lines: Sequence[Line]) -> None:
    """Writes `commands.md` and its plots; the first line describes the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commands.md").write_text(text(lines))
    for old in folder.glob("commands-*.png"):
        old.unlink()
    for number, (title, found) in enumerate(_groups(lines)):
        most = max(line["in_flight"] for line in found)
        values = {
            line["system"]: line["per_second"]
            for line in _rated(found)
            if line["in_flight"] == most
        }
        unit = f"commands per second, {most} in flight"
        bars(folder / f"commands-{number}.png", title, unit, values)


def text(lines: Sequence[Line]) -> str:
    """The page in Markdown."""
    parts = [HEAD, limits(lines[0]) + "\n"]
    for number, (title, found) in enumerate(_groups(lines)):
        parts += [
            f"## {title}\n",
            _table(found) + _sentence(found),
            f"![{title}](commands-{number}.png)\n",
        ]
    parts += [*_projections(lines), *_failures(lines)]
    return "\n".join(parts)


def _groups(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    measured = [line for line in lines if "in_flight" in line]
    return [
        (title, list(found))
        for title, found in groupby(
            measured, key=lambda line: f"{STORES[line['store']]}, {_accounts(line)}"
        )
    ]


def _accounts(line: Line) -> str:
    return "one hot account" if line["aggregates"] == 1 else f"{line['aggregates']:,} accounts"


def _table(found: Sequence[Line]) -> str:
    flights = sorted({line["in_flight"] for line in found})
    head = ["System", *(f"{number} in flight" for number in flights), "p50, p99 in ms", "CPU"]
    rows = []
    for system in dict.fromkeys(line["system"] for line in found):
        mine = {line["in_flight"]: line for line in found if line["system"] == system}
        last = next((line for line in _rated(found) if line is mine.get(flights[-1])), None)
        rows.append([
            f"**{system}**" if system.startswith(OURS) else system,
            *(_rate(mine[number]) if number in mine else "" for number in flights),
            f"{last['p50_us'] / 1e3:.2f}, {last['p99_us'] / 1e3:.2f}" if last else "",
            f"{last['cpu_us']:.0f} us" if last else "",
        ])  # fmt: skip
    return table(head, rows)


def _rated(found: Sequence[Line]) -> list[Line]:
    """Without the loads that took too long."""
    return [line for line in found if "per_second" in line]


def _rate(line: Line) -> str:
    if "failed" in line:
        return str(line["failed"]).replace("|", "/")
    return f"{line['per_second']:,} ({line['per_second_min']:,}, {line['per_second_max']:,})"


def _sentence(found: Sequence[Line]) -> str:
    """Ours at its best and the other at its best, by number in flight and altogether."""
    ours = [line for line in _rated(found) if line["system"].startswith(OURS)]
    others = [line for line in _rated(found) if not line["system"].startswith(OURS)]
    if not ours or not others:
        return ""
    flights = sorted({line["in_flight"] for line in ours} & {line["in_flight"] for line in others})
    parts = [
        f"{_most(ours, number)['per_second'] / _most(others, number)['per_second']:.2f} with {number}"
        for number in flights
    ]
    mine, other = _most(ours), _most(others)
    target = HOT_TARGET if mine["aggregates"] == 1 else MANY_TARGET
    reached = mine["per_second"] / other["per_second"]
    return (
        f"The faster of ours is so many times as fast as the best of the others: {', '.join(parts)} in flight. "
        f"Each at its best ({mine['system']} with {mine['in_flight']}, {other['system']} with "
        f"{other['in_flight']}) it is {reached:.2f}: the target of {target:g} is "
        f"{'met' if reached >= target else 'missed'}.{_why(mine, other, target)}\n"
    )


def _why(mine: Line, other: Line, target: float) -> str:
    """What the run's own figures say of a target that was missed."""
    if mine["per_second"] >= target * other["per_second"]:
        return ""
    left_us = 1e6 / (target * other["per_second"])
    return (
        f" Why: {target:g} times would leave {left_us:.0f} us for a command. Ours takes {mine['cpu_us']:.0f} us of "
        f"the processor for one, without the database's, and so keeps {mine['per_second'] * mine['cpu_us'] / 1e6:.1f} "
        f"cores busy; the other is at its best with {other['in_flight']} in flight, where its callers hardly wait "
        "for each other."
    )


def _most(lines: Sequence[Line], in_flight: int | None = None) -> Line:
    return max(
        (line for line in lines if in_flight in (None, line["in_flight"])),
        key=lambda line: line["per_second"],
    )


def _projections(lines: Sequence[Line]) -> list[str]:
    """Events into rows of PostgreSQL: as they come, and in a rebuild."""
    found = [line for line in lines if line["benchmark"] == "projections" and "per_second" in line]
    rows, said = [], []
    other = next((line for line in found if line["case"] == "eventsourcing"), None)
    for case, work in (("live", "as they come"), ("rebuild", "rebuilt")):
        for line in found:
            if line["case"] != case:
                continue
            reached = line["per_second"] / other["per_second"] if other else None
            rows.append([
                f"{work}, {line['events']:,} events, {line['keys']:,} keys",
                f"{line['per_second']:,} ({line['cpu_us']:.1f} us)",
                f"{other['per_second']:,} ({other['cpu_us']:.1f} us)" if other else "",
                f"{reached:.1f} x" if reached else "",
            ])  # fmt: skip
            if case == "rebuild" and reached:
                verdict = "met" if reached >= REBUILD_TARGET else "missed"
                said.append(
                    f"A rebuild of ours is {reached:.1f} times as fast: the target of "
                    f"{REBUILD_TARGET:g} is {verdict}.\n"
                )
    head = ("Events folded into rows", "Ours a second (CPU for each)", "eventsourcing", "Ours is")
    told = (
        "Into PostgreSQL. `eventsourcing` catches up with one event in a transaction; its rate is "
        "that of its first ten seconds with 40,000 events before it.\n"
    )
    return ["## Projections\n", told, table(head, rows) + "".join(said)] if rows else []


def _failures(lines: Sequence[Line]) -> list[str]:
    found = [
        f"- {line.get('system', line['benchmark'])}, {line.get('store', '')}: {line['failed']}"
        for line in lines
        if "failed" in line and "in_flight" not in line
    ]
    return ["## What failed\n", *found, ""] if found else []


def main() -> None:
    source, folder = map(Path, sys.argv[1:])
    write(folder, read(source))


if __name__ == "__main__":
    main()
