"""
What stacked-up messages cost: memory, a start, lookups, and what the index adds to an append.

    python benchmarks/store_index.py [DIRECTORY] [--messages 2000000] [--queues 4]

Messages of 100 bytes, one per batch, since batches are what an index counts. Prints JSON. Memory
and starts are measured in processes of their own; a start without indexes walks the whole log and
makes them again. Appends are judged by CPU time, in the same run with and without an index.
"""

import argparse
import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

LOOKUPS = 2_000
TOPIC = "bench"
GROUP = 500
# Appended twice, with and without an index; more is only needed for what is stacked up.
COMPARED = 200_000
NEVER = 1 << 60
MIB = 1 << 20


def opened(directory: Path, **options: int) -> MessageStore:
    settings = StoreSettings(directory=directory, flush="interval", flush_interval_ms=100)
    store = MessageStore(settings, **options)  # type: ignore[arg-type]  # an int by its name
    store.open()
    return store


async def fill(directory: Path, messages: int, queues: int, **options: int) -> float:
    """Appends messages; returns the CPU time of the process in microseconds per batch."""
    store = opened(directory, **options)
    columns = Columns(["key"], [], [], [b"x" * 100], [])
    batches = [encode_batch(QueueRef(TOPIC, q), columns, born_first_ms=0) for q in range(queues)]
    started = time.process_time()
    for first in range(0, messages, GROUP):
        for n in range(first, min(first + GROUP, messages)):
            store.append(batches[n % queues], retention="forever")
        await store.durable()
    used = time.process_time() - started
    await store.aclose()
    return used / messages * 1e6


def rss_mib() -> float:
    # Not the maximum: that is inherited from the process that started this one.
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / MIB, 1)


def median_us(look: Callable[[], object]) -> float:
    taken = []
    for _ in range(LOOKUPS):
        started = time.perf_counter_ns()
        look()
        taken.append((time.perf_counter_ns() - started) / 1e3)
    return round(statistics.median(taken), 1)


async def measured(directory: Path) -> dict[str, float]:
    """Opens the store and looks around in it."""
    before = rss_mib()
    started, used = time.perf_counter(), time.process_time()
    store = opened(directory)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    chance = random.Random(1)
    queue = QueueRef(TOPIC, 0)
    end = store.range(queue)[1]
    spans = store.segments("forever")
    first_ms, last_ms = spans[0].first_ms or 0, spans[-1].last_ms or 0
    found = {
        "open_seconds": round(seconds, 3),
        "open_cpu_seconds": round(used, 3),
        # A lookup by offset with the batch read and checked.
        "offset_lookup_us_median": median_us(lambda: store.read(queue, chance.randrange(end), 1)),
        "time_lookup_us_median": median_us(
            lambda: store.offset_at(queue, chance.randint(first_ms, last_ms))
        ),
        "rss_mib": rss_mib(),
        "rss_before_mib": before,
    }
    await store.aclose()
    return found


def in_a_process(directory: Path) -> dict[str, float]:
    command = [sys.executable, __file__, str(directory), "--open"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of stacked-up messages")
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.open:
        print(json.dumps(asyncio.run(measured(asked.directory))))
        return
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        append = {}
        for name, options in (("without", {"index_block_bytes": NEVER}), ("with", {})):
            compared = fill(Path(folder) / name, COMPARED, asked.queues, **options)
            append[f"append_cpu_us_{name}_index"] = round(asyncio.run(compared), 2)
        store = Path(folder) / "store"
        asyncio.run(fill(store, asked.messages, asked.queues))
        indexed = in_a_process(store)
        indexes = list(store.glob("forever/*.index"))
        size = sum(path.stat().st_size for path in indexes)
        for path in indexes:
            path.unlink()
        walked = in_a_process(store)
        report = {
            "messages": asked.messages,
            "log_bytes": sum(path.stat().st_blocks * 512 for path in store.glob("forever/*.log")),
            "index_bytes_per_batch": round(size / asked.messages, 2),
            **append,
            **indexed,
            "open_without_index_seconds": walked["open_seconds"],
            "open_without_index_cpu_seconds": walked["open_cpu_seconds"],
            "rss_without_index_mib": walked["rss_mib"],
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
