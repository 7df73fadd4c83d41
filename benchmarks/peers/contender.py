"""
One system in one case: its server, its clients, its runs.

Sits between: the command line, which lets all of them take turns, and a system's module.
"""

import asyncio
import json
import os
import statistics
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.mq.processes import Child, cpu_seconds, start
from benchmarks.peers.cases import Case
from benchmarks.peers.processes import family, held_bytes
from benchmarks.peers.system import Serving, system

__all__ = ["RUN_S_MAX", "Contender", "TooSlow", "client", "contender", "reason", "server"]

# A run is of a second or two. What takes so long has no figure there, and the page says so.
RUN_S_MAX = 20


class TooSlow(Exception):
    """A system did not do its work in its time; says how far it came."""


def reason(failure: BaseException, limit_s: float = RUN_S_MAX) -> str:
    """Why there is no figure, in one line."""
    if isinstance(failure, TimeoutError):
        return f"took longer than {limit_s:g} s"
    if isinstance(failure, SystemExit):
        return "its process ended; its error stands in the output"
    if isinstance(failure, TooSlow):
        return str(failure)
    return f"{type(failure).__name__}: {failure}".splitlines()[0][:200]


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
        servers, clients = family(self.server.pids), [client.pid for client in self.clients]
        before = spent(servers), spent(clients)
        async with asyncio.timeout(RUN_S_MAX):
            said = await asyncio.gather(*(client.run() for client in self.clients))
        used = growth(before[0], spent(servers)), growth(before[1], spent(clients))
        count = sum(result["count"] for result in said)
        rate = count / max(result["seconds"] for result in said)
        run = {**said[0], "per_second": rate}
        if said[0].get("all_measured", True):
            names = ("server_cpu_us", "client_cpu_us")
            run |= {name: 1e6 * seconds / count for name, seconds in zip(names, used, strict=True)}
        self.runs.append(run)

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


def spent(pids: Iterable[int]) -> dict[int, float]:
    """The processor time of each process that lives, in seconds."""
    found = {}
    for pid in pids:
        # A server's own workers come and go.
        with suppress(FileNotFoundError, ProcessLookupError):
            found[pid] = cpu_seconds(pid)
    return found


def growth(early: Mapping[int, float], late: Mapping[int, float]) -> float:
    """What processes have taken that were there at both times."""
    return sum(seconds - early[pid] for pid, seconds in late.items() if pid in early)


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
