"""A failed append tells who is to blame, and which constraint it broke."""

import sqlite3

import pytest
from sqlalchemy import text
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.errors import SubjectKeysAway, SubjectKeysError, UnknownMessageType
from headrace.stores.base import AppendOutcome
from headrace.stores.database.engines import create_engine
from headrace.stores.database.refusals import Blame, blame_of, postgres_outcome, sqlite_outcome

INSERT = (
    "INSERT INTO event_streams"
    " (aggregate_id, aggregate_type, version, command_id, recorded_at, body)"
    " VALUES (:aggregate_id, 'Notebook', :version, :command_id, CURRENT_TIMESTAMP, :body)"
)
FIRST = {"aggregate_id": "a", "version": 1, "command_id": "c", "body": "x"}
violations = pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"command_id": "d"}, AppendOutcome.VERSION_CONFLICT),
        ({"version": 2}, AppendOutcome.DUPLICATE_COMMAND),
        ({"version": 2, "command_id": "d", "body": None}, None),
    ],
)


class DriverError(Exception):
    """An error as SQLAlchemy's asyncpg dialect wraps it."""

    def __init__(self, sqlstate: str | None = None) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "blame"),
    [
        (OperationalError("statement", {}, DriverError()), Blame.DATABASE),
        (DBAPIError("statement", {}, DriverError("57014")), Blame.DATABASE),
        (InterfaceError("statement", {}, DriverError()), Blame.DATABASE),
        # A missing table or right is no fault of the stream.
        (ProgrammingError("statement", {}, DriverError("42P01")), Blame.DATABASE),
        (DataError("statement", {}, DriverError(), connection_invalidated=True), Blame.DATABASE),
        (PoolTimeout(), Blame.DATABASE),
        (ConnectionRefusedError(), Blame.DATABASE),
        (TimeoutError(), Blame.DATABASE),
        (SubjectKeysAway("their database is away"), Blame.DATABASE),
        (SubjectKeysError("no database of that name"), Blame.VALUES),
        (DataError("statement", {}, DriverError()), Blame.VALUES),
        (DBAPIError("statement", {}, DriverError("22001")), Blame.VALUES),
        (IntegrityError("statement", {}, DriverError("23514")), Blame.VALUES),
        (StatementError("no zone", "statement", {}, ValueError()), Blame.VALUES),
        (UnknownMessageType("no class applies it"), Blame.VALUES),
        (OverflowError("int too big"), Blame.VALUES),
        (RuntimeError("?"), Blame.UNKNOWN),
    ],
)
def test_a_failure_blames_the_database_the_values_or_is_unknown(error, blame):
    assert blame_of(error) is blame


@violations
async def test_a_constraint_that_sqlite_names_by_its_columns_means_an_outcome(
    sqlite_database: str, change: dict[str, object], outcome: AppendOutcome | None
) -> None:
    connection = sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))
    connection.execute(INSERT, FIRST)
    with pytest.raises(sqlite3.IntegrityError) as violation:
        connection.execute(INSERT, FIRST | change)
    connection.close()
    assert sqlite_outcome(IntegrityError("", None, violation.value)) is outcome


@violations
async def test_a_constraint_that_postgresql_names_means_an_outcome(
    migrated_postgres: str, change: dict[str, object], outcome: AppendOutcome | None
) -> None:
    engine = create_engine(migrated_postgres)
    async with engine.connect() as connection:
        await connection.execute(text(INSERT), FIRST)
        with pytest.raises(IntegrityError) as violation:
            await connection.execute(text(INSERT), FIRST | change)
    await engine.dispose()
    assert postgres_outcome(violation.value) is outcome


def test_an_error_without_a_driver_s_error_means_no_outcome() -> None:
    assert postgres_outcome(IntegrityError("", None, ValueError())) is None
