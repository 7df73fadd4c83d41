"""
Our queue beside others: the same work, by each one's own client library, in alternation.

    python -m benchmarks.peers [W1 W2 W3 W4 W5] [--systems redis_streams:always ...] [--runs 3]
                               [--seconds 2] [--body 100] [--queues 4] [--page docs/benchmarks]

    W1    one client process: `send_many` of 100 with 8 under way, of 1,000, `send` from 1,000
          tasks, and one message awaited at a time
    W2    four client processes that each do `send_many` of 100
    W3    taking a backlog, acknowledged
    W4    end to end at 500 messages a second
    W5    producing and consuming at once, in one client process

Every system has its server in a process of its own and clients in Python in others; all of them
are started before the first run of a case, and take turns: each runs for some seconds while the
others rest. One line of JSON per case and system: medians of the runs with the least and the most,
processor time for each message, the memory of the server. `--page` writes the same as a table and
plots. `make peers` installs the other systems.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import facts, fdatasync_per_second, loopback_round_trips_per_second
from benchmarks.mq.processes import Child, cpu_seconds, resident_bytes, start
from benchmarks.peers.page import write
from benchmarks.peers.processes import family
from benchmarks.peers.system import QUEUES, Serving, system

SYSTEMS = [
    "headrace:always", "redis_streams:always", "nats_jetstream:always", "rabbitmq_quorum:always",
    "postgresql_table:always",
    "headrace:interval", "redis_streams:everysec", "nats_jetstream:default", "postgresql_table:off",
]  # fmt: skip


class Case(NamedTuple):
    """The same work for every system."""

    workload: str
    name: str
    task: str
    asked: Mapping[str, Any]
    processes: int = 1


CASES = [
    Case("W1", "send_many of 100", "send_many", {"size": 100, "tasks": 8}),
    Case("W1", "send_many of 1,000", "send_many", {"size": 1_000, "tasks": 8}),
    Case("W1", "send from 1,000 tasks", "send", {"tasks": 1_000}),
    Case("W1", "send, one at a time", "send", {"tasks": 1}),
    Case("W2", "4 x send_many of 100", "send_many", {"size": 100, "tasks": 8}, 4),
    Case("W3", "a backlog, acknowledged", "drain", {}),
    Case("W4", "end to end at 500/s", "pace", {"per_second": 500}),
    Case("W5", "producing and consuming", "both", {"size": 100, "tasks": 8}),
]


@dataclass(slots=True)
class Contender:
    """One system in one case: its processes and what its runs gave."""

    name: str
    mode: str
    server: Serving
    clients: Sequence[Child]
    runs: list[Mapping[str, Any]] = field(default_factory=list)

    async def run(self) -> None:
        """Lets all clients do their task once."""
        servers = family(self.server.pids)
        before = self._cpu(servers)
        said = await asyncio.gather(*(client.run() for client in self.clients))
        used = [late - early for early, late in zip(before, self._cpu(servers), strict=True)]
        count = sum(result["count"] for result in said)
        rate = count / max(result["seconds"] for result in said)
        run = {**said[0], "per_second": rate}
        if said[0].get("all_measured", True):
            names = ("server_cpu_us", "client_cpu_us")
            run |= {name: 1e6 * seconds / count for name, seconds in zip(names, used, strict=True)}
        self.runs.append(run)

    def _cpu(self, servers: Sequence[int]) -> tuple[float, float]:
        return (
            sum(map(cpu_seconds, servers)),
            sum(cpu_seconds(client.pid) for client in self.clients),
        )

    def result(self, case: Case) -> dict[str, Any]:
        """One line of the result; the first run only warms up."""
        runs = self.runs[1:]
        rates = [run["per_second"] for run in runs]
        line: dict[str, Any] = {
            "benchmark": "peers",
            "workload": case.workload,
            "case": case.name,
            "system": self.name,
            "mode": self.mode,
            "version": self.server.version,
            "settings": self.server.settings,
            "promise": system(self.name).MODES[self.mode],
            "per_second": round(statistics.median(rates)),
            "per_second_min": round(min(rates)),
            "per_second_max": round(max(rates)),
        }
        for name in ("p50_us", "p99_us", "server_cpu_us", "client_cpu_us"):
            if name in runs[0]:
                line[name] = round(statistics.median(run[name] for run in runs), 2)
        line["server_bytes"] = sum(map(resident_bytes, family(self.server.pids)))
        return line


@asynccontextmanager
async def contender(
    chosen: str, case: Case, common: Mapping[str, Any], folder: Path
) -> AsyncIterator[Contender]:
    """A system's server and its clients, ready for the first run."""
    name, _, mode = chosen.partition(":")
    asked = json.dumps({**common, **case.asked})
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            system(name).serve(folder / f"{name}-{mode}", mode, common["queues"])
        )
        clients = []
        for _ in range(case.processes):
            client = await start("benchmarks.peers.client", name, case.task, server.address, asked)
            stack.push_async_callback(client.end)
            clients.append(client)
        for client in clients:
            await client.hear()
        yield Contender(name, mode, server, clients)


async def measure(
    case: Case, systems: Sequence[str], common: Mapping[str, Any], runs: int, folder: Path | None
) -> list[dict[str, Any]]:
    """Runs a case with every system, in turns."""
    async with AsyncExitStack() as stack:
        # A server may run as a user of its own.
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        contenders = [
            await stack.enter_async_context(contender(chosen, case, common, place))
            for chosen in systems
        ]
        for _ in range(runs + 1):
            for one in contenders:
                await one.run()
        return [one.result(case) for one in contenders]


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("workloads", nargs="*", help="W1 to W5; all without one")
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, help="SYSTEM:MODE ...")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of sending, in each run")
    parser.add_argument("--body", type=int, default=100, help="bytes of a message")
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--directory", type=Path, help="where the servers write")
    parser.add_argument("--page", type=Path, help="write a table and plots into this folder")
    asked = parser.parse_args()
    machine = {
        "benchmark": "machine",
        **facts(),
        "fdatasync_per_second": round(fdatasync_per_second(asked.directory)),
        "loopback_round_trips_per_second": round(loopback_round_trips_per_second()),
    }
    lines = [machine]
    print(json.dumps(machine), flush=True)
    common = {"seconds": asked.seconds, "body": asked.body, "queues": asked.queues}
    for case in CASES:
        if (
            asked.workloads and case.workload not in asked.workloads
        ) or asked.only not in case.name:
            continue
        for line in await measure(case, asked.systems, common, asked.runs, asked.directory):
            lines.append({**line, **common})
            print(json.dumps(lines[-1]), flush=True)
    if asked.page:
        write(asked.page, lines)


if __name__ == "__main__":
    asyncio.run(main())
