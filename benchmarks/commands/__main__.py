"""
How many commands a second, and what each costs, beside what this machine can do at best.

    python -m benchmarks.commands [queue process tail] [--stores postgresql sqlite memory]
        [--seconds 1] [--runs 3] [--aggregates 10000] [--bank]

    queue    through the whole path: client process, broker with fsync, service process, event store
             with fsync, event topic with fsync, reply; 1, 8 and 512 callers, many aggregates and one
    process  client, service and store in one process, without the queue: 64 callers and one
    tail     a reader follows the store while 8 writers append: what does it miss?

One line of JSON per load: the median of the runs with the lowest and the highest, and the processor
time that a command took in each process (`postgresql`: the server with its backends). On a machine
that has other work to do the processor times say more than the rates. PostgreSQL commits with
`synchronous_commit = on`, SQLite with `synchronous = FULL`; `--bank` measures the bank sample
through the queue, with its two projections and its process manager. A PostgreSQL of the run's own
comes from the extra `postgres-embedded`.
"""

import argparse
import gc
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.commands import application
from benchmarks.commands.databases import embedded_postgres, raw_commits_per_second
from benchmarks.commands.loads import Bank, Load, Measure, measure, open_accounts
from benchmarks.commands.tailing import tail
from benchmarks.commands.through_queue import deployed
from benchmarks.machine import facts, fdatasync_per_second, loopback_round_trips_per_second
from benchmarks.mq.processes import cpu_seconds
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from samples.bank import accounts as bank_accounts
from samples.bank import app as bank_app

PARTS = ("queue", "process", "tail")
STORES = ("postgresql", "sqlite", "memory")
BENCH = Bank(open=application.OpenAccount, deposit=application.Deposit)
BANK = Bank(open=bank_accounts.OpenAccount, deposit=bank_accounts.Deposit)


# As `headrace run` sets it.
GC_THRESHOLDS = (50_000, 20, 50)


class Database(NamedTuple):
    """An event store with nothing in it, and what its server has taken of the processor."""

    name: str
    url: str
    read_models: str
    cpu_seconds: Mapping[str, Callable[[], float]]


def queue_loads(aggregates: int) -> list[Load]:
    return [
        Load(in_flight=in_flight, aggregates=count)
        for count in (aggregates, 1)
        for in_flight in (1, 8, 512)
    ]


def process_loads(aggregates: int) -> list[Load]:
    return [
        Load(in_flight=64, aggregates=aggregates),
        Load(in_flight=1, aggregates=aggregates),
        Load(in_flight=64, aggregates=1),
    ]


@asynccontextmanager
async def database(name: str) -> AsyncIterator[Database]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        read_models = f"sqlite:///{Path(folder) / 'read.db'}"
        if name == "memory":
            yield Database(name, "memory://", read_models, {})
        elif name == "sqlite":
            yield Database(name, f"sqlite:///{Path(folder) / 'events.db'}", read_models, {})
        else:
            with embedded_postgres() as server:
                await upgrade(server.url)
                rate = round(await raw_commits_per_second(server.url))
                say(benchmark="postgresql", raw_commits_per_second=rate)
                yield Database(name, server.url, server.url, {"postgresql": server.cpu_seconds})


async def through_queue(name: str, options: argparse.Namespace) -> None:
    path, app, bank = (
        ("samples.bank:app", bank_app, BANK)
        if options.bank
        else ("benchmarks.commands.application:app", application.app, BENCH)
    )
    async with (
        database(name) as store,
        deployed(path, app, event_store=store.url, read_models=store.read_models) as deployment,
    ):
        await open_accounts(deployment.bus, bank, options.aggregates)
        with rarely_collected():
            how = Measure(
                seconds=options.seconds,
                runs=options.runs,
                cpu_seconds={**deployment.cpu_seconds, **store.cpu_seconds},
            )
            for load in queue_loads(options.aggregates):
                await measure(deployment.bus, bank, load, how, path="queue", store=name)


async def in_process(name: str, options: argparse.Namespace) -> None:
    async with database(name) as store:
        settings = Settings(event_store=store.url, read_models=store.read_models)
        async with application.app.run_local(settings) as running:
            await open_accounts(running.bus, BENCH, options.aggregates)
            with rarely_collected():
                own = {"process": lambda: cpu_seconds(os.getpid())}
                how = Measure(
                    seconds=options.seconds,
                    runs=options.runs,
                    cpu_seconds={**own, **store.cpu_seconds},
                )
                for load in process_loads(options.aggregates):
                    await measure(running.bus, BENCH, load, how, path="process", store=name)


async def tailed(name: str, options: argparse.Namespace) -> None:
    async with database(name) as store:
        await tail(store.name, store.url, options.seconds)


@contextmanager
def rarely_collected() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


async def main(options: argparse.Namespace) -> None:
    say(
        benchmark="machine",
        **facts(),
        fdatasync_per_second=round(fdatasync_per_second()),
        loopback_round_trips_per_second=round(loopback_round_trips_per_second()),
    )
    for part in options.parts or PARTS:
        for name in options.stores:
            # Of memory there is one for each process.
            if part == "queue" and name != "memory":
                await through_queue(name, options)
            elif part == "process":
                await in_process(name, options)
            elif part == "tail" and name != "memory":
                await tailed(name, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--stores", nargs="+", choices=STORES, default=["postgresql", "sqlite"])
    parser.add_argument("--seconds", type=float, default=1.0, help="per load and run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--aggregates", type=int, default=10_000)
    parser.add_argument("--bank", action="store_true", help="the bank sample, with its readers")
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    uvloop.run(main(chosen))
