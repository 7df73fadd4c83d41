"""
The bank over the built-in queue and over Kafka, in turn, on one machine: what moving costs.

    python -m benchmarks.kafka --runs 3 --commands 20000

Each is one broker, which acknowledges what it has flushed to the disk (the queue) or has in memory (Kafka),
one service in a process of its own, and this process as the caller. Then each topic is rebuilt from.
Needs Kafka's jars: `make kafka` brings them.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace import CommandBus, Settings
from headrace.spark.rebuild import rebuild
from headrace.spark.session import local_session
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances
from samples.kafka import KafkaBrokers, jars

ROOT = Path(__file__).parents[1]
HEADRACE = Path(sys.executable).with_name("headrace")
ACCOUNTS = 1_000
UNDER_WAY = 1_000
ALONE = 500


@contextmanager
def process(*command: str, ready: str, log: Path) -> Iterator[str]:
    """Runs a command until the block ends; yields the line that says it is ready."""
    with log.open("ab") as errors:
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert running.stdout is not None
    try:
        for line in running.stdout:
            if ready in line:
                break
        else:
            raise SystemExit(f"{command} ended; see {log}")
        yield line
    finally:
        running.terminate()
        running.wait(60)


@contextmanager
def queue(kind: str, folder: Path) -> Iterator[str]:
    """Runs a queue with an empty disk; yields its address."""
    if kind == "kafka":
        with KafkaBrokers(folder / "kafka", jars=jars()) as brokers:
            yield brokers.address
        return
    command = (str(HEADRACE), "broker", "--data", str(folder / "mq"), "--port", "0")
    with process(*command, ready="ready", log=folder / "broker.log") as line:
        yield line.split()[-1]


async def load(bus: CommandBus, commands: int) -> tuple[float, list[float]]:
    """Returns commands per second with many under way, and the times of some alone, in ms."""
    opened = [OpenAccount(account_id=f"a-{n}", owner="o") for n in range(ACCOUNTS)]
    await asyncio.gather(*[bus.execute(each) for each in opened])
    waiting = iter(range(commands))

    async def work() -> None:
        for number in waiting:
            account = f"a-{number % ACCOUNTS}"
            await bus.execute(Deposit(account_id=account, transaction_id=f"t{number}", amount=1))

    began = time.perf_counter()
    await asyncio.gather(*[work() for _ in range(UNDER_WAY)])
    rate = commands / (time.perf_counter() - began)
    alone = []
    for number in range(ALONE):
        began = time.perf_counter()
        await bus.execute(Deposit(account_id="a-1", transaction_id=f"x{number}", amount=1))
        alone.append((time.perf_counter() - began) * 1_000)
    return rate, alone


async def measured(kind: str, commands: int, spark: object) -> dict[str, float]:
    """Runs one queue, and returns its figures."""
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as name, ExitStack() as stack:
        folder = Path(name)
        address = stack.enter_context(queue(kind, folder))
        settings = Settings(
            broker=address,
            event_store=f"sqlite:///{folder}/events.db",
            read_models=f"sqlite:///{folder}/read.db",
        )
        command = (
            str(HEADRACE), "run", "samples.bank:app", "--broker", address, "--event-store",
            settings.event_store, "--read-models", settings.read_models,
        )  # fmt: skip
        with process(*command, ready="ready", log=folder / "service.log"):
            async with app.client(settings) as bus:
                rate, alone = await load(bus, commands)
                last = Deposit(account_id="a-0", transaction_id="last", amount=1)
                await bus.execute(last, wait_for=[balances], timeout_ms=120_000)
            # The service folds what is left of the other accounts.
            await asyncio.sleep(3)
        found = {"commands/s": rate, "alone p50 ms": statistics.median(alone)}
        for _ in range(2):
            report = await rebuild(
                "samples.bank:app",
                "balances",
                broker=address,
                read_models_url=settings.read_models,
                event_store_url=settings.event_store,
                spark=spark,  # type: ignore[arg-type]  # a session
                live_wait_ms=1_000,
            )
        assert not report.mismatches, report.reason
        found["spark events/s"] = report.events / report.seconds["fold"]
        return found


async def main() -> None:
    """Runs both in turn, and prints medians, ranges and ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--commands", type=int, default=20_000)
    told = parser.parse_args()
    spark = local_session("headrace-bench", cores=2, driver_memory="1g")
    figures: dict[str, list[dict[str, float]]] = {"queue": [], "kafka": []}
    for _ in range(told.runs):
        for kind, found in figures.items():
            found.append(await measured(kind, told.commands, spark))
            print(kind, {name: round(value, 2) for name, value in found[-1].items()}, flush=True)
    for name in figures["queue"][0]:
        medians = {}
        for kind, found in figures.items():
            values = [each[name] for each in found]
            medians[kind] = statistics.median(values)
            print(f"{name}: {kind} {medians[kind]:,.2f} ({min(values):,.2f} to {max(values):,.2f})")
        print(f"{name}: kafka / queue = {medians['kafka'] / medians['queue']:.2f}")
    spark.stop()


if __name__ == "__main__":
    asyncio.run(main())
