"""
Commands beside other frameworks: the same accounts and deposits, in turns, on the same stores.

    python -m benchmarks.commands.beside [commands projections] [--stores postgresql sqlite]
        [--seconds 0.5] [--runs 3] [--aggregates 2000] [--page docs/benchmarks]

    commands     deposits into many accounts and into one, with 1, 8 and 64 in flight, each durable
                 before its caller goes on: ours in one process and through its queue, and
                 `eventsourcing` as it comes and with its cache; on PostgreSQL `protean` as well
    projections  events folded into rows of PostgreSQL as they come, and 200,000 of them anew:
                 `benchmarks.projections`

Every contender has a process, and a store with nothing else in it, of its own; all of them are
started before the first run and take turns. One line of JSON per load and contender, medians of
the runs. A load that takes one too long has a line that says so. `--page` writes tables and plots as well. `make peers` installs the others.
"""

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

from benchmarks.commands.contender import ONLY_ON, SYSTEMS
from benchmarks.commands.databases import embedded_postgres, raw_commits_per_second
from benchmarks.commands.loads import Load
from benchmarks.commands.page import write
from benchmarks.lines import Lines
from benchmarks.machine import limits
from benchmarks.mq.processes import Child, start
from benchmarks.peers.contender import reason
from benchmarks.places import made_folder

PARTS = ("commands", "projections")
IN_FLIGHT = (1, 8, 64)
# Of a run, before the first one that counts.
WARM_UP = 0.5
# A run of half a second that takes so long is not waited for three times more, and one that takes
# the second is ended: its cell says so.
SLOW_S, RUN_S_MAX = 5.0, 40.0
# Opening the accounts.
STARTING_S_MAX = 120.0
# It stores more slowly than it is to fold, and of what it stores it folds no more than this.
PEER_EVENTS = 40_000


class Contenders:
    """The frameworks' processes on one store; one that fails is told and left out."""

    def __init__(self, store: str, lines: Lines) -> None:
        self._store = store
        self._lines = lines
        self._children: dict[str, Child] = {}

    async def enter(self, stack: AsyncExitStack, accounts: int) -> None:
        """Starts them, one after the other: each opens its accounts undisturbed."""
        for system in SYSTEMS:
            if ONLY_ON.get(system, self._store) != self._store:
                continue
            child = await start("benchmarks.commands.contender", system, self._store, str(accounts))
            stack.push_async_callback(child.leave)
            self._children[system] = child
            await self._heard(system, STARTING_S_MAX)

    async def measure(self, load: Load, seconds: float, runs: int) -> None:
        """Lets them take turns at a load and tells a line for each."""
        found: dict[str, list[dict[str, Any]]] = {}
        slow: set[str] = set()
        for run in range(runs + 1):
            for system in [one for one in self._children if one not in slow]:
                asked = {
                    "in_flight": load.in_flight,
                    "aggregates": load.aggregates,
                    "seconds": seconds if run else seconds * WARM_UP,
                }
                self._children[system].say(json.dumps(asked))
                text = await self._heard(system, RUN_S_MAX, **asdict(load))
                said = json.loads(text) if text else None
                if said and run:
                    found.setdefault(system, []).append(said)
                elif said and said["seconds"] > SLOW_S:
                    slow.add(system)
                    seconds_taken = f"{said['count']} in {said['seconds']:.0f} s"
                    self._empty(system, seconds_taken, **asdict(load))
        for system, said_of in found.items():
            rates = [said["count"] / said["seconds"] for said in said_of]
            self._lines.say({
                "benchmark": "commands", "system": system, "store": self._store,
                "aggregates": load.aggregates, "in_flight": load.in_flight,
                "per_second": round(statistics.median(rates)),
                "per_second_min": round(min(rates)), "per_second_max": round(max(rates)),
                **{
                    name: round(statistics.median(said[name] for said in said_of), 1)
                    for name in ("p50_us", "p99_us", "cpu_us")
                },
            })  # fmt: skip

    def _empty(self, system: str, why: str, **load: int) -> None:
        self._lines.say({
            "benchmark": "commands", "system": system, "store": self._store, **load, "failed": why,
        })  # fmt: skip

    async def _heard(self, system: str, limit_s: float, **load: int) -> str:
        """What a process says in its time; one that does not is ended."""
        try:
            return await asyncio.wait_for(self._children[system].hear(), limit_s)
        except (OSError, TimeoutError, SystemExit) as failure:
            self._empty(system, reason(failure, limit_s), **load)
            await self._children.pop(system).end()
            return ""


async def commands(asked: argparse.Namespace, lines: Lines) -> None:
    for store in asked.stores:
        async with AsyncExitStack() as stack:
            contenders = Contenders(store, lines)
            await contenders.enter(stack, asked.aggregates)
            for aggregates in (asked.aggregates, 1):
                for in_flight in IN_FLIGHT:
                    load = Load(in_flight=in_flight, aggregates=aggregates)
                    await contenders.measure(load, asked.seconds, asked.runs)


async def projections(asked: argparse.Namespace, lines: Lines) -> None:
    """Lets the benchmark of the read side say its lines here."""
    events = ["--events", str(asked.events), "--rebuild-events"]
    await projected(asked, lines, ["live", "rebuild", *events, str(asked.rebuild_events)])
    await projected(asked, lines, ["peer", *events, str(PEER_EVENTS)])


async def projected(asked: argparse.Namespace, lines: Lines, wanted: Sequence[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.projections", *wanted,
        "--only", "postgresql", "--runs", str(asked.runs), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    async for text in process.stdout:
        line = json.loads(text)
        if line["benchmark"] != "machine":
            lines.say(line)
    if await process.wait():
        lines.say({"benchmark": "projections", "failed": "its error stands in the output"})


async def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.commands.beside",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help="commands, projections; both without one")
    parser.add_argument("--stores", nargs="+", default=["postgresql", "sqlite"])
    parser.add_argument("--seconds", type=float, default=0.5, help="per load and run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--aggregates", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=20_000, help="folded as they come")
    parser.add_argument("--rebuild-events", type=int, default=200_000)
    parser.add_argument("--page", type=made_folder, help="write tables and plots into this folder")
    asked = parser.parse_args()
    lines = Lines(asked.page and asked.page / "commands.jsonl")
    with embedded_postgres() as server:
        commits = round(await raw_commits_per_second(server.url))
    lines.say({**limits(), "commits_per_second": commits})
    try:
        for part, measure in zip(PARTS, (commands, projections), strict=True):
            if not asked.parts or part in asked.parts:
                await measure(asked, lines)
    finally:
        if asked.page:
            write(asked.page, lines.said)


if __name__ == "__main__":
    asyncio.run(main())
