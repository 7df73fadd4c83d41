"""
What a failed append means: the database is away, the values do not fit, or a constraint is broken.

The committer repeats an append when the database was away, or the keys of personal fields, and otherwise
looks for the stream that caused the failure. The SQLite and PostgreSQL stores turn broken constraints into outcomes, and
subscriptions wait for a database that is away. Reads SQLAlchemy's errors and the drivers' errors
within them. Pure.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    ProgrammingError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.errors import HeadraceError, SubjectKeysAway
from headrace.stores.base import AppendOutcome
from headrace.stores.database.tables import COMMAND_CONSTRAINT, VERSION_CONSTRAINT

__all__ = ["Blame", "blame_of", "is_away", "postgres_outcome", "sqlite_outcome"]

# Classes of SQLSTATE that blame the values: data exceptions and broken constraints.
_VALUE_CLASSES: Final = frozenset({"22", "23"})

_OUTCOMES: Final[Mapping[str, AppendOutcome]] = {
    VERSION_CONSTRAINT: AppendOutcome.VERSION_CONFLICT,
    COMMAND_CONSTRAINT: AppendOutcome.DUPLICATE_COMMAND,
}
# PostgreSQL names the constraints of a shard itself: after the shard and the columns.
_OF_SHARD: Final = re.compile(r"event_streams_\d+_\d+_aggregate_id_(version|command_id)_key")
_OF_COLUMN: Final = {"version": VERSION_CONSTRAINT, "command_id": COMMAND_CONSTRAINT}
# SQLite names the columns of the violated constraint, never the constraint.
_SQLITE_VIOLATION: Final = re.compile(
    r"UNIQUE constraint failed: event_streams\.aggregate_id, event_streams\.(version|command_id)"
)


class Blame(Enum):
    """Who is to blame for a failure."""

    # The database is away, full or overloaded, or its schema is wrong: the stream may be correct.
    DATABASE = "database"
    # No attempt will ever be taken.
    VALUES = "values"
    UNKNOWN = "unknown"


def blame_of(error: BaseException) -> Blame:
    """Tells whether the database or a stream is the cause of a failed append."""
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return Blame.DATABASE
        state = getattr(error.orig, "sqlstate", None) or ""
        refused = isinstance(error, DataError | IntegrityError) or state[:2] in _VALUE_CLASSES
        return Blame.VALUES if refused else Blame.DATABASE
    if isinstance(error, SubjectKeysAway):
        return Blame.DATABASE
    if isinstance(error, StatementError | UnicodeError | OverflowError | HeadraceError):
        return Blame.VALUES
    return Blame.DATABASE if isinstance(error, OSError | PoolTimeout) else Blame.UNKNOWN


def is_away(error: BaseException) -> bool:
    """Whether a database, a file or the keys are away: the same call can succeed later, unrepaired."""
    if isinstance(error, DBAPIError):
        # Waiting does not create a missing table.
        mistaken = isinstance(error, ProgrammingError) or blame_of(error) is Blame.VALUES
        return error.connection_invalidated or not mistaken
    if isinstance(error, StatementError):
        return False
    return isinstance(error, OSError | PoolTimeout | SubjectKeysAway)


def sqlite_outcome(error: IntegrityError) -> AppendOutcome | None:
    """Returns what the violated constraint means; None: it is not one of the event store's."""
    violation = _SQLITE_VIOLATION.fullmatch(str(error.orig))
    return _OUTCOMES[_OF_COLUMN[violation[1]]] if violation else None


def postgres_outcome(error: IntegrityError) -> AppendOutcome | None:
    """Returns what the violated constraint means; None: it is not one of the event store's."""
    # SQLAlchemy wraps the driver's error once; only the driver's own knows the constraint.
    cause = error.orig.__cause__ if error.orig is not None else None
    name = getattr(cause, "constraint_name", None) or ""
    shard = _OF_SHARD.fullmatch(name)
    return _OUTCOMES.get(_OF_COLUMN[shard[1]] if shard else name)
