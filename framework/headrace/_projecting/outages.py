"""
Which failures pass by themselves: the database or the queue is away, not the data wrong.

Sits between: the runners, which wait out an outage without limit but give up on a fault that every
attempt meets again, and the errors of databases and sockets. Pure.
"""

from typing import Final

from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.errors import CommandRefused, CommandTimeout, ProjectionError

__all__ = ["blames_event", "is_outage"]

# Classes of SQLSTATE that blame the values: data exceptions and broken constraints.
_VALUE_CLASSES: Final = frozenset({"22", "23"})


def is_outage(error: BaseException) -> bool:
    """Whether trying the same again later can succeed without anybody changing anything."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or not _blames_values(error)
    if isinstance(error, StatementError):
        return False
    return isinstance(error, OSError | PoolTimeout | CommandRefused | CommandTimeout)


def blames_event(error: BaseException) -> bool:
    """Whether the events of a batch are at fault, and not the tables or the code around them."""
    if isinstance(error, DBAPIError):
        return not isinstance(error, ProgrammingError) and _blames_values(error)
    # OverflowError: a number that SQLite's driver cannot pass on.
    return isinstance(error, ProjectionError | StatementError | OverflowError)


def _blames_values(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError | ProgrammingError):
        return True
    state = getattr(error.orig, "sqlstate", None) or ""
    return state[:2] in _VALUE_CLASSES
