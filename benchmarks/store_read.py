"""
How fast the store reads a queue in order, beside a raw pread loop over the same files.

    python -m benchmarks.store_read [DIRECTORY] [--rounds 5] [--megabytes 256]

The files are in the page cache. A read through the store,
checksums and all, and a pread of as many bytes take turns; `now` is the read of a broker, which
never waits for the disk. Rates are those of the median read and, as `best`, of the one that only a
tenth of all reads were faster than: what remains where other programs keep the machine busy.
`of_raw` is their ratio. One line of JSON for each size of a read.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence, Sized
from functools import partial
from pathlib import Path

import structlog

from benchmarks.machine import facts
from benchmarks.places import made_folder
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


class Costs:
    """Nanoseconds for each byte of many reads."""

    def __init__(self) -> None:
        self._found: list[float] = []

    def time(self, read: Callable[[], Sequence[Sized] | None]) -> Sequence[Sized]:
        """Times a read; returns what it returned. One that would wait for the disk does not count."""
        began = time.perf_counter_ns()
        parts = read()
        took = time.perf_counter_ns() - began
        if parts:
            self._found.append(took / sum(map(len, parts)))
        return parts or ()

    @property
    def median(self) -> float:
        """Of all reads."""
        return statistics.median(self._found)

    @property
    def best(self) -> float:
        """Of the fastest tenth, the slowest."""
        return statistics.quantiles(self._found, n=10)[0]


def compare(store: MessageStore, fds: list[int], bytes_max: int, rounds: int) -> dict[str, object]:
    """Reads the queue several times, three ways by turns; returns gigabytes per second."""
    whole, now, raw = Costs(), Costs(), Costs()
    for _ in range(rounds):
        at, end = store.range(QUEUE)
        place, number = 0, 0
        while at < end:
            batches = whole.time(partial(store.read, QUEUE, at, bytes_max))
            now.time(partial(store.read_now, QUEUE, at, bytes_max))
            size = sum(map(len, batches))
            if place + size > os.fstat(fds[number]).st_size:
                place, number = 0, (number + 1) % len(fds)
            raw.time(lambda: [os.pread(fds[number], size, place)])  # noqa: B023 - called at once
            place += size
            at = read_header(batches[-1]).next_offset
    return {
        "read_bytes": bytes_max,
        "gb_per_second": round(1 / whole.median, 3),
        "now_gb_per_second": round(1 / now.median, 3),
        "raw_gb_per_second": round(1 / raw.median, 3),
        "of_raw": round(raw.median / whole.median, 3),
        "best_gb_per_second": round(1 / whole.best, 3),
        "best_now_gb_per_second": round(1 / now.best, 3),
        "best_raw_gb_per_second": round(1 / raw.best, 3),
        "best_of_raw": round(raw.best / whole.best, 3),
    }


async def run(folder: Path, asked: argparse.Namespace) -> None:
    for records in (100, 1_000):
        directory = folder / str(records)
        store = MessageStore(StoreSettings(directory=directory, segment_bytes=128 << 20))
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
    parser.add_argument("directory", nargs="?", type=made_folder)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256)
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    print(json.dumps({"benchmark": "store_read", "rounds": asked.rounds} | facts()))
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        asyncio.run(run(Path(folder), asked))


if __name__ == "__main__":
    main()
