"""
The queue at half of its speed for long: throughput, latency and memory must not drift.

    python -m benchmarks.soak [--minutes 3] [--load 0.5] [--flush always|interval]

A producer and a consumer process at a broker that keeps the newest gigabyte. First a few seconds at
full speed tell what that is here and now; then windows of ten seconds at a share of it, one line
of JSON for each: messages consumed a second, p50 and p99 from when a message was due to when it
was taken, the memory of each process. The last line compares the last third with the first, by
medians, and names what has drifted; the exit status is then 1. An hour: `--minutes 60`.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.machine import limits
from benchmarks.mq.processes import Child, broker, client, resident_bytes
from benchmarks.places import made_folder
from headrace_mq.client.producer.producer import Producer

QUEUES = 4
WINDOW_S = 10
FULL_SPEED_COUNT = 400_000
KEPT_BYTES_MAX = 2**30
# What a quantity may do between the first third and the last: this machine's own rates wander.
THROUGHPUT_LOSS_MAX = 0.05
LATENCY_GROWTH_MAX = 1.0
MEMORY_GROWTH_MAX = 0.2

Window = Mapping[str, float]


def drifted(windows: Sequence[Window]) -> dict[str, float]:
    """Returns the growth of each quantity that grew, or for throughput shrank, beyond its limit.

    Growth is that of the median over the last third against the first, 0.1 for a tenth more.
    """
    third = max(1, len(windows) // 3)
    found = {}
    for name in windows[0]:
        early, late = (
            statistics.median(window[name] for window in part)
            for part in (windows[:third], windows[-third:])
        )
        growth = late / early - 1
        if name == "per_second":
            bad = growth < -THROUGHPUT_LOSS_MAX
        else:
            bad = growth > (MEMORY_GROWTH_MAX if name.endswith("bytes") else LATENCY_GROWTH_MAX)
        if bad:
            found[name] = round(growth, 3)
    return found


async def full_speed(address: str) -> float:
    """Messages a second that a producer and a consumer get through here."""
    sending = {"topic": "peak", "size": 100, "tasks": 8, "count": FULL_SPEED_COUNT, "keyed": True}
    taking = {"topic": "peak", "group": "peak", "count": FULL_SPEED_COUNT, "queues": QUEUES}
    async with (
        client("send_many", address, sending) as producer,
        client("follow", address, taking) as consumer,
    ):
        rates = []
        for _ in range(3):
            _, took = await asyncio.gather(producer.run(), consumer.run())
            rates.append(took["count"] / took["seconds"])
        return statistics.median(rates)


async def window(server: Child, producer: Child, consumer: Child) -> dict[str, float]:
    """Ten seconds of it."""
    _, took = await asyncio.gather(producer.run(), consumer.run())
    return {
        "per_second": took["count"] / took["seconds"],
        "p50_us": took["p50_us"],
        "p99_us": took["p99_us"],
        "broker_bytes": resident_bytes(server.pid),
        "producer_bytes": resident_bytes(producer.pid),
        "consumer_bytes": resident_bytes(consumer.pid),
    }


async def soak(folder: Path, flush: str, minutes: float, load: float) -> list[dict[str, float]]:
    """Runs windows until the time is over and prints each."""
    async with broker(folder, flush, KEPT_BYTES_MAX) as (server, address):
        async with Producer(address) as admin:
            for topic in ("peak", "soak"):
                await admin.create_topic(topic, QUEUES)
        full = await full_speed(address)
        rate = round(full * load)
        print(
            json.dumps({"full_speed_per_second": round(full), "load_per_second": rate}), flush=True
        )
        sending = {"topic": "soak", "per_second": rate, "seconds": WINDOW_S}
        taking = {
            "topic": "soak", "group": "soak", "count": rate * WINDOW_S, "timed": True,
            "queues": QUEUES,
        }  # fmt: skip
        windows = []
        async with (
            client("steady", address, sending) as producer,
            client("follow", address, taking) as consumer,
        ):
            for number in range(max(3, round(minutes * 60 / WINDOW_S))):
                windows.append(await window(server, producer, consumer))
                line = {name: round(value) for name, value in windows[-1].items()}
                print(json.dumps({"window": number, **line}), flush=True)
        return windows


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="drift")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--load", type=float, default=0.5, help="share of full speed")
    parser.add_argument("--flush", choices=("always", "interval"), default="always")
    parser.add_argument("--directory", type=made_folder, help="where the broker writes")
    asked = parser.parse_args()
    machine = {**limits(asked.directory), "benchmark": "soak", "flush": asked.flush}
    print(json.dumps(machine), flush=True)
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        windows = await soak(Path(folder), asked.flush, asked.minutes, asked.load)
    # The first window warms up: caches fill, and connections are new.
    drift = drifted(windows[1:])
    print(json.dumps({"windows": len(windows), "drifted": drift}), flush=True)
    sys.exit(1 if drift else 0)


if __name__ == "__main__":
    asyncio.run(main())
