"""
How fast Spark reads topics and rebuilds projections, beside what else could do it in the same run.

    python -m benchmarks.spark [source plain rebuild peer] [--events 200000] [--accounts 10000]
        [--cores 1,2] [--turns 2]

    source   the data source, beside `spark.read.parquet` and `spark.read.json` of the same rows
    plain    a Python loop over the same topic, and the rebuild without Spark
    rebuild  declared folds and folds in Python, by phase; the second turn has warm workers
    peer     the projection runner of `eventsourcing` (extra `peers`)

One line of JSON per figure: events per second that passes, and processor time per event of driver,
Java, workers and broker together. On a machine that has other work to do the latter says more.
Several numbers of events, `--events 1000000,5000000`, are measured one after the other.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from itertools import islice, product
from pathlib import Path

import uvloop

from benchmarks.machine import facts
from benchmarks.mq.processes import broker
from benchmarks.spark.application import TOPIC, bodies
from headrace_mq.client.producer import Producer

QUEUES = 4
SENT_TOGETHER = 5_000
WORKLOADS = ("source", "plain", "rebuild", "peer")
# The peer flushes the disk for each of them.
PEER_EVENTS_MAX = 3_000


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


async def work(task: str, asked: dict[str, object]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.spark.worker", task, json.dumps(asked)
    )
    if await process.wait():
        raise SystemExit("a process of the benchmark failed; its error stands above")


async def measure(events: int, asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=asked.directory) as folder:
        async with broker(Path(folder) / "mq", "interval") as (child, address):
            await fill(address, events, asked.accounts)
            task = {
                "broker": address, "broker_pid": child.pid, "events": events, "folder": folder,
                "turns": asked.turns,
            }  # fmt: skip
            if "plain" in asked.workloads:
                await work("plain", task)
            with_spark = [name for name in ("source", "rebuild") if name in asked.workloads]
            for cores, name in product(asked.cores, with_spark):
                await work(name, task | {"cores": cores})


def peer(events: int) -> None:
    if importlib.util.find_spec("eventsourcing") is None:
        print("the peer is not installed: pip install 'headrace[peers]'", file=sys.stderr)
        return
    count = str(min(events, PEER_EVENTS_MAX))
    subprocess.run(
        [sys.executable, "-m", "benchmarks.projections", "peer", "--only", "eventsourcing",
         "--events", count, "--runs", "1"],
        check=True,
    )  # fmt: skip


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
    parser.add_argument("--directory", type=Path, help="where the broker and databases write")
    asked = parser.parse_args()
    tell(case="machine", load=os.getloadavg()[0], **facts())
    for events in asked.events:
        if set(asked.workloads) - {"peer"}:
            uvloop.run(measure(events, asked))
    if "peer" in asked.workloads:
        peer(asked.events[0])


if __name__ == "__main__":
    main()
