"""
One framework's process in the comparison: it opens accounts, then pays in whenever it is told to.

    python -m benchmarks.commands.contender SYSTEM STORE ACCOUNTS

Sits between: the command line of `benchmarks.commands.beside`, whose lines it reads, and a framework.
"""

import asyncio
import gc
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
import uvloop

from benchmarks.commands import application
from benchmarks.commands.databases import embedded_postgres
from benchmarks.commands.loads import Bank, Load, open_accounts, pay_in
from benchmarks.commands.threads import pay_in_by_threads
from benchmarks.commands.through_queue import deployed
from benchmarks.mq.client import percentiles
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade

__all__ = ["ONLY_ON", "SYSTEMS"]

BENCH = Bank(open=application.OpenAccount, deposit=application.Deposit)
# As `headrace run` sets it.
GC_THRESHOLDS = (50_000, 20, 50)

# Pays in for some seconds and returns the seconds that each deposit took.
Pay = Callable[[Load, float], Awaitable[list[float]]]
Cpu = Mapping[str, Callable[[], float]]


@asynccontextmanager
async def store(name: str) -> AsyncIterator[str]:
    """The URL of a store with nothing in it."""
    if name == "sqlite":
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
            yield f"sqlite:///{Path(folder) / 'events.db'}"
    else:
        with embedded_postgres() as server:
            yield server.url


@asynccontextmanager
async def in_one_process(url: str, accounts: int) -> AsyncIterator[tuple[Pay, Cpu]]:
    """Ours without its queue: client, service and store's driver in this process."""
    if not url.startswith("sqlite"):
        await upgrade(url)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        settings = Settings(event_store=url, read_models=f"sqlite:///{Path(folder) / 'read.db'}")
        async with application.app.run_local(settings) as running:
            await open_accounts(running.bus, BENCH, accounts)
            numbers = itertools.count()
            yield (
                lambda load, seconds: pay_in(running.bus, BENCH, load, seconds, numbers),
                {"process": time.process_time},
            )


@asynccontextmanager
async def through_queue(url: str, accounts: int) -> AsyncIterator[tuple[Pay, Cpu]]:
    """Ours as it is deployed: a broker and a service in processes of their own, and replies."""
    if not url.startswith("sqlite"):
        await upgrade(url)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        read_models = f"sqlite:///{Path(folder) / 'read.db'}"
        path = "benchmarks.commands.application:app"
        async with deployed(
            path, application.app, event_store=url, read_models=read_models
        ) as deployment:
            await open_accounts(deployment.bus, BENCH, accounts)
            numbers = itertools.count()
            yield (
                lambda load, seconds: pay_in(deployment.bus, BENCH, load, seconds, numbers),
                deployment.cpu_seconds,
            )


@asynccontextmanager
async def peer(url: str, accounts: int, variant: str) -> AsyncIterator[tuple[Pay, Cpu]]:
    """`eventsourcing`, whose callers are threads."""
    from benchmarks.commands import peer as library

    bank = library.Bank(env={**library.environment(url), **library.VARIANTS[variant]})
    everybody = [bank.open() for _ in range(accounts)]

    async def pay(load: Load, seconds: float) -> list[float]:
        chosen = everybody[: load.aggregates]
        return await asyncio.to_thread(
            pay_in_by_threads, bank.pay_in, chosen, load.in_flight, seconds
        )

    try:
        yield pay, {"process": time.process_time}
    finally:
        bank.close()


@asynccontextmanager
async def protean(url: str, accounts: int) -> AsyncIterator[tuple[Pay, Cpu]]:
    """`protean`, whose callers are threads too."""
    from benchmarks.commands.protean_bank import Bank as Library

    bank = Library(url)
    everybody = bank.open_all(accounts)

    async def pay(load: Load, seconds: float) -> list[float]:
        chosen = everybody[: load.aggregates]
        return await asyncio.to_thread(
            pay_in_by_threads, bank.pay_in, chosen, load.in_flight, seconds, context=bank.context
        )

    yield pay, {"process": time.process_time}


SYSTEMS: Mapping[str, Callable[[str, int], object]] = {
    "headrace, one process": in_one_process,
    "headrace, through its queue": through_queue,
    "eventsourcing, default": lambda url, accounts: peer(url, accounts, "default"),
    "eventsourcing, cached": lambda url, accounts: peer(url, accounts, "cached"),
    "protean": protean,
}
# Where a system has no event store for a database.
ONLY_ON = {"protean": "postgresql"}


async def serve(system: str, name: str, accounts: int) -> None:
    async with (
        store(name) as url,
        SYSTEMS[system](url, accounts) as (pay, cpu),  # type: ignore[attr-defined]  # each is a context
    ):
        gc.set_threshold(*GC_THRESHOLDS)
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            asked = json.loads(line)
            load = Load(in_flight=asked["in_flight"], aggregates=asked["aggregates"])
            before, began = [read() for read in cpu.values()], time.perf_counter()
            took = await pay(load, asked["seconds"])
            seconds = time.perf_counter() - began
            spent = sum(read() for read in cpu.values()) - sum(before)
            said = {"count": len(took), "seconds": seconds, "cpu_us": 1e6 * spent / len(took)}
            print(json.dumps(said | percentiles(took)), flush=True)


def main() -> None:
    system, name, accounts = sys.argv[1:]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(serve(system, name, int(accounts)))


if __name__ == "__main__":
    main()
