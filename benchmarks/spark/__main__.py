"""
How fast Spark reads topics and rebuilds projections, beside what else could do it in the same run.

    python -m benchmarks.spark [source plain rebuild rows cold peer] [--events 200000] [--accounts 10000]
        [--cores 1,2] [--turns 2] [--postgres URL]

    source   the data source, beside `spark.read.parquet` and `spark.read.json` of the same rows
    plain    a Python loop over the same topic, and the rebuild without Spark
    rebuild  declared folds and folds in Python, by phase; the second turn has warm workers
    rows     a projection with a row per event, rebuilt into PostgreSQL, and what the driver then holds
    cold     `headrace projection rebuild` from nothing, by Spark and in columns: processes, Java, session
    peer     `eventsourcing` (extra `peers`) folding its log and replaying its aggregates, from SQLite

One line of JSON per figure: events per second that passes, and processor time per event of driver,
Java, workers and broker together. On a machine that has other work to do the latter says more.
Several numbers of events, `--events 1000000,5000000`, are measured one after the other; what each comes
to beside its yardsticks, and on one core and two, stands at its end.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from itertools import islice, product
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.machine import facts
from benchmarks.mq.processes import broker
from benchmarks.places import made_folder
from benchmarks.projections.postgres import new_database, server
from benchmarks.spark.application import APP, TOPIC, bodies
from benchmarks.spark.summary import summarize
from headrace.stores.database.schema import upgrade
from headrace_mq.client.producer.producer import Producer

QUEUES = 4
SENT_TOGETHER = 5_000
WORKLOADS = ("source", "plain", "rebuild", "rows", "cold", "peer")
# The peer takes longer to store them than all else takes together.
PEER_EVENTS_MAX = 100_000


def tell(**figures: object) -> None:
    print(json.dumps({"benchmark": "spark", **figures}), flush=True)


async def fill(address: str, total: int, keys: int) -> None:
    """Sends events as fast as they go."""
    made, size = bodies(total, keys), 0
    async with Producer(address) as producer:
        await producer.create_topic(TOPIC, queues=QUEUES, retention="forever")
        while some := list(islice(made, SENT_TOGETHER)):
            size += sum(len(body) for _, body in some)
            await producer.send_columns(
                TOPIC,
                [body for _, body in some],
                keys=[key for key, _ in some],
                tags=["Account"] * len(some),
                headers=[{"kind": "events"}] * len(some),
            )
    tell(case="topic", events=total, accounts=keys, queues=QUEUES, body_bytes=round(size / total))


async def work(module: str, *arguments: str) -> list[dict[str, Any]]:
    """Runs a module, hands on what it prints, and returns the figures among that."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"benchmarks.spark.{module}", *arguments, stdout=PIPE
    )
    assert process.stdout is not None, "it is a pipe"
    figures = []
    async for line in process.stdout:
        print(line.decode(), end="", flush=True)
        if line.startswith(b"{"):
            figures.append(json.loads(line))
    if await process.wait():
        raise SystemExit("a process of the benchmark failed; its error stands above")
    return figures


async def measure(events: int, asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=asked.directory) as folder:
        async with broker(Path(folder) / "mq", "interval") as (child, address):
            await fill(address, events, asked.accounts)
            task = {
                "broker": address, "broker_pid": child.pid, "events": events, "folder": folder,
                "turns": asked.turns,
            }  # fmt: skip
            figures: list[dict[str, Any]] = []
            if "plain" in asked.workloads:
                figures += await work("worker", "plain", json.dumps(task))
            if "peer" in asked.workloads:
                await peer(events, asked.accounts, folder)
            with_spark = [name for name in ("source", "rebuild") if name in asked.workloads]
            for cores, name in product(asked.cores, with_spark):
                figures += await work("worker", name, json.dumps(task | {"cores": cores}))
            if "rows" in asked.workloads:
                await rows(task, asked)
            if "cold" in asked.workloads:
                await cold(address, events, Path(folder), asked.runs)
            for figure in summarize(figures):
                tell(events=events, **figure)


async def rows(task: dict[str, Any], asked: argparse.Namespace) -> None:
    with server(asked.postgres) as (url, _):
        for cores in asked.cores:
            async with new_database(url) as database:
                address = database.render_as_string(hide_password=False)
                await upgrade(address)
                await work(
                    "worker", "rows", json.dumps(task | {"cores": cores, "postgres": address})
                )


async def cold(address: str, events: int, folder: Path, runs: int) -> None:
    """Times whole commands; the first of each engine, which fills the page cache, does not count."""
    read_models, export = f"sqlite:///{folder / 'cold.db'}", folder / "export"
    await upgrade(read_models)
    topic = ("--app", APP, "--broker", address)
    await command("events", "export", str(export), *topic, "--unsealed")
    for engine, more in (
        ("replay", ()),
        ("columns", ("--from-export", str(export))),
        ("spark", ()),
    ):
        chosen = ("projection", "rebuild", "declared", "--engine", engine, *more, *topic)
        chosen = (*chosen, "--read-models", read_models, "--unsealed")
        # Nothing is live yet that the rows could be compared with.
        await command(*chosen, "--no-verify")
        taken = sorted([await command(*chosen) for _ in range(runs)])
        tell(
            case=f"cold {engine}", events=events, runs=runs, seconds=round(statistics.median(taken), 2),
            least=round(taken[0], 2), most=round(taken[-1], 2), load=round(os.getloadavg()[0], 1),
        )  # fmt: skip


async def command(*arguments: str) -> float:
    """Runs a command of Headrace in a process of its own; returns how many seconds it took."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", *arguments, stdout=PIPE, stderr=PIPE
    )
    said = await process.communicate()
    if process.returncode:
        raise SystemExit(b"".join(said).decode())
    return time.perf_counter() - began


async def peer(events: int, accounts: int, folder: str) -> None:
    if importlib.util.find_spec("eventsourcing") is None:
        print("the peer is not installed: pip install 'headrace[peers]'", file=sys.stderr)
        return
    await work("peer", str(min(events, PEER_EVENTS_MAX)), str(accounts), folder)


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark", description="speed of the Spark pipeline"
    )
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, help="all without one")
    parser.add_argument("--events", type=numbers, default=[200_000])
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--cores", type=numbers, default=[1, 2])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5, help="of each command, for cold")
    parser.add_argument("--postgres", help="a server to use; by default the run has one of its own")
    parser.add_argument(
        "--directory", type=made_folder, help="where the broker and databases write"
    )
    asked = parser.parse_args()
    tell(case="machine", load=os.getloadavg()[0], **facts())
    for events in asked.events:
        uvloop.run(measure(events, asked))


if __name__ == "__main__":
    main()
