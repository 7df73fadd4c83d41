"""
Which failures pass by themselves: the database or the queue is away, not the data wrong.

Sits between: the runners, which wait out an outage without limit but give up on a fault that every
attempt meets again, and the errors of databases and sockets. Pure.
"""

from sqlalchemy.exc import DBAPIError, ProgrammingError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.errors import CommandRefused, CommandTimeout, HeadraceError, ProjectionError
from headrace.stores.refusals import Blame, blame_of

__all__ = ["blames_event", "is_outage"]


def is_outage(error: BaseException) -> bool:
    """Whether trying the same again later can succeed without anybody changing anything."""
    if isinstance(error, DBAPIError):
        # A table that is not there does not come by waiting.
        mistaken = isinstance(error, ProgrammingError) or blame_of(error) is Blame.VALUES
        return error.connection_invalidated or not mistaken
    if isinstance(error, StatementError):
        return False
    return isinstance(error, OSError | PoolTimeout | CommandRefused | CommandTimeout)


def blames_event(error: BaseException) -> bool:
    """Whether the events of a batch are at fault, and not the tables or the code around them."""
    if isinstance(error, HeadraceError):
        return isinstance(error, ProjectionError)
    return blame_of(error) is Blame.VALUES
