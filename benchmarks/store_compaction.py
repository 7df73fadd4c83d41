"""
What a compaction costs: processor time for each message that it reads, beside decoding the same ones.

    python -m benchmarks.store_compaction [DIRECTORY] [--messages 400000] [--keys 20000]

A log is filled with messages of 100 bytes by random keys, then compacted once, as fast as it can. It reads
every message twice, once for its key and once to rewrite it; `decode_us` is what decoding each once costs
by itself, and `of_decode` the ratio. Times are processor time of the whole process. One line of JSON for
each number of messages in a batch.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path

import structlog

from benchmarks.machine import facts
from benchmarks.places import made_folder
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_columns, encode_batch, read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

QUEUE = QueueRef("bench", 0)
GROUP = 64


async def filled(store: MessageStore, records: int, asked: argparse.Namespace) -> float:
    """Appends the messages and closes; returns the seconds that decoding them once takes."""
    chosen = random.Random(1)
    decoding = 0.0
    for number in range(asked.messages // records):
        keys = [f"key-{chosen.randrange(asked.keys)}" for _ in range(records)]
        columns = Columns(keys, [], [], [b"x" * 100] * records, [])
        batch = encode_batch(QUEUE, columns, born_first_ms=1_700_000_000_000)
        store.append(batch, retention="compact")
        began = time.process_time()
        decode_columns(batch, read_header(batch))
        decoding += time.process_time() - began
        if number % GROUP == 0:
            await store.durable()
    await store.aclose()
    return decoding


async def measure(directory: Path, records: int, asked: argparse.Namespace) -> dict[str, object]:
    """Fills a log and compacts it once."""
    settings = StoreSettings(
        directory=directory, compact_segment_bytes=8 << 20, compact_lag_ms=0, compact_bytes_per_s=0
    )
    filling = MessageStore(settings)
    filling.open()
    decoding = await filled(filling, records, asked)
    # With its indexes written, so that nothing else costs anything.
    store = MessageStore(settings)
    store.open()
    try:
        began = time.process_time()
        await store.compaction.run({}, force=True)
        took = time.process_time() - began
        figures = store.compaction.figures
        read = figures.kept + figures.removed
        decode_us = decoding / asked.messages * 1e6
        return {
            "messages_per_batch": records,
            "messages": read,
            "kept": figures.kept,
            "cpu_us": round(took / read * 1e6, 3),
            "decode_us": round(decode_us, 3),
            "of_decode": round(took / read * 1e6 / decode_us, 1),
        }
    finally:
        await store.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description="processor time of a compaction")
    parser.add_argument("directory", nargs="?", type=made_folder, help="instead of a temporary one")
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--keys", type=int, default=20_000)
    asked = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    print(json.dumps(facts()), flush=True)
    for records in (10, 100, 1_000):
        with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
            print(json.dumps(asyncio.run(measure(Path(folder), records, asked))), flush=True)


if __name__ == "__main__":
    main()
