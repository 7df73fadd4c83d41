"""
The page of rebuilds compared with other ways to the same table.

    python -m benchmarks.rebuilds.page LINES.jsonl FOLDER
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lines import Line, read
from benchmarks.markdown import limits, number, table, times
from benchmarks.plots import bars

__all__ = ["text", "write"]

OURS = "headrace"
# In times of the peer's rate.
PEER, TARGET = "eventsourcing", 10.0
LOOP = "python loop"
# One system at a time keeps no more processors busy.
BUSY = 3.0
HEAD = """# Rebuilds compared

Written by `make bench-peers`. Each system rebuilds a table of balances from all deposits, in a process of
its own, in turns, in one run; a rate is the median of the runs, with the least and the most, and CPU is
processor time of all its processes but the broker, for an event. The tables of all but `eventsourcing`, which names accounts
its own way, were compared and are the same.

- `headrace` and `headrace with spark` read the topic from a broker, let each version of an aggregate pass once,
  and write rows, versions and offsets into SQLite, where the table then goes live. Starting Spark is left out,
  and so is making the framework's own tables, as that of `eventsourcing`'s is; "at first" is the first rebuild of
  a session, whose Python workers have to load first.
- `headrace in columns` and `headrace with spark from files` read the typed files of `headrace events export`, which
  is not in their time, and what the topic has behind them; the rest is as above. `headrace with spark, fold in Python`
  has a fold that is a function, where the others have it declared.
- `python loop` reads the same topic, trusts it, and writes the rows alone into SQLite.
- `duckdb` and `polars` read files of Parquet: columns, decoded and without duplicates, as `headrace events
  export` has written them, which is not in their time. What they store has no offset to go on from.
- `eventsourcing` 9.5.6 reads as many events of its own from SQLite, through its recorder and its mapper, into
  the same loop.

The target is met where the faster of ours folds ten times as many events a second as `eventsourcing`, and missed
otherwise; then a sentence says why.
"""


def write(folder: Path, lines: Sequence[Line]) -> None:
    """Writes `rebuilds.md` and its plot; the first line describes the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rebuilds.md").write_text(text(lines))
    values = {line["system"]: line["per_second"] for line in _measured(lines)}
    if values:
        bars(folder / "rebuilds.png", "A table of balances", "events per second", values)


def text(lines: Sequence[Line]) -> str:
    """The page in Markdown.

    Raises:
        ValueError: two systems made different tables of the same events.
    """
    machine, found = lines[0], _measured(lines)
    about = next((line for line in lines if "exported_seconds" in line), None)
    digests = {line["digest"] for line in found if line["system"] != PEER}
    if len(digests) > 1 or len({(line["rows"], line["folded"]) for line in found}) > 1:
        raise ValueError("the systems made different tables of the same events")
    rows = [
        [
            f"**{line['system']}**" if line["system"].startswith(OURS) else line["system"],
            number(line["per_second"]),
            f"{number(line['per_second_min'])}, {number(line['per_second_max'])}",
            f"{line['seconds']:.2f}",
            f"{line['cpu_us']:.2f} us",
        ]
        for line in found
    ]
    head = ["System", "Events per second", "Least, most", "Seconds", "CPU"]
    parts = [
        HEAD,
        limits(machine) + "\n",
        _setting(about) if about else "It ended before anything was measured.\n",
        table(head, rows) + _verdict(found) + "![Events per second](rebuilds.png)\n",
        *(f"{line['system']} has no figure: {line['failed']}.\n" for line in _failed(lines)),
    ]
    return "\n".join(parts)


def _setting(about: Line) -> str:
    said = (
        f"{about['events']:,} events of {about['accounts']:,} accounts, {about['runs']} runs; exporting"
        f" them took {about['exported_seconds']:.2f} s. At the end the load average of 15 minutes was"
        f" {about['load']:.1f}"
    )
    busy = about["load"] > BUSY
    more = ": other work wanted the processors, so CPU says more than rates" if busy else ""
    return f"{said}{more}.\n"


def _measured(lines: Sequence[Line]) -> list[Line]:
    found = [line for line in lines if "per_second" in line and "system" in line]
    return sorted(found, key=lambda line: -line["per_second"])


def _failed(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if "failed" in line]


def _verdict(found: Sequence[Line]) -> str:
    by_name = {line["system"]: line for line in found}
    if OURS not in by_name or PEER not in by_name:
        return ""
    ours = [line for line in found if line["system"].startswith(OURS)]
    peer = by_name[PEER]
    fastest = max(ours, key=lambda line: line["per_second"])
    ratio = fastest["per_second"] / peer["per_second"]
    spared = peer["cpu_us"] / min(line["cpu_us"] for line in ours)
    return (
        f"The faster of ours is {times(ratio)} times as fast as {PEER}, and takes one part in"
        f" {times(spared)} of its processor time: the target of {TARGET:g} is"
        f" {'met' if ratio >= TARGET else 'missed'}.{_why(fastest, peer, by_name.get(LOOP))}\n\n"
    )


def _why(ours: Line, peer: Line, loop: Line | None) -> str:
    """What the run's own figures say of a target that was missed."""
    if ours["per_second"] >= TARGET * peer["per_second"]:
        return ""
    left_us = 1e6 / (TARGET * peer["per_second"])
    beside = (
        f" A loop in Python that trusts what it reads and keeps no versions takes {loop['cpu_us']:.1f} us."
        if loop
        else ""
    )
    return (
        f" Why: {TARGET:g} times would leave {left_us:.1f} us for an event, and {ours['system']} takes"
        f" {ours['cpu_us']:.1f} us of the processors to read, decode, gate and fold one.{beside} The peer replays"
        " nothing here: its log is read in pages and folded by the same loop."
    )


def main() -> None:
    source, folder = sys.argv[1:]
    write(Path(folder), read(Path(source)))


if __name__ == "__main__":
    main()
