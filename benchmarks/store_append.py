"""
How fast the store appends, beside what the disk itself does with the same bytes in the same run.

    python -m benchmarks.store_append [DIRECTORY] [--rounds 15]

One line of JSON per case: batches of 1 and of 100 messages of 100 bytes, 1 and 64 waiters that
each append a batch and wait until it is durable; with fdatasync and from the page cache, on the
event loop and with the garbage collector's thresholds that a broker runs with. Two raw loops write
the same number of bytes with every call as the store did just before, with fdatasync where the
store has it: `of_raw` into a file that was reserved with posix_fallocate, which is how a log that
grows is written at best, and `of_reused` over a file that was written before, which only a log
can have that recycles its files. All three take turns in short rounds, so that other programs
disturb them alike. Times are those of the median group of all rounds, in microseconds, and as
`best` of the group that only a tenth were faster than: what remains where other programs keep the
machine busy. `*_cpu_us` is CPU time for each group, the median of the rounds.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise, repeat
from pathlib import Path
from typing import Literal, NamedTuple

import structlog
import uvloop

from benchmarks.machine import facts
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SEGMENT_BYTES = 512 << 20
# What is written again and again by the loop that recycles.
REUSED_BYTES = 64 << 20
# A round ends after so many groups or bytes: a fraction of a second.
GROUPS_MAX = 150
BYTES_MAX = 16 << 20
# Writes before the timed ones.
WARM_UP = 20


class Taken(NamedTuple):
    """What a number of groups took: each one, and the CPU time of one on average."""

    group_us: list[float]
    cpu_us: float


class Stopwatch:
    """Times groups; `lap` is called behind each of them."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._laps = [time.perf_counter()]

    def lap(self) -> None:
        """Ends a group."""
        self._laps.append(time.perf_counter())

    def taken(self) -> Taken:
        """Returns what it took since the watch was made."""
        cpu_us = (time.process_time() - self._cpu) * 1e6
        groups = [(end - begin) * 1e6 for begin, end in pairwise(self._laps)]
        return Taken(groups, cpu_us / len(groups))


class CountingFiles(SystemFiles):
    """The machine's files; remembers the size of every write, without zeros written ahead."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        """Writes parts at byte `at`, and remembers how much that was."""
        written = super().write(fd, at, parts)
        # Nothing but zeros begins with one.
        ahead = len(parts[-1]) if parts[-1][0] == 0 else 0
        self.sizes.append(written - ahead)
        return written


class RawFile:
    """A file that is written with pwrite and nothing else.

    Args:
        path: where.
        reused: whether its blocks are written already, and again once its end is reached.
        sync: whether every write is followed by fdatasync.
    """

    def __init__(self, path: Path, *, reused: bool, sync: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._sync = sync
        self._limit = REUSED_BYTES if reused else SEGMENT_BYTES
        self._at = 0
        os.posix_fallocate(self._fd, 0, self._limit)
        if reused:
            zeros = bytes(1 << 20)
            for at in range(0, self._limit, len(zeros)):
                os.pwrite(self._fd, zeros, at)
        os.fsync(self._fd)

    def write(self, sizes: Sequence[int]) -> Taken:
        """Writes that many bytes with each call."""
        data = memoryview(os.urandom(max(sizes)))
        watch = Stopwatch()
        for size in sizes:
            if self._at + size > self._limit:
                self._at = 0
            self._at += os.pwrite(self._fd, data[:size], self._at)
            if self._sync:
                os.fdatasync(self._fd)
            watch.lap()
        return watch.taken()

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


def template(records: int) -> bytearray:
    columns = Columns([f"key-{n}" for n in range(records)], [], [], [b"x" * 100] * records, [])
    return encode_batch(QueueRef("bench", 0), columns, born_first_ms=1_700_000_000_000)


async def keep_appending(
    store: MessageStore, batch: bytearray, times: int, lap: Callable[[], None] | None = None
) -> None:
    for _ in range(times):
        store.append(batch, retention="forever")
        await store.durable()
        if lap is not None:
            lap()


async def take_turns(
    folder: Path, records: int, waiters: int, flush: Literal["always", "interval"], rounds: int
) -> list[tuple[Taken, Taken, Taken]]:
    """Returns what the store, the reserved file and the reused file took in each round."""
    files = CountingFiles()
    settings = StoreSettings(directory=folder / "store", flush=flush, segment_bytes=SEGMENT_BYTES)
    store = MessageStore(settings, files=files)
    store.open()
    sync = flush == "always"
    raws = [
        RawFile(folder / f"raw{reused:d}", reused=reused, sync=sync) for reused in (False, True)
    ]
    batches = [template(records) for _ in range(waiters)]
    groups = max(20, min(GROUPS_MAX, BYTES_MAX // (len(batches[0]) * waiters)))
    await asyncio.gather(*(keep_appending(store, batch, WARM_UP) for batch in batches))
    for raw in raws:
        raw.write(files.sizes)
    found = []
    for _ in range(rounds):
        files.sizes.clear()
        watch = Stopwatch()
        # All of them are told of a group in one turn of the loop, the last one last.
        laps = [None] * (waiters - 1) + [watch.lap]
        await asyncio.gather(
            *(keep_appending(store, *each) for each in zip(batches, repeat(groups), laps))
        )
        taken = watch.taken()
        reserved, reused = (raw.write(files.sizes) for raw in raws)
        found.append((taken, reserved, reused))
    for raw in raws:
        raw.close()
    await store.aclose()
    return found


def compare(
    folder: Path, records: int, waiters: int, flush: Literal["always", "interval"], rounds: int
) -> dict[str, object]:
    """Lets the store and the raw loops take turns; returns the medians."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        found = uvloop.run(take_turns(Path(place), records, waiters, flush, rounds))
    stores, reserved, reused = (
        [took for taken in kind for took in taken.group_us] for kind in zip(*found, strict=True)
    )
    middle = statistics.median
    return {
        "flush": flush,
        "messages_per_batch": records,
        "waiters": waiters,
        "messages_per_second": round(records * waiters / middle(stores) * 1e6),
        "store_us": round(middle(stores)),
        "of_raw": round(middle(reserved) / middle(stores), 3),
        "of_reused": round(middle(reused) / middle(stores), 3),
        "best_store_us": round(best(stores)),
        "best_of_raw": round(best(reserved) / best(stores), 3),
        "best_of_reused": round(best(reused) / best(stores), 3),
        "store_cpu_us": round(middle(store.cpu_us for store, _, _ in found)),
        "raw_cpu_us": round(middle(raw.cpu_us for _, raw, _ in found)),
    }


def best(times: Sequence[float]) -> float:
    """Returns the time that a tenth were faster than."""
    return statistics.quantiles(times, n=10)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="append rate of the store")
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    gc.set_threshold(50_000, 20, 100)
    gc.freeze()
    print(json.dumps({"benchmark": "store_append", "rounds": asked.rounds} | facts()))
    for flush in ("always", "interval"):
        for records, waiters in ((1, 1), (1, 64), (100, 1), (100, 16), (100, 64)):
            found = compare(asked.directory, records, waiters, flush, asked.rounds)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
