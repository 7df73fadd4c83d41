"""The connection that writes: whole or not at all, and good for the next append after any error."""

import sqlite3
from collections.abc import Iterator

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from headrace.stores.database.engines import EngineLimits, create_sqlite_engine
from headrace.stores.sqlite.writer import Row, SqliteWriter


@pytest.fixture
def writer(sqlite_database: str) -> Iterator[SqliteWriter]:
    limits = EngineLimits(connections_max=1, busy_timeout_ms=0)
    writer = SqliteWriter(create_sqlite_engine(sqlite_database, limits))
    yield writer
    writer.close()


@pytest.fixture
def other(sqlite_database: str) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the same file."""
    connection = sqlite3.connect(
        sqlite_database.removeprefix("sqlite:///"), isolation_level=None, timeout=0
    )
    yield connection
    connection.close()


def row(aggregate_id: str, version: int | None, command_id: str = "", body: str = "{}") -> Row:
    return Row(
        aggregate_id=aggregate_id,
        aggregate_type="Notebook",
        version=version,
        command_id=command_id or f"{aggregate_id}-{version}",
        recorded_at="2026-01-31 12:00:00.123456",
        body=body,
        checksum=1,
    )


def stored(other: sqlite3.Connection) -> list[tuple[str, int | None]]:
    found = other.execute("SELECT aggregate_id, version FROM event_streams ORDER BY position")
    return found.fetchall()


@pytest.mark.parametrize("count", [1, 2, 3, 64, 65, 256, 257, 1_000])
def test_any_number_of_rows_is_inserted_in_its_order(
    writer: SqliteWriter, other: sqlite3.Connection, count: int
) -> None:
    several = [row(f"a-{number % 7}", 1 + number // 7) for number in range(count)]
    assert writer.append(several)
    assert stored(other) == [(each.aggregate_id, each.version) for each in several]


def test_the_chain_of_an_aggregate_goes_on_from_append_to_append(
    writer: SqliteWriter, other: sqlite3.Connection
) -> None:
    assert writer.append([row("a", 1), row("b", 1), row("a", 2)])
    assert writer.append([row("b", 2), row("a", 3), row("a", None, "no"), row("a", 4)])
    assert stored(other)[3:] == [("b", 2), ("a", 3), ("a", None), ("a", 4)]


@pytest.mark.parametrize("count", [2, 3, 300])
def test_a_hole_in_one_aggregate_keeps_everything_out(
    writer: SqliteWriter, other: sqlite3.Connection, count: int
) -> None:
    assert writer.append([row("a", 1)])
    several = [row(f"b-{number}", 1) for number in range(count - 1)]
    assert not writer.append([*several, row("a", 3)])
    assert stored(other) == [("a", 1)]
    assert writer.append([*several, row("a", 2)])


@pytest.mark.parametrize("count", [2, 300])
@pytest.mark.parametrize("late", [row("a", 1, "new"), row("a", 2, "a-1")])
def test_a_row_that_comes_too_late_keeps_everything_out(
    writer: SqliteWriter, other: sqlite3.Connection, count: int, late: Row
) -> None:
    assert writer.append([row("a", 1)])
    several = [row(f"b-{number}", 1) for number in range(count)]
    with pytest.raises(IntegrityError, match="UNIQUE"):
        writer.append([*several[:-1], late, several[-1]])
    assert stored(other) == [("a", 1)]
    assert writer.append(several)


@pytest.mark.parametrize("count", [1, 300])
def test_a_locked_file_is_an_error_that_may_be_retried(
    writer: SqliteWriter, other: sqlite3.Connection, count: int
) -> None:
    several = [row(f"a-{number}", 1) for number in range(count)]
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="locked"):
        writer.append(several)
    other.execute("ROLLBACK")
    assert writer.append(several)
    assert len(stored(other)) == count


def test_a_write_of_another_program_meanwhile_is_no_error(
    writer: SqliteWriter, other: sqlite3.Connection
) -> None:
    assert writer.append([row("a", 1)])
    other.execute("UPDATE event_streams SET body = 'x'")
    assert writer.append([row("a", 2)])


@pytest.mark.parametrize("count", [8, 300])
def test_a_full_disk_stores_nothing_and_is_an_error_that_may_be_retried(
    writer: SqliteWriter, other: sqlite3.Connection, count: int
) -> None:
    assert writer.append([row("a", 1)])
    large = [row(f"b-{number}", 1, body="x" * 10_000) for number in range(count)]
    with writer.transaction() as cursor:
        pages = cursor.execute("PRAGMA page_count").fetchone()[0]
        cursor.execute(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(OperationalError, match="full"):
        writer.append(large)
    assert stored(other) == [("a", 1)]
    with writer.transaction() as cursor:
        cursor.execute("PRAGMA max_page_count = 1000000")
    assert writer.append(large)


def test_an_error_within_a_transaction_rolls_it_back(
    writer: SqliteWriter, other: sqlite3.Connection
) -> None:
    def run(statement: str) -> None:
        with writer.transaction() as cursor:
            assert writer.insert([row("a", 1)])
            cursor.execute(statement)

    with pytest.raises(OperationalError, match="no such table"):
        run("SELECT 1 FROM nowhere")
    assert stored(other) == []
    run("SELECT 1")
    assert stored(other) == [("a", 1)]


def test_a_row_that_cannot_be_text_is_the_row_s_own_fault(
    writer: SqliteWriter, other: sqlite3.Connection
) -> None:
    with pytest.raises(UnicodeError):
        writer.append([row("a", 1), row("b", 1, body="\ud800")])
    assert stored(other) == []
    assert writer.append([row("a", 1)])
