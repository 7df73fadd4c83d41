"""An append that failed tells who is to blame."""

import pytest
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

from headrace.errors import UnknownMessageType
from headrace.stores.database.refusals import Blame, blame_of


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
        (DataError("statement", {}, DriverError()), Blame.VALUES),
        (DBAPIError("statement", {}, DriverError("22001")), Blame.VALUES),
        (IntegrityError("statement", {}, DriverError("23514")), Blame.VALUES),
        (StatementError("no zone", "statement", {}, ValueError()), Blame.VALUES),
        (UnknownMessageType("nobody applies it"), Blame.VALUES),
        (OverflowError("int too big"), Blame.VALUES),
        (RuntimeError("?"), Blame.UNKNOWN),
    ],
)
def test_a_failure_blames_the_database_the_values_or_nobody_known(error, blame):
    assert blame_of(error) is blame
