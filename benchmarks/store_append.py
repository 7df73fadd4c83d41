"""
How fast the store appends, beside what the disk itself does with the same bytes in the same run.

    python -m benchmarks.store_append [DIRECTORY] [--rounds 15]

One line of JSON per case: batches of 1 and of 100 messages of 100 bytes, 1 to 64 waiters that each
append a batch and wait until it is durable; with fdatasync and from the page cache, on the event
loop and with the garbage collector's thresholds that a broker runs with. A waiter is told as the
broker's are: one callback for each group appends for all who waited for it. `tasks_of_raw` is the
same with a task for each waiter. Before it is timed, the store has taken as much as its cache of
recent batches holds, so that it does not ask the system for new memory, as in a broker that has run
for a while.

A wave is a batch of every waiter: as much as can wait for the disk at once, and so the most that one
fdatasync can be for. The raw loops write a wave with one pwrite and, where the store does, one
fdatasync, wave after wave: `of_raw` into a file that was reserved with posix_fallocate, which is how
a log that grows is written at best; `of_growing` into a file that was not; and `of_reused` over a
file that was written before, which only a log can have that recycles its files. However the store
divides a wave into groups, it is compared with the undivided one; `of_same_groups` compares it with
a reserved file that gets the very writes that the store made.

All of them take turns in short rounds, so that other programs disturb them alike. Times are those of
the median wave of all rounds, in microseconds: the store's from the moment when as many batches as
there are waiters are durable to the next such moment. `best` is the wave that only a tenth were
faster than: what remains where other programs keep the machine busy. `mean_of_raw` compares all
waves together, `rounds_of_raw` is the median of the ratios of the rounds. `*_cpu_us` is CPU time for
each wave, the median of the rounds.
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
from functools import partial
from itertools import pairwise, repeat
from pathlib import Path
from typing import Literal, NamedTuple

import structlog
import uvloop

from benchmarks.machine import facts
from benchmarks.places import made_folder
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SEGMENT_BYTES = 512 << 20
# What is written again and again by the loop that recycles.
REUSED_BYTES = 64 << 20
# A round ends after so many waves or bytes: a fraction of a second.
WAVES_MAX = 150
BYTES_MAX = 16 << 20
# Writes before the timed ones.
WARM_UP = 20


class Taken(NamedTuple):
    """What a number of waves took: each one, and the CPU time of one on average."""

    wave_us: list[float]
    cpu_us: float


class Stopwatch:
    """Times waves; `lap` is called behind each of them."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._laps = [time.perf_counter()]

    def lap(self) -> None:
        """Ends a wave."""
        self._laps.append(time.perf_counter())

    def taken(self) -> Taken:
        """Returns what it took since the watch was made."""
        cpu_us = (time.process_time() - self._cpu) * 1e6
        waves = [(end - begin) * 1e6 for begin, end in pairwise(self._laps)]
        return Taken(waves, cpu_us / len(waves))


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
        path: where; "reserved" has its blocks, those of "reused" were written before and are again
            once its end is reached, "growing" has none.
        sync: whether every write is followed by fdatasync.
    """

    def __init__(self, path: Path, *, sync: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._sync = sync
        self._limit = REUSED_BYTES if path.name == "reused" else SEGMENT_BYTES
        self._at = 0
        if path.name != "growing":
            os.posix_fallocate(self._fd, 0, self._limit)
        if path.name == "reused":
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


class Waves:
    """Counts batches that are durable; a lap is a batch of every waiter."""

    def __init__(self, waiters: int, lap: Callable[[], None]) -> None:
        self._waiters = waiters
        self._lap = lap
        self._batches = 0

    def durable(self, batches: int) -> None:
        """Notes so many batches more."""
        before, self._batches = self._batches, self._batches + batches
        for _ in range(self._batches // self._waiters - before // self._waiters):
            self._lap()


class Waiters:
    """Who waits for batches as the broker's `Acknowledgements` do, and appends each again.

    Args:
        store: where to.
        batches: one for each waiter.
    """

    def __init__(self, store: MessageStore, batches: list[bytearray]) -> None:
        self._store = store
        self._batches = batches
        self._waiting: list[bytearray] = []
        self._group: asyncio.Future[None] | None = None

    async def run(self, times: int, lap: Callable[[], None]) -> None:
        """Appends so many waves; `lap` is called when another one is durable."""
        self._to_append = self._to_wait_for = times * len(self._batches)
        self._waves = Waves(len(self._batches), lap)
        self._done = asyncio.get_running_loop().create_future()
        self._append(self._batches)
        await self._done

    def _append(self, batches: list[bytearray]) -> None:
        batches = batches[: self._to_append]
        self._to_append -= len(batches)
        for batch in batches:
            self._store.append(batch, retention="forever", header=read_header(batch))
            group = self._store.durable()
            if group is not self._group:
                self._group, self._waiting = group, []
                group.add_done_callback(partial(self._flushed, self._waiting))
            self._waiting.append(batch)

    def _flushed(self, waiting: list[bytearray], group: asyncio.Future[None]) -> None:
        group.result()
        self._waves.durable(len(waiting))
        self._to_wait_for -= len(waiting)
        if self._to_wait_for:
            self._append(waiting)
        else:
            self._done.set_result(None)


class TaskWaiters:
    """The same with a task for each waiter."""

    def __init__(self, store: MessageStore, batches: list[bytearray]) -> None:
        self._store = store
        self._batches = batches

    async def run(self, times: int, lap: Callable[[], None]) -> None:
        """Appends so many waves; `lap` is called when another one is durable."""
        self._waves = Waves(len(self._batches), lap)
        await asyncio.gather(*map(self._keep_appending, self._batches, repeat(times)))

    async def _keep_appending(self, batch: bytearray, times: int) -> None:
        for _ in range(times):
            self._store.append(batch, retention="forever", header=read_header(batch))
            await self._store.durable()
            self._waves.durable(1)


async def take_turns(
    folder: Path, records: int, waiters: int, flush: Literal["always", "interval"], rounds: int
) -> dict[str, list[Taken]]:
    """Returns what each of those who take turns took in each round."""
    files = CountingFiles()
    settings = StoreSettings(directory=folder / "store", flush=flush, segment_bytes=SEGMENT_BYTES)
    store = MessageStore(settings, files=files)
    store.open()
    raws = {
        name: RawFile(folder / name, sync=flush == "always")
        for name in ("reserved", "same_groups", "reused", "growing")
    }
    batches = [template(records) for _ in range(waiters)]
    stores = {"tasks": TaskWaiters(store, batches), "store": Waiters(store, batches)}
    wave_bytes = len(batches[0]) * waiters
    waves = max(20, min(WAVES_MAX, BYTES_MAX // wave_bytes))
    await stores["tasks"].run(WARM_UP, lambda: None)
    found: dict[str, list[Taken]] = {name: [] for name in (*stores, *raws)}
    for _ in range(rounds):
        for name, driven in stores.items():
            files.sizes.clear()
            watch = Stopwatch()
            await driven.run(waves, watch.lap)
            found[name].append(watch.taken())
        for name, raw in raws.items():
            sizes = files.sizes if name == "same_groups" else [wave_bytes] * waves
            found[name].append(raw.write(sizes))
    for raw in raws.values():
        raw.close()
    await store.aclose()
    return found


def compare(
    folder: Path, records: int, waiters: int, flush: Literal["always", "interval"], rounds: int
) -> dict[str, object]:
    """Lets the store and the raw loops take turns; returns the medians."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        found = uvloop.run(take_turns(Path(place), records, waiters, flush, rounds))
    times = {name: [us for took in rounds for us in took.wave_us] for name, rounds in found.items()}
    middle = {name: statistics.median(waves) for name, waves in times.items()}
    best = {name: statistics.quantiles(waves, n=10)[0] for name, waves in times.items()}
    cpu = {
        name: statistics.median(took.cpu_us for took in rounds) for name, rounds in found.items()
    }
    by_round = [
        sum(raw.wave_us) / sum(store.wave_us)
        for raw, store in zip(found["reserved"], found["store"], strict=True)
    ]
    return {
        "flush": flush,
        "messages_per_batch": records,
        "waiters": waiters,
        "messages_per_second": round(records * waiters / middle["store"] * 1e6),
        "store_us": round(middle["store"]),
        "of_raw": round(middle["reserved"] / middle["store"], 3),
        "best_of_raw": round(best["reserved"] / best["store"], 3),
        "mean_of_raw": round(sum(times["reserved"]) / sum(times["store"]), 3),
        "rounds_of_raw": round(statistics.median(by_round), 3),
        "tasks_of_raw": round(middle["reserved"] / middle["tasks"], 3),
        "best_tasks_of_raw": round(best["reserved"] / best["tasks"], 3),
        "of_same_groups": round(sum(times["same_groups"]) / sum(times["store"]), 3),
        "groups_per_wave": round(len(times["same_groups"]) / len(times["store"]), 2),
        "of_growing": round(middle["growing"] / middle["store"], 3),
        "of_reused": round(middle["reused"] / middle["store"], 3),
        "best_store_us": round(best["store"]),
        "best_raw_us": round(best["reserved"]),
        "store_cpu_us": round(cpu["store"]),
        "raw_cpu_us": round(cpu["reserved"]),
        "cpu_us_per_batch": round(cpu["store"] / waiters, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="append rate of the store")
    parser.add_argument("directory", nargs="?", type=made_folder)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--synced-only", action="store_true", help="nothing from the page cache")
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    gc.set_threshold(50_000, 20, 100)
    gc.freeze()
    print(json.dumps({"benchmark": "store_append", "rounds": asked.rounds} | facts()))
    for flush in ("always",) if asked.synced_only else ("always", "interval"):
        for records, waiters in ((1, 1), (1, 64), (100, 1), (100, 16), (100, 64)):
            found = compare(asked.directory, records, waiters, flush, asked.rounds)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
