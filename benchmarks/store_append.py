"""
How fast the store appends, beside what the disk itself does with the same bytes in the same run.

    python -m benchmarks.store_append [DIRECTORY] [--rounds 5]

One line of JSON per case: batches of 1 and of 100 messages of 100 bytes, 1 and 64 waiters that
each append a batch and wait until it is durable; with fdatasync and from the page cache. The store
and a raw loop take turns; the loop writes the same number of bytes with every call as the store
did before it, into a fresh preallocated file, with fdatasync where the store has it. `of_raw` is
the median over the rounds of their ratio; `*_cpu_us` is CPU time for each written group.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import structlog

from benchmarks.machine import facts
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SEGMENT_BYTES = 512 << 20
# A round ends after so many groups or bytes: seconds at most, and less than a segment.
GROUPS_MAX = 500
BYTES_MAX = 32 << 20
# Writes of the first groups, before the timed ones.
WARM_UP = 20


class Taken(NamedTuple):
    """What a number of groups took."""

    seconds: float
    cpu_seconds: float
    groups: int
    written_bytes: int


class CountingFiles(SystemFiles):
    """The machine's files; remembers the size of every write."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        """Writes parts at byte `at`, and remembers how much that was."""
        written = super().write(fd, at, parts)
        self.sizes.append(written)
        return written


def template(records: int) -> bytearray:
    columns = Columns([f"key-{n}" for n in range(records)], [], [], [b"x" * 100] * records, [])
    return encode_batch(QueueRef("bench", 0), columns, born_first_ms=1_700_000_000_000)


async def keep_appending(store: MessageStore, batch: bytearray, times: int) -> None:
    for _ in range(times):
        store.append(batch, retention="forever")
        await store.durable()


async def appended(
    directory: Path, records: int, waiters: int, flush: Literal["always", "interval"]
) -> tuple[Taken, list[int]]:
    """Runs one round of the store; returns what it took and the sizes of its writes."""
    files = CountingFiles()
    settings = StoreSettings(directory=directory, flush=flush, segment_bytes=SEGMENT_BYTES)
    store = MessageStore(settings, files=files)
    store.open()
    batches = [template(records) for _ in range(waiters)]
    group = len(batches[0]) * waiters
    groups = max(50, min(GROUPS_MAX, BYTES_MAX // group))
    await asyncio.gather(*(keep_appending(store, batch, WARM_UP) for batch in batches))
    files.sizes.clear()
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(keep_appending(store, batch, groups) for batch in batches))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    sizes = list(files.sizes)
    await store.aclose()
    return Taken(seconds, cpu_seconds, len(sizes), sum(sizes)), sizes


def raw(directory: Path, sizes: Sequence[int], *, sync: bool) -> Taken:
    """Writes the same sizes with pwrite and, with `sync`, fdatasync."""
    fd = os.open(directory / "raw", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.posix_fallocate(fd, 0, SEGMENT_BYTES)
    os.fsync(fd)
    data = memoryview(os.urandom(max(sizes)))
    at = 0
    # As the store had it: the file has been written to before the clock starts.
    for size in sizes[:WARM_UP]:
        at += os.pwrite(fd, data[:size], at)
        if sync:
            os.fdatasync(fd)
    began, cpu = time.perf_counter(), time.process_time()
    for size in sizes:
        at += os.pwrite(fd, data[:size], at)
        if sync:
            os.fdatasync(fd)
    taken = Taken(time.perf_counter() - began, time.process_time() - cpu, len(sizes), sum(sizes))
    os.close(fd)
    return taken


def compare(
    folder: Path, records: int, waiters: int, flush: Literal["always", "interval"], rounds: int
) -> dict[str, object]:
    """Lets the store and the raw loop take turns; returns the medians."""
    stores, raws = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            taken, sizes = asyncio.run(appended(Path(place) / "store", records, waiters, flush))
            stores.append(taken)
            raws.append(raw(Path(place), sizes, sync=flush == "always"))
    middle = statistics.median
    return {
        "flush": flush,
        "messages_per_batch": records,
        "waiters": waiters,
        "group_bytes": round(middle(t.written_bytes / t.groups for t in stores)),
        "messages_per_second": round(middle(
            t.written_bytes / len(template(records)) * records / t.seconds for t in stores
        )),
        "megabytes_per_second": round(middle(t.written_bytes / t.seconds / 1e6 for t in stores), 1),
        "of_raw": round(middle(r.seconds / s.seconds for s, r in zip(stores, raws, strict=True)), 3),
        "store_cpu_us": round(middle(t.cpu_seconds / t.groups * 1e6 for t in stores)),
        "raw_cpu_us": round(middle(t.cpu_seconds / t.groups * 1e6 for t in raws)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="append rate of the store")
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    print(json.dumps({"benchmark": "store_append", "rounds": asked.rounds} | facts()))
    for flush in ("always", "interval"):
        for records, waiters in ((1, 1), (1, 64), (100, 1), (100, 64)):
            found = compare(asked.directory, records, waiters, flush, asked.rounds)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
