"""
The connection that writes, and the one statement that appends.

An append is a single statement, so it is a single call of the driver, which releases the interpreter's
lock and takes it back once. A call for each row would do so for each row, and would wait for the lock each
time while the event loop is busy.

Used by the writing thread of the SQLite store. It calls SQLite's driver directly, because a statement
through SQLAlchemy costs a single stream more than the rest of an append.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError

from headrace.stores.database.statements import load_statement

__all__ = ["Row", "SqliteWriter"]

# Rows of one statement at most: 2,304 binds, far below what any build of SQLite takes.
_ROWS_MAX: Final = 256
# Those of one row.
_PLACES: Final = "(?, ?, ?, ?, ?, ?, ?)"


class Row(NamedTuple):
    """One stream as it is stored, in the order of the columns.

    Attributes:
        version: None: a rejection.
        recorded_at: in UTC, as SQLAlchemy writes it.
    """

    aggregate_id: str
    aggregate_type: str
    version: int | None
    command_id: str
    recorded_at: str
    body: str
    checksum: int


class SqliteWriter:
    """Writes over one connection that it keeps; for one thread.

    Args:
        engine: makes the connection; its transactions begin by an explicit BEGIN IMMEDIATE only.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._template = load_statement("headrace.stores.sqlite", "append")
        self._statements: dict[int, str] = {}
        self._connection: PoolProxiedConnection | None = None

    def append(self, rows: Sequence[Row]) -> bool:
        """Inserts rows in a transaction of their own; returns False if one of them does not fit.

        The rows of each aggregate follow each other without a hole. After False nothing is stored.

        Raises:
            sqlalchemy.exc.DBAPIError: the database failed, or a constraint objects.
        """
        if len(rows) <= _ROWS_MAX:
            return self._insert(rows)
        with self.transaction() as cursor:
            fits = self.insert(rows)
            if not fits:
                cursor.execute("ROLLBACK")
            return fits

    def insert(self, rows: Sequence[Row]) -> bool:
        """Inserts rows, as `append` does, in the transaction that is open."""
        parts = (rows[first : first + _ROWS_MAX] for first in range(0, len(rows), _ROWS_MAX))
        return all(map(self._insert, parts))

    def save(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Runs a statement for each row, in a transaction of their own."""
        with self.transaction() as cursor:
            cursor.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Begins a transaction; commits it at the end of the block, or rolls it back on an error.

        Raises:
            sqlalchemy.exc.DBAPIError: the database failed.
        """
        cursor = self._cursor()
        with self._errors("a transaction"):
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                if cursor.connection.in_transaction:
                    cursor.execute("COMMIT")
            finally:
                # An error may have ended it already, as that of a full disk does.
                if cursor.connection.in_transaction:
                    cursor.execute("ROLLBACK")

    def close(self) -> None:
        """Closes the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._engine.dispose()

    def _cursor(self) -> sqlite3.Cursor:
        if self._connection is None:
            self._connection = self._engine.raw_connection()
        cursor: sqlite3.Cursor = self._connection.driver_connection.cursor()  # type: ignore[union-attr]  # it is open
        return cursor

    def _insert(self, rows: Sequence[Row]) -> bool:
        size = 1 << (len(rows) - 1).bit_length()
        heads = _heads(rows)
        binds: list[Any] = [value for row in rows for value in row]
        binds += [None] * (len(Row._fields) * (size - len(rows)))
        for head in heads.items():
            binds += head
        binds += [None] * (2 * (size - len(heads)))
        statement = self._statement(size)
        with self._errors(statement):
            return self._cursor().execute(statement, binds).rowcount == len(rows)

    def _statement(self, size: int) -> str:
        statement = self._statements.get(size)
        if statement is None:
            statement = self._statements[size] = self._template.format(
                rows=", ".join([_PLACES] * size), heads=", ".join(["(?, ?)"] * size)
            )
        return statement

    @contextmanager
    def _errors(self, statement: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DBAPIError.instance(statement, None, error, sqlite3.Error) from error


def _heads(rows: Collection[Row]) -> dict[str, int]:
    """The versions that must be stored already, of aggregates that are not new; none has one below 1."""
    firsts: dict[str, int] = {}
    for row in rows:
        if row.version is not None:
            firsts.setdefault(row.aggregate_id, row.version)
    return {aggregate_id: first - 1 for aggregate_id, first in firsts.items() if first != 1}
