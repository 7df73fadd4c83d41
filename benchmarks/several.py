"""
Three read models rebuilt with Spark in one pass, and one after the other: in one session, in turns.

    python -m benchmarks.several --events 1000000 --runs 3

Each has a row per account: all of declared folds, or all of functions in Python. One line of JSON for each
way, the median of the runs with the least and the most.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from itertools import chain
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.mq.processes import broker
from benchmarks.spark.__main__ import fill
from benchmarks.spark.application import Account, Balance, Deposited, deposited
from benchmarks.spark.usage import cpu_seconds, cpu_ticks
from headrace import App, Projection
from headrace.folds import count, last
from headrace.rebuild.report import RebuildReport
from headrace.spark.rebuild import rebuild_together
from headrace.spark.session import local_session
from headrace.stores.database.schema import upgrade

APP = "benchmarks.several:app"


def made(number: int) -> tuple[Projection[Balance], Projection[Balance]]:
    """Two read models alike, of a declared fold and of a function."""
    declared = Projection(f"declared{number}", row=Balance, key="account_id")
    declared.on(Deposited, balance=last("balance"), transactions=count())
    folded = Projection(f"folded{number}", row=Balance, key="account_id")
    folded.fold(deposited)
    return declared, folded


pairs = [made(number) for number in range(3)]
KINDS = {
    "declared": [declared.name for declared, _ in pairs],
    "folded": [folded.name for _, folded in pairs],
}
app = App("bench")
app.add(Account, *chain.from_iterable(pairs))


async def rebuilt(spark: SparkSession, address: str, url: str, names: list[list[str]]) -> None:
    """Rebuilds all, those of a list together."""
    for some in names:
        outcomes = await rebuild_together(
            APP, some, broker=address, read_models_url=url, spark=spark, verify=False
        )
        for outcome in outcomes.values():
            assert isinstance(outcome, RebuildReport), outcome
            assert outcome.switched


async def measure(events: int, runs: int, accounts: int) -> None:
    ways = {
        (kind, way): asked
        for kind, names in KINDS.items()
        for way, asked in (("together", [names]), ("one by one", [[name] for name in names]))
    }
    took: dict[tuple[str, str], list[tuple[float, float]]] = {way: [] for way in ways}
    spark = local_session("headrace-bench")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'read.db'}"
        await upgrade(url)
        async with broker(folder / "mq", "interval") as (_, address):
            await fill(address, events, accounts)
            # The first turn makes Java warm, and does not count.
            for way, asked in list(ways.items()) * (runs + 1):
                began, before = time.perf_counter(), cpu_ticks(os.getpid())
                await rebuilt(spark, address, url, asked)
                cpu = cpu_seconds(before, cpu_ticks(os.getpid()))
                took[way].append((time.perf_counter() - began, cpu))
    spark.stop()
    for (kind, way), (_, *found) in took.items():
        seconds = [each for each, _ in found]
        told = {
            "benchmark": "several", "folds": kind, "way": way, "events": events,
            "seconds": round(statistics.median(seconds), 2),
            "seconds_min": round(min(seconds), 2), "seconds_max": round(max(seconds), 2),
            "cpu_us": round(statistics.median(cpu for _, cpu in found) / events * 1e6, 2),
        }  # fmt: skip
        print(json.dumps(told), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.several",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    asyncio.run(measure(asked.events, asked.runs, asked.accounts))


if __name__ == "__main__":
    main()
