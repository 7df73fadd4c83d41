"""
One way to make the table of balances from all deposits, in a process of its own.

    python -m benchmarks.rebuilds.contender NAME ASKED

ASKED is JSON. Each way reads its events from where it keeps them, and stores the table; what it took and
what the table holds are printed as lines of JSON.
"""

import asyncio
import hashlib
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import structlog

from benchmarks.spark.usage import cpu_seconds, cpu_ticks

__all__ = ["WAYS"]

Row = tuple[str, int, int]
Asked = Mapping[str, Any]
# Notifications that are read together, and aggregates that are saved together.
PAGE = 5_000


def measure(asked: Asked, system: str, work: Callable[[], Any], rows: Callable[[], Any]) -> None:
    """Does the work, and prints what it took and a digest of the table that it made."""
    began, before = time.perf_counter(), cpu_ticks(os.getpid())
    work()
    seconds = time.perf_counter() - began
    cpu = cpu_seconds(before, cpu_ticks(os.getpid()))
    found: list[Row] = sorted(map(tuple, rows()))
    told = {
        "benchmark": "rebuilds", "system": system, "events": asked["events"],
        "seconds": round(seconds, 3), "per_second": round(asked["events"] / seconds),
        "cpu_us": round(cpu / asked["events"] * 1e6, 3), "rows": len(found),
        "folded": sum(row[2] for row in found),
        "digest": hashlib.sha256(repr(found).encode()).hexdigest()[:16],
    }  # fmt: skip
    print(json.dumps(told), flush=True)


def store(path: Path, rows: Iterable[Row]) -> None:
    """Writes a table of SQLite in one transaction."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE balances (account_id TEXT PRIMARY KEY, balance INT, transactions INT)"
        )
        database.executemany("INSERT INTO balances VALUES (?, ?, ?)", rows)


def stored(path: Path, table: str = "balances") -> list[Row]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT account_id, balance, transactions FROM {table}").fetchall()


def streams(address: str) -> Iterator[Any]:
    """What the topic holds, each message as a dictionary."""
    import msgspec

    from benchmarks.spark.application import TOPIC
    from headrace_mq.client.sync.reader import BlockingReader
    from headrace_mq.message import QueueRef

    decode = msgspec.json.Decoder().decode
    with BlockingReader(address) as reader:
        for held in reader.ranges([TOPIC]):
            queue = QueueRef(held.topic, held.queue_id)
            for _, columns, first, last in reader.read(queue, held.first, held.end):
                yield from map(decode, columns.bodies[first:last])


def loop(asked: Asked, folder: Path) -> None:
    """Messages of the topic, their JSON as dictionaries, one dictionary of rows."""

    def work() -> None:
        rows: dict[str, Row] = {}
        for stream in streams(asked["broker"]):
            key = stream["aggregate_id"]
            _, _, count = rows.get(key, (key, 0, 0))
            for event in stream["events"]:
                count += 1
                rows[key] = (key, event["data"]["balance"], count)
        store(folder / "rows.db", rows.values())

    measure(asked, "python loop", work, lambda: stored(folder / "rows.db"))


def duckdb(asked: Asked, folder: Path) -> None:
    """SQL over the exported files, into a table of its own file."""
    import duckdb as engine

    database = engine.connect(str(folder / "rows.duckdb"))

    def work() -> None:
        database.execute(
            "CREATE TABLE balances AS SELECT context.aggregate_id AS account_id,"
            " arg_max(balance, context.version) AS balance, count(*) AS transactions"
            f" FROM read_parquet('{asked['files']}') GROUP BY 1"
        )
        database.execute("CHECKPOINT")

    measure(asked, "duckdb", work, lambda: database.sql("FROM balances").fetchall())


def polars(asked: Asked, folder: Path) -> None:
    """A lazy query over the exported files, into a file of Parquet."""
    import polars as pl

    path = folder / "rows.parquet"

    def work() -> None:
        context = pl.col("context").struct
        events = pl.scan_parquet(asked["files"]).select(
            context.field("aggregate_id").alias("account_id"),
            context.field("version").alias("version"),
            "balance",
        )
        last = pl.col("balance").sort_by("version").last()
        rows = events.group_by("account_id").agg(last, pl.len().alias("transactions"))
        rows.collect().write_parquet(path)

    measure(asked, "polars", work, lambda: pl.read_parquet(path).iter_rows())


def eventsourcing(asked: Asked, folder: Path) -> None:
    """Its notification log in SQLite, in pages, its mapper, one dictionary of rows."""
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate, event

    class Account(Aggregate):
        def __init__(self) -> None:
            self.balance = 0

        @event("Deposited")
        def deposit(self, amount: int, balance: int) -> None:  # noqa: ARG002 - as ours
            self.balance = balance

    # Its topics name classes by where they are imported from.
    sys.modules[__name__].__dict__["Account"] = Account
    Account.__qualname__ = "Account"
    for name in ("Created", "Deposited"):
        getattr(Account, name).__qualname__ = f"Account.{name}"
    # Storing its events takes longer than all else: the first run leaves them to the next ones.
    path = Path(asked["folder"]) / "eventsourcing.db"
    is_there = path.exists()
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}
    app: Any = Application(env=env)
    accounts = [] if is_there else [Account() for _ in range(asked["accounts"])]
    for number in range(0 if is_there else asked["events"]):
        version = number // len(accounts) + 1
        accounts[number % len(accounts)].deposit(5, 5 * version)
    for first in range(0, len(accounts), PAGE):
        app.save(*accounts[first : first + PAGE])

    def work() -> None:
        rows: dict[str, Row] = {}
        start = 1
        while page := app.recorder.select_notifications(start, PAGE):
            for notification in page:
                happened = app.mapper.to_domain_event(notification)
                balance = getattr(happened, "balance", None)
                if balance is not None:
                    key = str(happened.originator_id)
                    _, _, count = rows.get(key, (key, 0, 0))
                    rows[key] = (key, balance, count + 1)
            start = page[-1].id + 1
        store(folder / "rows.db", rows.values())

    measure(asked, "eventsourcing", work, lambda: stored(folder / "rows.db"))


def new_database(folder: Path) -> str:
    """Makes the framework's own tables, as whoever deploys an application does, and returns the URL."""
    from headrace.stores.database.schema import upgrade

    url = f"sqlite:///{folder / 'read.db'}"
    asyncio.run(upgrade(url))
    return url


def replay(asked: Asked, folder: Path) -> None:
    """The rebuild without Spark: from the topic into SQLite, with versions and offsets, and a switch."""
    from benchmarks.spark.application import APP
    from headrace.rebuild.local.rebuild import rebuild

    url = new_database(folder)

    def work() -> None:
        asyncio.run(
            rebuild(APP, "declared", broker=asked["broker"], read_models_url=url, verify=False)
        )

    measure(asked, "headrace", work, lambda: stored(folder / "read.db", "declared"))


def with_spark(asked: Asked, folder: Path, system: str, projection: str, **files: Any) -> None:
    """A rebuild with Spark, in a session that has just started, and again in the same one."""
    from benchmarks.spark.application import APP
    from headrace.spark.rebuild import rebuild
    from headrace.spark.session import local_session

    url = new_database(folder)
    session = local_session("headrace-bench")

    def work() -> None:
        report = asyncio.run(
            rebuild(
                APP, projection, broker=asked["broker"], read_models_url=url, verify=False,
                spark=session, **files,
            )
        )  # fmt: skip
        assert report.exported == ("columns" if files else ""), report.exported

    for name in (f"{system}, at first", system):
        measure(asked, name, work, lambda: stored(folder / "read.db", projection))
    session.stop()


def spark(asked: Asked, folder: Path) -> None:
    """What is declared, from the topic."""
    with_spark(asked, folder, "headrace with spark", "declared")


def spark_files(asked: Asked, folder: Path) -> None:
    """What is declared, from typed files, as one query."""
    with_spark(asked, folder, "headrace with spark from files", "declared", export=asked["export"])


def spark_folded(asked: Asked, folder: Path) -> None:
    """A fold that is a function in Python, from the topic."""
    with_spark(asked, folder, "headrace with spark, fold in Python", "folded")


def columns(asked: Asked, folder: Path) -> None:
    """The rebuild of exported files in columns, in a process that has just started, and again."""
    from headrace.spark.columns.rebuild import rebuild

    url = new_database(folder)

    def work() -> None:
        from benchmarks.spark.application import APP

        asyncio.run(
            rebuild(
                APP, "declared", export=Path(asked["export"]), broker=asked["broker"],
                read_models_url=url, verify=False,
            )
        )  # fmt: skip

    for system in ("headrace in columns, at first", "headrace in columns"):
        measure(asked, system, work, lambda: stored(folder / "read.db", "declared"))


WAYS: Mapping[str, Callable[[Asked, Path], None]] = {
    "loop": loop, "duckdb": duckdb, "polars": polars, "eventsourcing": eventsourcing,
    "replay": replay, "columns": columns, "spark": spark, "spark-files": spark_files,
    "spark-folded": spark_folded,
}  # fmt: skip


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    name, text = sys.argv[1:]
    asked: Asked = json.loads(text)
    with tempfile.TemporaryDirectory(dir=asked["folder"]) as folder:
        WAYS[name](asked, Path(folder))


if __name__ == "__main__":
    main()
