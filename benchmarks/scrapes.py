"""
What a broker's metrics cost: the time of a scrape, and what is left of throughput while Prometheus asks.

    python -m benchmarks.scrapes [--pairs 15] [--scale 1] [--only CASE] [--topics 1000] [--queues 1000] [--directory DIR]

First three brokers are asked again and again: one with ten topics, one with so many topics, and one with a topic of so
many queues, in each of which a message waits for one group. Then two brokers with so many topics take turns with the
workload W1 of `benchmarks.mq`, each with a producer process: one without metrics, the other one with metrics that are
read every second. Each pair begins with the other broker. The lines have the medians over the pairs of
what the second broker has of the first one's rate and processor time, and their range. Acknowledgements after fdatasync,
bodies of 100 bytes.
"""

import argparse
import asyncio
import json
import socket
import statistics
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import facts
from benchmarks.mq.__main__ import Case, cases, turn
from benchmarks.mq.processes import Child, broker, client, cpu_seconds
from benchmarks.places import made_folder
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message, QueueRef

EVERY_S = 1.0
SCRAPES = 30
TOPIC = "bench"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def scrape(port: int) -> bytes:
    """Reads the metrics once."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return bytes(answer.read())


@asynccontextmanager
async def scraped(port: int) -> AsyncIterator[None]:
    """Reads the metrics every second until the block ends; raises what a read failed with."""

    async def repeat() -> None:
        while True:
            await asyncio.gather(asyncio.to_thread(scrape, port), asyncio.sleep(EVERY_S))

    reading = asyncio.create_task(repeat(), name="scrapes")
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.wait([reading])
    if not reading.cancelled():
        reading.result()


async def fill(address: str, topics: int, queues: int = 4) -> None:
    """Makes topics, with messages in nearly all of their queues."""
    async with Producer(address) as producer:
        for number in range(topics):
            topic = f"{TOPIC}-{number}"
            await producer.create_topic(topic, queues)
            keys = range(10 * queues)  # so many reach all queues but one in some thousands
            await producer.send_many(
                [Message(topic=topic, key=str(key), body=b"x" * 100) for key in keys]
            )


async def read_nothing(address: str, queues: int) -> None:
    """Lets a group commit where the first topic begins, so that all messages wait for it."""
    async with PullConsumer(address, group="g") as consumer:
        assigned = [QueueRef(f"{TOPIC}-0", number) for number in range(queues)]
        await consumer.assign(assigned)
        for queue in assigned:
            consumer.seek(queue, 0)
        await consumer.commit()


async def scrape_time(
    directory: Path, topics: int, queues: int = 4, *, behind: bool = False
) -> dict[str, Any]:
    """How long a scrape takes, and what it takes of the broker's processor."""
    port = free_port()
    async with broker(directory, "always", metrics=f"127.0.0.1:{port}") as (server, address):
        await fill(address, topics, queues)
        if behind:
            await read_nothing(address, queues)
        times, text, before = [], b"", cpu_seconds(server.pid)
        for _ in range(SCRAPES):
            since = time.perf_counter()
            text = await asyncio.to_thread(scrape, port)
            times.append(1_000 * (time.perf_counter() - since))
        used = 1_000 * (cpu_seconds(server.pid) - before) / SCRAPES
    return {
        "topics": topics,
        "queues": topics * queues,
        "series": sum(not line.startswith(b"#") for line in text.splitlines()),
        "bytes": len(text),
        "scrape_ms": round(statistics.median(times), 1),
        "scrape_ms_min": round(min(times), 1),
        "scrape_ms_max": round(max(times), 1),
        "broker_cpu_ms": round(used, 1),
    }


async def compare(directory: Path, case: Case, pairs: int, topics: int) -> dict[str, Any]:
    """Lets a broker without metrics and one that is scraped take turns, both with so many topics."""
    port = free_port()
    async with AsyncExitStack() as stack:
        sides: list[tuple[Child, Child]] = []
        for name, place in (("without", ""), ("with", f"127.0.0.1:{port}")):
            server, address = await stack.enter_async_context(
                broker(directory / name, "always", metrics=place)
            )
            await fill(address, topics)
            async with Producer(address) as producer:
                await producer.create_topic(TOPIC, 4)
            child = await stack.enter_async_context(
                client(case.task, address, {**case.asked, "topic": TOPIC})
            )
            sides.append((server, child))
        found: list[dict[int, tuple[float, float]]] = []
        for number in range(pairs + 1):
            pair = {}
            for side in (0, 1) if number % 2 else (1, 0):
                server, child = sides[side]
                async with scraped(port) if side else AsyncExitStack():
                    one = await turn(server, [child], [])
                pair[side] = (one.per_second, one.cpu_us[0])
            found.append(pair)
        return summary(found[1:])  # the first pair warms up


def summary(found: list[dict[int, tuple[float, float]]]) -> dict[str, Any]:
    """The medians and ranges of what is left with metrics."""
    said: dict[str, Any] = {"pairs": len(found)}
    for place, name in ((0, "per_second"), (1, "broker_cpu_us")):
        shares = sorted(pair[1][place] / pair[0][place] for pair in found)
        said[name] = round(statistics.median(pair[0][place] for pair in found), 3)
        said[f"{name}_with_metrics"] = round(statistics.median(pair[1][place] for pair in found), 3)
        said[f"{name}_share"] = round(statistics.median(shares), 3)
        said[f"{name}_share_min"], said[f"{name}_share_max"] = (
            round(shares[0], 3), round(shares[-1], 3),
        )  # fmt: skip
    return said


async def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scrapes", description="cost of metrics"
    )
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--directory", type=made_folder, help="where the brokers write")
    asked = parser.parse_args()

    def say(line: Mapping[str, Any]) -> None:
        print(json.dumps({"benchmark": "scrapes", **line}), flush=True)

    say(facts())
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        say(await scrape_time(Path(folder) / "few", 10))
        say(await scrape_time(Path(folder) / "topics", asked.topics))
        say(await scrape_time(Path(folder) / "queues", 1, asked.queues, behind=True))
        wanted = {"send_many of 100", "send from 1,000 tasks", "send, one at a time"}
        for number, case in enumerate(cases(asked.scale)):
            if case.workload == "W1" and case.name in wanted and asked.only in case.name:
                place = Path(folder) / str(number)
                place.mkdir()
                say({"case": case.name, **await compare(place, case, asked.pairs, asked.topics)})


if __name__ == "__main__":
    asyncio.run(main())
