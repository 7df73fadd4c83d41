"""
How fast the store reads a queue in order, beside a raw pread loop over the same files.

    python -m benchmarks.store_read [DIRECTORY] [--rounds 5] [--megabytes 256]

The files are in the page cache, the store's own tail cache is off. Each round reads everything
once through the store, checksums and all, and once with pread; `of_raw` is the median over the
rounds of their ratio. The rates named `cpu` are per second of CPU time: what remains of the rates
where other programs keep the machine busy. One line of JSON for each size of a read.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from benchmarks.machine import facts
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

QUEUE = QueueRef("bench", 0)
READS = (64 << 10, 1 << 20, 4 << 20)
BATCHES_PER_GROUP = 64


async def filled(store: MessageStore, records: int, size: int) -> None:
    """Appends about `size` bytes of messages of 100 bytes."""
    columns = Columns([f"key-{n}" for n in range(records)], [], [], [b"x" * 100] * records, [])
    batch = encode_batch(QUEUE, columns, born_first_ms=1_700_000_000_000)
    for _ in range(size // (len(batch) * BATCHES_PER_GROUP)):
        for _ in range(BATCHES_PER_GROUP):
            store.append(batch, retention="forever")
        await store.durable()


class Rate(NamedTuple):
    """Gigabytes per second, by the clock and by CPU time."""

    wall: float
    cpu: float


def rate(read: Callable[[], int]) -> Rate:
    """Measures something that returns how many bytes it read."""
    began, cpu = time.perf_counter(), time.process_time()
    total = read() / 1e9
    return Rate(total / (time.perf_counter() - began), total / (time.process_time() - cpu))


def read_through_the_store(store: MessageStore, bytes_max: int) -> int:
    """Reads the whole queue; returns the bytes of its batches."""
    at, end = store.range(QUEUE)
    total = 0
    while at < end:
        batches = store.read(QUEUE, at, bytes_max)
        total += sum(map(len, batches))
        at = read_header(batches[-1]).next_offset
    return total


def read_raw(fds: list[int], bytes_max: int, total: int) -> int:
    """Reads as many bytes of the same files; returns them."""
    left = total
    for fd in fds:
        size = min(left, os.fstat(fd).st_size)
        for at in range(0, size, bytes_max):
            os.pread(fd, min(bytes_max, size - at), at)
        left -= size
    return total - left


def compare(store: MessageStore, fds: list[int], bytes_max: int, rounds: int) -> dict[str, object]:
    """Lets the store and the raw loop take turns; returns the medians."""
    total = read_through_the_store(store, bytes_max)
    stores, raws = [], []
    for _ in range(rounds):
        stores.append(rate(lambda: read_through_the_store(store, bytes_max)))
        raws.append(rate(lambda: read_raw(fds, bytes_max, total)))
    middle, pairs = statistics.median, list(zip(stores, raws, strict=True))
    return {
        "read_bytes": bytes_max,
        "gb_per_second": round(middle(one.wall for one in stores), 3),
        "raw_gb_per_second": round(middle(one.wall for one in raws), 3),
        "of_raw": round(middle(one.wall / bare.wall for one, bare in pairs), 3),
        "gb_per_cpu_second": round(middle(one.cpu for one in stores), 3),
        "raw_gb_per_cpu_second": round(middle(one.cpu for one in raws), 3),
        "of_raw_cpu": round(middle(one.cpu / bare.cpu for one, bare in pairs), 3),
    }


async def run(folder: Path, asked: argparse.Namespace) -> None:
    for records in (100, 1_000):
        directory = folder / str(records)
        store = MessageStore(
            StoreSettings(directory=directory, segment_bytes=128 << 20, tail_cache_bytes=0)
        )
        store.open()
        await filled(store, records, asked.megabytes << 20)
        paths = sorted((directory / "forever").glob("*.log"))
        fds = [os.open(path, os.O_RDONLY) for path in paths]
        for bytes_max in READS:
            found = compare(store, fds, bytes_max, asked.rounds)
            print(json.dumps({"messages_per_batch": records} | found), flush=True)
        for fd in fds:
            os.close(fd)
        await store.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description="sequential read rate of the store")
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256)
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    print(json.dumps({"benchmark": "store_read", "rounds": asked.rounds} | facts()))
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        asyncio.run(run(Path(folder), asked))


if __name__ == "__main__":
    main()
