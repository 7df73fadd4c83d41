"""
One system in one case: its server, its clients, its runs.

Sits between: the command line, which lets all of them take turns, and a system's module.
"""

import asyncio
import json
import os
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.mq.processes import Child, cpu_seconds, start
from benchmarks.peers.cases import Case
from benchmarks.peers.processes import family, held_bytes
from benchmarks.peers.system import Serving, system

__all__ = ["Contender", "client", "contender", "server"]


@dataclass(slots=True)
class Contender:
    """One system in one case: its processes and what its runs gave."""

    name: str
    mode: str
    server: Serving
    clients: Sequence[Child]
    runs: list[Mapping[str, Any]] = field(default_factory=list)

    async def warm_up(self) -> None:
        """Lets all clients do their task, as often as the system needs to be at its best."""
        for _ in range(getattr(system(self.name), "WARM_UPS", 1)):
            await self.run()
        self.runs.clear()

    async def run(self) -> None:
        """Lets all clients do their task once."""
        # What others have left to be written is not this one's to wait for.
        await asyncio.to_thread(os.sync)
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
        """One line of the result."""
        runs = self.runs
        rates = [run["per_second"] for run in runs]
        line: dict[str, Any] = {
            "benchmark": "peers",
            "workload": case.workload,
            "case": case.name,
            **self.described(),
            "per_second": round(statistics.median(rates)),
            "per_second_min": round(min(rates)),
            "per_second_max": round(max(rates)),
        }
        for name in ("p50_us", "p99_us", "server_cpu_us", "client_cpu_us"):
            if name in runs[0]:
                line[name] = round(statistics.median(run[name] for run in runs), 2)
        line["server_bytes"] = held_bytes(family(self.server.pids))
        return line

    def described(self) -> dict[str, str]:
        """What it is and how it was set up."""
        return {
            "system": self.name,
            "mode": self.mode,
            "version": self.server.version,
            "settings": self.server.settings,
            "promise": system(self.name).MODES[self.mode],
        }


@asynccontextmanager
async def server(chosen: str, queues: int, folder: Path) -> AsyncIterator[Serving]:
    """A system's server, by `SYSTEM:MODE`."""
    name, _, mode = chosen.partition(":")
    async with system(name).serve(folder / f"{name}-{mode}", mode, queues) as serving:
        yield serving


@asynccontextmanager
async def client(name: str, task: str, address: str, asked: Mapping[str, Any]) -> AsyncIterator[Child]:  # fmt: skip
    """A client process of a system that is ready for its first run."""
    child = await start("benchmarks.peers.client", name, task, address, json.dumps(asked))
    try:
        await child.hear()
        yield child
    finally:
        await child.end()


@asynccontextmanager
async def contender(
    chosen: str, case: Case, common: Mapping[str, Any], folder: Path
) -> AsyncIterator[Contender]:
    """A system's server and its clients, ready for the first run."""
    name, _, mode = chosen.partition(":")
    async with AsyncExitStack() as stack:
        serving = await stack.enter_async_context(server(chosen, common["queues"], folder))
        clients = [
            await stack.enter_async_context(
                client(name, case.task, serving.address, {**common, **case.asked})
            )
            for _ in range(case.processes)
        ]
        yield Contender(name, mode, serving, clients)
