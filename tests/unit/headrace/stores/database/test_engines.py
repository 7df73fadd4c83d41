import asyncio
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as CheckoutTimeout

from headrace.errors import DefinitionError, ExtraMissing
from headrace.stores.database import engines
from headrace.stores.database.engines import (
    EngineLimits,
    autocommit,
    create_engine,
    create_sqlite_engine,
    database_url,
    is_in_memory,
)


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite://", "sqlite+aiosqlite"),
        ("sqlite:///events.db", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:////var/lib/events.db", "sqlite+aiosqlite"),
        ("postgresql://me:secret@host:5433/bank", "postgresql+asyncpg"),
        ("postgresql+asyncpg://me@/bank?host=/run/pg", "postgresql+asyncpg"),
    ],
)
def test_a_url_gets_our_driver_and_keeps_the_rest(url: str, driver: str) -> None:
    found = database_url(url)
    assert found.drivername == driver
    given = make_url(url)
    assert found.set(drivername=given.drivername) == given


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://host/bank", "mysql:// is not a database that Headrace knows"),
        ("events.db", "this is not a database URL"),
        ("", "this is not a database URL"),
        ("postgresql://me:secret@host:port/bank", "this is not a database URL"),
        ("sqlite:///file:events.db?uri=true", "name the SQLite file as it is"),
        ("sqlite:///file:events.db", "name the SQLite file as it is"),
    ],
)
def test_another_url_is_refused_with_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence) as refusal:
        database_url(url)
    assert "secret" not in str(refusal.value)


def test_a_database_without_file_is_in_memory() -> None:
    assert is_in_memory(database_url("sqlite://"))
    assert is_in_memory(database_url("sqlite:///:memory:"))
    assert not is_in_memory(database_url("sqlite:///events.db"))
    assert not is_in_memory(database_url("postgresql://host/bank"))


async def test_sqlite_survives_a_power_cut_by_its_settings(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}", EngineLimits(busy_timeout_ms=1_234))
    async with engine.connect() as connection:
        assert (await connection.execute(text("PRAGMA journal_mode"))).scalar() == "wal"
        assert (await connection.execute(text("PRAGMA synchronous"))).scalar() == 2  # FULL
        assert (await connection.execute(text("PRAGMA busy_timeout"))).scalar() == 1_234
    await engine.dispose()


def test_the_blocking_engine_has_the_same_settings(tmp_path: Path) -> None:
    engine = create_sqlite_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
    engine.dispose()


def test_the_blocking_engine_is_for_sqlite_only() -> None:
    with pytest.raises(DefinitionError, match="is not SQLite"):
        create_sqlite_engine("postgresql://host/bank")


async def test_a_transaction_on_sqlite_is_the_writer_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    engine = create_engine(f"sqlite:///{file}")
    other = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        async with engine.begin():
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    finally:
        other.close()
        await engine.dispose()


async def test_a_single_statement_on_sqlite_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    engine = create_engine(f"sqlite:///{file}", EngineLimits(busy_timeout_ms=0))
    other = sqlite3.connect(file, isolation_level=None)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE numbers (number INTEGER)"))
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO numbers VALUES (1)")
        async with autocommit(engine).connect() as connection:
            assert (await connection.execute(text("SELECT count(*) FROM numbers"))).scalar() == 0
        with pytest.raises(OperationalError, match="locked"):
            async with engine.begin():
                raise AssertionError("another connection holds the file")
        other.execute("COMMIT")
    finally:
        other.close()
        await engine.dispose()


async def test_a_database_in_memory_serves_one_transaction_after_the_other() -> None:
    engine = create_engine("sqlite://")
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE numbers (number INTEGER)"))

    async def add(number: int) -> None:
        async with engine.begin() as connection:
            await connection.execute(text(f"INSERT INTO numbers VALUES ({number})"))
            await asyncio.sleep(0)
            if number == 3:
                raise ArithmeticError

    answers = await asyncio.gather(*[add(number) for number in range(6)], return_exceptions=True)
    assert [type(answer) for answer in answers].count(ArithmeticError) == 1
    async with engine.connect() as connection:
        numbers = (await connection.execute(text("SELECT number FROM numbers"))).scalars().all()
    await engine.dispose()
    assert sorted(numbers) == [0, 1, 2, 4, 5]


async def test_the_wait_for_a_connection_is_bounded(tmp_path: Path) -> None:
    engine = create_engine(
        f"sqlite:///{tmp_path / 'a.db'}", EngineLimits(connections_max=1, checkout_timeout_ms=1)
    )
    async with engine.connect():
        with pytest.raises(CheckoutTimeout):
            await engine.connect()
    await engine.dispose()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another process that writes to a file without a write-ahead log."""
    connection = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE other (x)")
    yield connection
    connection.close()


def test_the_switch_to_a_write_ahead_log_waits_for_another_that_writes(
    tmp_path: Path, writer: sqlite3.Connection
) -> None:
    statements: list[str] = []

    class Meanwhile(sqlite3.Cursor):
        def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
            statements.append(statement)
            if statement == "BEGIN IMMEDIATE":  # where it waits, the other ends
                writer.execute("COMMIT")
            return super().execute(statement, *arguments)

    opened = sqlite3.connect(tmp_path / "new.db", isolation_level=None, timeout=10)
    assert engines._write_ahead(opened.cursor(Meanwhile), EngineLimits()) == "wal"
    assert statements == [
        "PRAGMA journal_mode = WAL",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "PRAGMA journal_mode = WAL",
    ]
    opened.close()


def test_the_switch_to_a_write_ahead_log_does_not_wait_for_ever(
    tmp_path: Path, writer: sqlite3.Connection
) -> None:
    opened = sqlite3.connect(tmp_path / "new.db", isolation_level=None, timeout=0.05)
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        engines._write_ahead(opened.cursor(), EngineLimits(busy_timeout_ms=50))
    opened.close()


def test_a_place_without_a_write_ahead_log_is_refused(tmp_path: Path) -> None:
    # The locks of this layer of SQLite share no memory, which the log needs.
    url = f"sqlite:///file:{tmp_path / 'a.db'}?vfs=unix-dotfile&uri=true"
    engine = sqlalchemy.create_engine(url)
    engines._prepare_connections(engine, make_url(url), EngineLimits())
    with pytest.raises(DefinitionError, match="cannot keep a write-ahead log"):
        engine.connect()
    engine.dispose()


async def test_postgresql_commits_durably_even_where_the_database_says_otherwise(
    postgres_database: str,
) -> None:
    url = make_url(postgres_database)
    connection = await asyncpg.connect(
        host=str(url.query["host"]), user=url.username, database=url.database
    )
    await connection.execute(f'ALTER DATABASE "{url.database}" SET synchronous_commit = off')
    await connection.close()
    engine = create_engine(postgres_database)
    async with engine.connect() as found:
        assert (await found.execute(text("SHOW synchronous_commit"))).scalar() == "on"
    await engine.dispose()


async def test_a_statement_on_postgresql_has_a_time_limit(postgres_database: str) -> None:
    engine = create_engine(postgres_database, EngineLimits(statement_timeout_ms=500))
    async with engine.connect() as connection:
        with pytest.raises(DBAPIError, match="statement timeout"):
            await connection.execute(text("SELECT count(*) FROM generate_series(1, 1000000000000)"))
    await engine.dispose()


async def test_a_single_statement_on_postgresql_commits_itself(postgres_database: str) -> None:
    engine = create_engine(postgres_database)
    async with autocommit(engine).connect() as connection:
        await connection.execute(text("CREATE TABLE numbers (number integer)"))
        async with engine.connect() as other:
            assert (await other.execute(text("SELECT count(*) FROM numbers"))).scalar() == 0
    await engine.dispose()


async def test_postgresql_plans_each_lookup_again_on_request(
    postgres_database: str,
) -> None:
    engine = create_engine(postgres_database, plan_anew=True)
    look = text("SELECT body FROM things WHERE id = ANY (:ids)")
    async with engine.connect() as connection:
        await connection.execute(text("CREATE TABLE things (id int PRIMARY KEY, body text)"))
        for _ in range(10):
            await connection.execute(look, {"ids": [1, 2, 3]})
        rows = text("INSERT INTO things SELECT n, 'x' FROM generate_series(1, 10000) n")
        await connection.execute(rows)
        await connection.execute(look, {"ids": [1, 2, 3]})
        plans = text(
            "SELECT custom_plans, generic_plans FROM pg_prepared_statements"
            " WHERE statement LIKE 'SELECT body%'"
        )
        assert [tuple(row) for row in await connection.execute(plans)] == [(11, 0)]
    await engine.dispose()


async def test_a_database_in_memory_outlives_a_statement_that_is_cancelled() -> None:
    started, gate = threading.Event(), threading.Event()

    def wait() -> bool:
        started.set()
        return gate.wait(20)

    engine = create_engine("sqlite://")
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE kept (number INTEGER)"))

    async def work() -> None:
        async with engine.begin() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            await driver.create_function("wait", 0, wait)
            await connection.execute(text("INSERT INTO kept VALUES (1)"))
            await connection.execute(text("SELECT wait()"))

    task = asyncio.create_task(work())
    assert await asyncio.to_thread(started.wait, 20)
    task.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with engine.begin() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM kept")) == 0
    await engine.dispose()


class SlowOpening:
    """Lets the threads that open SQLite files wait, and knows which those are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        self._connect: Any = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", self.connect)

    def connect(self, *names: Any, **options: Any) -> sqlite3.Connection:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.let_go.wait(60)
        opened: sqlite3.Connection = self._connect(*names, **options)
        return opened


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_opening_that_is_cancelled_ends_with_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    slow = SlowOpening(monkeypatch)
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    opening = asyncio.create_task(engine.connect().start())
    await asyncio.to_thread(slow.begun.wait)
    for _ in range(times):
        opening.cancel()
        for _ in range(100):
            await asyncio.sleep(0)
    # Else the thread might go on after the loop has ended.
    assert not opening.done()
    slow.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert [thread.is_alive() for thread in slow.threads] == [False]
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar() == 1
    await engine.dispose()


async def test_opening_that_fails_ends_with_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowOpening(monkeypatch)
    slow.let_go.set()
    engine = create_engine(f"sqlite:///{tmp_path / 'no folder' / 'a.db'}")
    with pytest.raises(OperationalError, match="unable to open"):
        await engine.connect().start()
    assert [thread.is_alive() for thread in slow.threads] == [False]
    await engine.dispose()


def test_a_missing_driver_of_postgresql_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'headrace\[postgres\]'"):
        database_url("postgresql://me@host/bank")
    assert database_url("sqlite://").drivername == "sqlite+aiosqlite"
