"""
What stacked-up messages cost: memory, starts, lookups, and what the index adds to an append.

    python benchmarks/store_index.py [DIRECTORY] [--messages 2000000] [--queues 2] [--records 1]
        [--keep]

Messages of 100 bytes with a key each, one per batch unless `--records` says otherwise, since
batches are what an index counts. With `--keep` the store stays in DIRECTORY and is used again: 20
million messages of one batch each take ten minutes to write. Prints JSON. Memory and starts are
measured in processes of their own, after the files were dropped from the page cache (`cold`) or
not (`warm`): after a clean close, after a kill that left almost a whole block unindexed, and
without any index, which walks the whole log. Appends are judged by CPU time, in the same run with
and without an index.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.places import made_folder
from headrace_mq.broker.server import Broker
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.store.log.lookup import LookupQuery
from headrace_mq.store.message_store import MessageStore

LOOKUPS = 2_000
# Each of them reads another page from the disk.
COLD_LOOKUPS = 50
TOPIC = "bench"
BODY = b"x" * 100
GROUP = 500
# Appended twice, with and without an index; more is only needed for what is stacked up.
COMPARED = 200_000
NEVER = 1 << 60
MIB = 1 << 20
KEYS_STEP_BYTES = 64 << 10
# So long without work means that the last block of keys was written, too.
IDLE_TURNS, IDLE_S = 20, 0.05
# Just below a block of the index: the most that a start can have to walk again.
UNINDEXED_BYTES = 15 * MIB


def settings(directory: Path) -> StoreSettings:
    return StoreSettings(directory=directory, flush="interval", flush_interval_ms=100)


def opened(directory: Path, **options: int) -> MessageStore:
    store = MessageStore(settings(directory), **options)  # type: ignore[arg-type]  # by its name
    store.open()
    return store


async def append(store: MessageStore, messages: range, queues: int, records: int) -> None:
    for batch, first in enumerate(range(messages.start, messages.stop, records)):
        keys = [f"key-{number}" for number in range(first, first + records)]
        columns = Columns(keys, [], [], [BODY] * records, [])
        queue = QueueRef(TOPIC, batch % queues)
        store.append(encode_batch(queue, columns, born_first_ms=0), retention="forever")
        if batch % GROUP == GROUP - 1:
            await store.durable()
    await store.durable()


async def fill(directory: Path, messages: int, queues: int, records: int, **options: int) -> float:
    """Appends messages; returns the CPU time of the process in microseconds per batch."""
    store = opened(directory, **options)
    started = time.process_time()
    await append(store, range(messages), queues, records)
    used = time.process_time() - started
    await store.aclose()
    return used / (messages / records) * 1e6


async def fill_and_die(directory: Path, records: int) -> None:
    """Appends almost a block, then ends like a killed broker."""
    store = opened(directory)
    start = end = store.segments("forever")[-1].end
    while end - start < UNINDEXED_BYTES:
        await append(store, range(GROUP * records), 1, records)
        end = store.segments("forever")[-1].end
    os.kill(os.getpid(), signal.SIGKILL)


def rss_mib() -> float:
    # Not the maximum: that is inherited from the process that started this one.
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / MIB, 1)


def median_us(look: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter_ns()
        look()
        taken.append((time.perf_counter_ns() - started) / 1e3)
    return round(statistics.median(taken), 1)


async def measured(directory: Path) -> dict[str, float]:
    """Opens the store and looks around in it."""
    started, used = time.perf_counter(), time.process_time()
    store = opened(directory)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    chance = random.Random(1)
    queue = QueueRef(TOPIC, 0)
    end = store.range(queue)[1]
    spans = store.segments("forever")
    first_ms, last_ms = spans[0].first_ms or 0, spans[-1].last_ms or 0

    def by_offset() -> object:
        # With the batch read and checked.
        return store.read(queue, chance.randrange(end), 1)

    def by_time() -> object:
        return store.offset_at(queue, chance.randint(first_ms, last_ms))

    found = {
        "open_seconds": round(seconds, 3),
        "open_cpu_seconds": round(used, 3),
        "messages_in_queue": end,
        # The first ones read pages and batches that nobody asked for before.
        "offset_lookup_us_first": median_us(by_offset, COLD_LOOKUPS),
        "time_lookup_us_first": median_us(by_time, COLD_LOOKUPS),
        "offset_lookup_us_median": median_us(by_offset, LOOKUPS),
        "time_lookup_us_median": median_us(by_time, LOOKUPS),
        "rss_mib": rss_mib(),
    }
    await store.aclose()
    return found


async def find_measured(directory: Path, messages: int) -> dict[str, float]:
    """Indexes the keys that are not indexed yet, then finds messages by key."""
    store = opened(directory)
    used = time.process_time()
    idle = 0
    while idle < IDLE_TURNS:
        idle = 0 if store.index_keys(KEYS_STEP_BYTES) else idle + 1
        await asyncio.sleep(IDLE_S if idle else 0)
    indexed = time.process_time() - used
    chance = random.Random(1)
    calls = 0

    def by_key() -> object:
        nonlocal calls
        cursor, found = None, 0
        wanted = LookupQuery(TOPIC, f"key-{chance.randrange(messages)}")
        while True:
            answer = store.find(wanted, cursor)
            calls, found, cursor = calls + 1, found + answer.messages, answer.cursor
            if cursor is None:
                return found

    found = {
        "index_cpu_seconds": round(indexed, 3),
        "find_by_key_us_median": median_us(by_key, COLD_LOOKUPS),
        "answers_per_find": calls / COLD_LOOKUPS,
        "rss_mib": rss_mib(),
    }
    await store.aclose()
    return found


async def broker_measured(directory: Path) -> dict[str, float]:
    """Starts a whole broker over the store."""
    started = time.perf_counter()
    broker = Broker(BrokerSettings(store=settings(directory), port=0))
    await broker.start()
    found = {"start_seconds": round(time.perf_counter() - started, 3), "rss_mib": rss_mib()}
    await broker.aclose()
    return found


def in_a_process(mode: str, directory: Path, records: int, messages: int = 0) -> dict[str, float]:
    command = [sys.executable, __file__, str(directory), mode]
    command += ["--records", str(records), "--messages", str(messages)]
    done = subprocess.run(command, check=mode != "--die", capture_output=True, text=True)
    lines = done.stdout.splitlines()
    found: dict[str, float] = {} if mode == "--die" else json.loads(lines[-1])
    return found


def chill(directory: Path) -> None:
    """Drops the files from the page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def report(folder: Path, messages: int, queues: int, records: int) -> dict[str, object]:
    cost = {}
    for name, options in (("without", {"index_block_bytes": NEVER}), ("with", {})):
        place = folder / f"compared-{name}"
        compared = fill(place, COMPARED, queues, records, **options)
        cost[f"append_cpu_us_{name}_index"] = round(asyncio.run(compared), 2)
        shutil.rmtree(place)
    store = folder / f"stacked-{messages}-{queues}-{records}"
    if not store.exists():
        asyncio.run(fill(store, messages, queues, records))
    size = sum(path.stat().st_size for path in store.glob("forever/*.index"))
    found: dict[str, object] = {
        "messages": messages,
        "records_per_batch": records,
        "log_bytes": sum(path.stat().st_blocks * 512 for path in store.glob("forever/*.log")),
        "index_bytes_per_batch": round(size / messages * records, 2),
        **cost,
    }
    # Closes cleanly, whatever an interrupted run left behind.
    in_a_process("--open", store, records)
    for state in ("clean", "killed"):
        for cache in ("cold", "warm"):
            if state == "killed":
                in_a_process("--die", store, records)
            if cache == "cold":
                chill(store)
            found[f"{state}_{cache}"] = in_a_process("--open", store, records)
    found["find"] = in_a_process("--find", store, records, messages)
    found["broker"] = in_a_process("--broker", store, records)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of stacked-up messages")
    parser.add_argument("directory", nargs="?", type=made_folder)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queues", type=int, default=2)
    parser.add_argument("--records", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    for mode in ("--open", "--die", "--find", "--broker"):
        parser.add_argument(mode, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.open:
        print(json.dumps(asyncio.run(measured(asked.directory))))
    elif asked.find:
        print(json.dumps(asyncio.run(find_measured(asked.directory, asked.messages))))
    elif asked.broker:
        print(json.dumps(asyncio.run(broker_measured(asked.directory))))
    elif asked.die:
        asyncio.run(fill_and_die(asked.directory, asked.records))
    elif asked.keep:
        found = report(asked.directory, asked.messages, asked.queues, asked.records)
        print(json.dumps(found, indent=2))
    else:
        with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
            found = report(Path(folder), asked.messages, asked.queues, asked.records)
            print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
