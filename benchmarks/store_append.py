"""
How fast the store appends, beside what the disk itself does in the same run.

    python benchmarks/store_append.py [DIRECTORY] [--seconds 2]

One line per case: batches of 1 and of 100 messages of 100 bytes, one batch per flush and 64 in
flight, acknowledged after fdatasync and from the page cache; then the raw write + fdatasync rate
for groups of the same size, on a preallocated file.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Literal

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SEGMENT_BYTES = 1 << 30
QUEUES = 4


def template(records: int) -> bytearray:
    columns = Columns([f"key-{n}" for n in range(records)], [], [], [b"x" * 100] * records, [])
    return encode_batch(QueueRef("bench", 0), columns, born_first_ms=1_700_000_000_000)


async def appended(
    directory: Path,
    records: int,
    in_flight: int,
    flush: Literal["always", "interval"],
    seconds: float,
) -> tuple[float, int]:
    """Returns batches per second and the bytes of one batch."""
    store = MessageStore(
        StoreSettings(directory=directory, flush=flush, segment_bytes=SEGMENT_BYTES)
    )
    store.open()
    batches = [bytearray(template(records)) for _ in range(in_flight)]
    store.append(batches[0], retention="forever")
    await store.durable()
    done = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        for batch in batches:
            store.append(batch, retention="forever")
        await store.durable()
        done += in_flight
    rate = done / (time.perf_counter() - started)
    await store.aclose()
    return rate, len(batches[0])


def raw(directory: Path, group_bytes: int, sync: bool, seconds: float) -> float:
    """Returns groups per second of pwrite and, with `sync`, fdatasync."""
    fd = os.open(directory / "raw", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.posix_fallocate(fd, 0, SEGMENT_BYTES)
    os.fsync(fd)
    data = os.urandom(group_bytes)
    done = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        os.pwrite(fd, data, done * group_bytes % (SEGMENT_BYTES - group_bytes))
        if sync:
            os.fdatasync(fd)
        done += 1
    rate = done / (time.perf_counter() - started)
    os.close(fd)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description="append rate of the store")
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    print("flush     batch  in flight  messages/s      MB/s  groups/s  raw groups/s  of raw")
    for flush in ("always", "interval"):
        for records in (1, 100):
            for in_flight in (1, 64):
                with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
                    rate, size = asyncio.run(
                        appended(Path(folder) / "store", records, in_flight, flush, asked.seconds)
                    )
                    disk = raw(Path(folder), size * in_flight, flush == "always", asked.seconds)
                groups = rate / in_flight
                print(
                    f"{flush:9} {records:5} {in_flight:10} {rate * records:11,.0f}"
                    f" {rate * size / 1e6:9,.1f} {groups:9,.0f} {disk:13,.0f} {groups / disk:7.0%}"
                )


if __name__ == "__main__":
    main()
