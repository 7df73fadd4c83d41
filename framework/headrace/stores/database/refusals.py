"""
What a failed append says: the database is away, or the values do not fit.

Sits between: databases' errors and the committer, which repeats the one and looks for the stream
that is to blame for the other. Pure.
"""

from enum import Enum
from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.errors import HeadraceError

__all__ = ["Blame", "blame_of"]

# Classes of SQLSTATE that blame the values: data exceptions and broken constraints.
_VALUE_CLASSES: Final = frozenset({"22", "23"})


class Blame(Enum):
    """Who is to blame for a failure."""

    # Away, full, overloaded, or its schema is wrong: what failed may be right.
    DATABASE = "database"
    # No attempt will ever be taken.
    VALUES = "values"
    UNKNOWN = "unknown"


def blame_of(error: BaseException) -> Blame:
    """Says who is to blame for an append that failed."""
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return Blame.DATABASE
        state = getattr(error.orig, "sqlstate", None) or ""
        refused = isinstance(error, DataError | IntegrityError) or state[:2] in _VALUE_CLASSES
        return Blame.VALUES if refused else Blame.DATABASE
    if isinstance(error, StatementError | UnicodeError | OverflowError | HeadraceError):
        return Blame.VALUES
    return Blame.DATABASE if isinstance(error, OSError | PoolTimeout) else Blame.UNKNOWN
