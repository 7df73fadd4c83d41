"""
Our queue beside others: the same work, by each one's own client library, in alternation.

    python -m benchmarks.peers [W1 W2 W3 W4 W5 backlog] [--systems redis_streams:always ...]
                               [--runs 3] [--seconds 0.5] [--bodies 100 1024] [--queues 4]
                               [--backlog 1000000] [--page docs/benchmarks]

    W1    one client process: `send_many` of 100 with 8 and with 32 under way, of 1,000, `send` from
          1,000 tasks, and one message awaited at a time
    W2    four client processes that each do `send_many` of 100, with 8 and with 32 under way
    W3    taking a backlog, acknowledged
    W4    end to end at 500 messages a second
    W5    producing and consuming at once, in one client process
    backlog  what a server holds in memory with so many messages of 100 bytes, one system at a time

Every system has its server in a process of its own and clients in Python in others; all of them
are started and warmed up before the first run of a case, and take turns: each runs for some seconds while the
others rest. One line of JSON per case and system: medians of the runs with the least and the most,
processor time for each message, the memory of the server. `--page` writes the same as a table and
plots. What fails is told and left out of its case. `make peers` installs the other systems.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.lines import Lines
from benchmarks.machine import limits
from benchmarks.peers.cases import HOLDERS, SYSTEMS, Case, chosen
from benchmarks.peers.contender import Contender, client, contender, reason, server
from benchmarks.peers.page import write
from benchmarks.peers.processes import family, held_bytes
from benchmarks.peers.system import QUEUES, system
from benchmarks.places import made_folder

# Slow systems hold as many messages as they take in so long, and the page tells how many.
FILLING_S_MAX = 60
# Until memory is no longer that of the last messages' work.
RESTING_S = 2

Failed = dict[str, Any]


class Turns:
    """The systems of a case, in turns; one that fails leaves."""

    def __init__(self, case: Case, common: Mapping[str, Any], folder: Path) -> None:
        self._case = case
        self._common = common
        self._folder = folder
        self._taking: dict[str, tuple[Contender, AsyncExitStack]] = {}
        self._failed: list[Failed] = []

    async def measure(self, systems: Sequence[str], runs: int) -> list[dict[str, Any]]:
        """The lines of all systems."""
        try:
            await asyncio.gather(*map(self._enter, systems))
            for one in list(self._taking):
                await self._run(one, warm_up=True)
            for _ in range(runs):
                for one in list(self._taking):
                    await self._run(one)
            found = [taking.result(self._case) for taking, _ in self._taking.values()]
        finally:
            await asyncio.gather(*(stack.aclose() for _, stack in self._taking.values()))
        return found + self._failed

    async def _enter(self, one: str) -> None:
        stack = AsyncExitStack()
        try:
            found = await stack.enter_async_context(
                contender(one, self._case, self._common, self._folder)
            )
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - told, and the others go on
            self._failed.append(failed(one, self._case, failure))
        else:
            self._taking[one] = (found, stack)

    async def _run(self, one: str, *, warm_up: bool = False) -> None:
        taking, stack = self._taking[one]
        try:
            await (taking.warm_up() if warm_up else taking.run())
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - told, and the others go on
            del self._taking[one]
            self._failed.append(failed(one, self._case, failure))
            await stack.aclose()


def failed(one: str, case: Case, failure: BaseException) -> Failed:
    name, _, mode = one.partition(":")
    return {
        "benchmark": "peers", "workload": case.workload, "case": case.name,
        "system": name, "mode": mode, "failed": reason(failure),
    }  # fmt: skip


async def hold(one: str, count: int, common: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What a server holds in memory with a backlog."""
    name, _, mode = one.partition(":")
    case = Case("backlog", "memory", "pour", {})
    try:
        async with server(one, common["queues"], folder) as serving:
            empty = held_bytes(family(serving.pids))
            asked = {**common, "count": count, "seconds": FILLING_S_MAX}
            async with client(name, case.task, serving.address, asked) as filling:
                said = await filling.run()
            await asyncio.sleep(RESTING_S)
            return {
                "benchmark": "peers", "workload": case.workload, "case": case.name,
                **Contender(name, mode, serving, []).described(),
                "messages": said["count"], "empty_bytes": empty,
                "server_bytes": held_bytes(family(serving.pids)),
            }  # fmt: skip
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - told, and the others go on
        return failed(f"{name}:{mode}", case, failure)


async def measure_all(asked: argparse.Namespace, lines: Lines) -> None:
    lines.say(limits(asked.directory))
    for case, body in chosen(asked.workloads, asked.only, asked.bodies):
        common = {"seconds": asked.seconds, "body": body, "queues": asked.queues}
        with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
            turns = Turns(case, common, Path(folder))
            for line in await turns.measure(asked.systems or SYSTEMS, asked.runs):
                lines.say({**line, **common})
    if not asked.workloads or "backlog" in asked.workloads:
        common = {"body": 100, "queues": asked.queues}
        for one in asked.systems or HOLDERS:
            with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
                line = await hold(one, asked.backlog, common, Path(folder))
                lines.say({**line, **common})


async def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", help="W1 to W5, backlog; all without one")
    parser.add_argument("--systems", nargs="+", help="SYSTEM:MODE ...; all without it")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of sending, in each run")
    parser.add_argument("--bodies", type=int, nargs="+", help="bytes of a message; 100 and 1024")
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--backlog", type=int, default=1_000_000, help="messages held")
    parser.add_argument("--directory", type=made_folder, help="where the servers write")
    parser.add_argument("--page", type=made_folder, help="write a table and plots into this folder")
    asked = parser.parse_args()
    for one in asked.systems or ():
        system(one.partition(":")[0])
    lines = Lines(asked.page and asked.page / "queues.jsonl")
    try:
        await measure_all(asked, lines)
    finally:
        if asked.page:
            write(asked.page, lines.said)


if __name__ == "__main__":
    asyncio.run(main())
