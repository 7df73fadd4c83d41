"""
A reader that follows an event store while others append: what does it miss?

Sits between: some writers and one reader, all at once. On PostgreSQL each writer has connections
of its own, so that transactions overlap; SQLite has one writer in a process.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from benchmarks.commands.application import Deposited, app
from headrace.domain.stream import EventStream
from headrace.stores.base import AppendOutcome, EventStore
from headrace.stores.open import open_event_store

__all__ = ["tail"]

WRITERS = 8
# Streams per append: from one on, so that short and long transactions overlap.
GROUPS = (1, 3, 20)
MOMENT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


async def tail(store: str, url: str, seconds: float) -> None:
    """Lets the writers append for some seconds and prints how many streams the reader missed."""
    written: set[tuple[str, int]] = set()
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(_opened(url))
        first = await reader.last_position()
        done = asyncio.Event()
        reading = asyncio.create_task(_read(reader, first, done))
        own = not url.startswith("sqlite")
        writers = [
            await stack.enter_async_context(_opened(url)) if own else reader for _ in range(WRITERS)
        ]
        begun = time.perf_counter()
        await asyncio.gather(
            *(_write(each, number, begun + seconds, written) for number, each in enumerate(writers))
        )
        spent = time.perf_counter() - begun
        done.set()
        seen, polls = await reading
    line = {
        "benchmark": "tail",
        "store": store,
        "writers": WRITERS,
        "appended": len(written),
        "per_second": round(len(written) / spent),
        "reads": polls,
        "missed": len(written - set(seen)),
        "read_twice": len(seen) - len(set(seen)),
    }
    print(json.dumps(line), flush=True)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[EventStore]:
    store = await open_event_store(url, app.serializer)
    try:
        yield store
    finally:
        await store.aclose()


async def _write(store: EventStore, writer: int, end: float, written: set[tuple[str, int]]) -> None:
    """Appends to an aggregate of its own, in groups of changing size."""
    aggregate_id, version, turn = f"tail-{writer}", 0, writer
    # However slow the machine is, each writes groups of every size: nothing cannot be missed.
    while time.perf_counter() < end or turn < writer + len(GROUPS):
        size = GROUPS[turn % len(GROUPS)]
        turn += 1
        streams = [_stream(aggregate_id, version + place) for place in range(1, size + 1)]
        outcomes = await store.append(streams)
        if set(outcomes) != {AppendOutcome.APPENDED}:
            raise SystemExit(f"an append to {aggregate_id} was refused: {outcomes}")
        written.update((aggregate_id, version + place) for place in range(1, size + 1))
        version += size


async def _read(
    store: EventStore, position: int, done: asyncio.Event
) -> tuple[list[tuple[str, int | None]], int]:
    """Reads on from a position until the writers are done and nothing is left."""
    seen: list[tuple[str, int | None]] = []
    polls = 0
    while True:
        last = done.is_set()
        found = await store.read_all(after_position=position)
        polls += 1
        for stored in found:
            position = stored.position
            seen.append((stored.stream.aggregate_id, stored.stream.version))
        if last and not found:
            return seen, polls


def _stream(aggregate_id: str, version: int) -> EventStream:
    return EventStream(
        aggregate_type="Account",
        aggregate_id=aggregate_id,
        version=version,
        command_id=f"c-{version}",
        correlation_id=f"c-{version}",
        recorded_at=MOMENT,
        events=(Deposited(transaction_id=f"t-{version}", amount=1, balance=version),),
    )
