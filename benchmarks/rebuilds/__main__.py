"""
A table of balances made anew of all deposits: ours beside other ways, in turns, in one run.

    python -m benchmarks.rebuilds [--events 200000] [--accounts 10000] [--runs 3] [--page FOLDER]
        [--ways loop,duckdb,…]

The same events for all: in the topic for ours and a loop in Python, exported from there into files of
Parquet for DuckDB and Polars, and as many of its own for `eventsourcing`. All tables are compared. One
line of JSON per system, the median of the runs with the least and the most.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.lines import Line, Lines
from benchmarks.machine import limits
from benchmarks.mq.processes import broker
from benchmarks.places import made_folder
from benchmarks.rebuilds.contender import WAYS
from benchmarks.rebuilds.page import write
from benchmarks.spark.__main__ import fill
from benchmarks.spark.application import APP

# A run of a way: starting Spark and preparing what it reads are in it.
RUN_S_MAX = 180
# On top for many events: a fifth of what the slowest way passes in a second.
EVENTS_PER_S_MIN = 20_000


def export(address: str, folder: Path) -> float:
    """Exports the topic into files, and returns how many seconds that took."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "headrace", "events", "export", "--to", "parquet", folder,
         "--app", APP, "--broker", address, "--unsealed"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return time.perf_counter() - began


async def run(way: str, asked: Mapping[str, Any]) -> list[Line]:
    """What a way tells of one run, or why it tells nothing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.rebuilds.contender", way, json.dumps(asked),
        stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    failed: dict[str, Any] = {"benchmark": "rebuilds", "system": way}
    most = RUN_S_MAX + asked["events"] / EVENTS_PER_S_MIN
    try:
        told, _ = await asyncio.wait_for(process.communicate(), most)
    except TimeoutError:
        # With what it has started: Java, and Python workers.
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return [{**failed, "failed": f"took longer than {most:.0f} s"}]
    if process.returncode:
        return [{**failed, "failed": "its error stands in the output"}]
    return [json.loads(line) for line in told.splitlines()]


async def turns(
    runs: int, ways: Sequence[str], task: Mapping[str, Any]
) -> tuple[dict[str, list[Line]], list[Line]]:
    """What each system tells of its runs, and why ways have failed; those are not tried again."""
    found: dict[str, list[Line]] = {}
    failed: dict[str, Line] = {}
    for _, way in product(range(runs), ways):
        for line in await run(way, task) if way not in failed else ():
            if "failed" in line:
                failed[way] = line
            else:
                found.setdefault(line["system"], []).append(line)
    return found, list(failed.values())


async def measure(asked: argparse.Namespace, lines: Lines) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=asked.directory) as name:
        folder = Path(name)
        async with broker(folder / "mq", "interval") as (_, address):
            await fill(address, asked.events, asked.accounts)
            seconds = await asyncio.to_thread(export, address, folder / "export")
            task = {
                "broker": address, "folder": name, "events": asked.events,
                "accounts": asked.accounts, "export": str(folder / "export"),
                "files": str(folder / "export" / "export-*" / "events" / "Deposited" / "*.parquet"),
            }  # fmt: skip
            found, failed = await turns(asked.runs, asked.ways, task)
    lines.say({
        "benchmark": "rebuilds", "exported_seconds": round(seconds, 2), "events": asked.events,
        "accounts": asked.accounts, "runs": asked.runs, "load": round(os.getloadavg()[2], 1),
    })  # fmt: skip
    for runs in found.values():
        lines.say(median(runs))
    for line in failed:
        lines.say(line)


def median(runs: list[Line]) -> Line:
    """One line of several: medians, and the least and the most events per second."""
    if len({line["digest"] for line in runs if line["system"] != "eventsourcing"}) > 1:
        raise SystemExit(f"{runs[0]['system']}: its table was not the same in all runs")
    rates = [line["per_second"] for line in runs]
    middle = {key: statistics.median(line[key] for line in runs) for key in ("seconds", "cpu_us")}
    return {
        **runs[0], **middle, "per_second": round(statistics.median(rates)),
        "per_second_min": min(rates), "per_second_max": max(rates),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rebuilds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--ways", type=lambda text: text.split(","), default=list(WAYS), help="only some of them"
    )
    parser.add_argument(
        "--directory", type=made_folder, help="where the broker and databases write"
    )
    parser.add_argument(
        "--page", type=made_folder, help="write a table and a plot into this folder"
    )
    asked = parser.parse_args()
    lines = Lines(asked.page and asked.page / "rebuilds.jsonl")
    lines.say(limits(asked.directory))
    try:
        uvloop.run(measure(asked, lines))
    finally:
        if asked.page:
            write(asked.page, lines.said)


if __name__ == "__main__":
    main()
