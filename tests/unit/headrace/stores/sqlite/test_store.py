import asyncio
import sqlite3
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from headrace.errors import DefinitionError
from headrace.stores.base import AppendOutcome
from headrace.stores.database.engines import EngineLimits
from headrace.stores.sqlite.store import SqliteEventStore
from headrace.testing.conformance.streams import conformance_serializer, stream

APPENDED = AppendOutcome.APPENDED


@pytest.fixture
async def store(sqlite_database: str) -> AsyncIterator[SqliteEventStore]:
    store = SqliteEventStore(
        sqlite_database, conformance_serializer(), EngineLimits(busy_timeout_ms=0)
    )
    yield store
    await store.aclose()


@pytest.fixture
def other(sqlite_database: str, store: SqliteEventStore) -> sqlite3.Connection:
    """Another program's connection to the same file."""
    connection = sqlite3.connect(
        sqlite_database.removeprefix("sqlite:///"), isolation_level=None, timeout=0
    )
    return connection


def test_a_database_without_file_is_refused() -> None:
    with pytest.raises(DefinitionError, match="names no file"):
        SqliteEventStore("sqlite://", conformance_serializer())


async def test_the_columns_repeat_what_the_body_says(
    store: SqliteEventStore, other: sqlite3.Connection
) -> None:
    await store.append([stream("a", 1, "c")])
    row = other.execute("SELECT * FROM event_streams").fetchone()
    other.close()
    assert row[:6] == (1, "a", "Notebook", 1, "c", "2026-01-31 12:00:00.123456")
    assert conformance_serializer().decode_stream(row[6]) == stream("a", 1, "c")


async def test_a_file_held_by_another_writer_is_an_error_that_may_be_retried(
    store: SqliteEventStore, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="locked"):
        await store.append([stream("a", 1)])
    other.execute("ROLLBACK")
    other.close()
    assert await store.append([stream("a", 1)]) == [APPENDED]


async def test_reading_does_not_wait_for_a_writer(
    store: SqliteEventStore, other: sqlite3.Connection
) -> None:
    await store.append([stream("a", 1)])
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM event_streams")
    assert await store.read_stream("a") == [stream("a", 1)]
    other.execute("ROLLBACK")
    other.close()


async def test_an_unknown_constraint_stays_an_error_and_stores_nothing(
    store: SqliteEventStore, other: sqlite3.Connection
) -> None:
    other.execute("CREATE UNIQUE INDEX uq_other ON event_streams (recorded_at)")
    other.close()
    with pytest.raises(IntegrityError, match="recorded_at"):
        await store.append([stream("a", 1), stream("b", 1)])
    assert await store.read_all() == []


async def test_positions_do_not_come_back_after_a_deletion(
    store: SqliteEventStore, other: sqlite3.Connection
) -> None:
    await store.append([stream("a", 1)])
    other.execute("DELETE FROM event_streams")
    other.close()
    await store.append([stream("b", 1)])
    assert [found.position for found in await store.read_all()] == [2]


async def test_a_cancelled_append_leaves_the_store_whole(store: SqliteEventStore) -> None:
    batch = [stream(f"a-{number}", 1) for number in range(200)]
    for turns in range(4):
        append = asyncio.create_task(store.append(batch))
        for _ in range(turns):
            await asyncio.sleep(0)
        append.cancel()
        await asyncio.gather(append, return_exceptions=True)
        assert len(await store.read_all()) in {0, 200}
    outcomes = await store.append(batch)
    assert len(set(outcomes)) == 1
    assert [found.stream for found in await store.read_all()] == batch


async def test_closing_finishes_the_appends_under_way(sqlite_database: str) -> None:
    store = SqliteEventStore(sqlite_database, conformance_serializer())
    appends = [asyncio.create_task(store.append([stream(f"a-{n}", 1)])) for n in range(10)]
    await asyncio.sleep(0)
    await store.aclose()
    assert await asyncio.gather(*appends) == [[APPENDED]] * 10
    again = SqliteEventStore(sqlite_database, conformance_serializer())
    assert len(await again.read_all()) == 10
    await again.aclose()


async def test_a_closed_store_takes_nothing(sqlite_database: str) -> None:
    store = SqliteEventStore(sqlite_database, conformance_serializer())
    await store.aclose()
    with pytest.raises(RuntimeError, match="shutdown"):
        await store.append([stream("a", 1)])
