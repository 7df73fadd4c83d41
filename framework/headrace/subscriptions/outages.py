"""
Which failures pass by themselves: the database or the queue is away, not the data wrong.

    is_outage       of our own calls: whatever a socket or a file raises
    claims_outage   of the user's: connections and timeouts alone, because half of all libraries
                    derive their errors from OSError, a mail server's refusal among them

Sits between: the runners, which wait out an outage but give up on a fault that every attempt meets
again, and the errors of databases and sockets. Pure.
"""

import errno
import socket
from typing import Final

from sqlalchemy.exc import DBAPIError, ProgrammingError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.errors import CommandRefused, CommandTimeout, HeadraceError, ProjectionError
from headrace.stores.database.refusals import Blame, blame_of

__all__ = ["blames_event", "claims_outage", "is_outage"]

# Errors of connections, however a library calls its class.
_AWAY: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)
# What asyncio raises where a name has several addresses and none of them answers.
_SEVERAL: Final = "Multiple exceptions: "
# Causes that are looked at: libraries wrap an error a few times.
_CAUSES_MAX: Final = 8


def is_outage(error: BaseException) -> bool:
    """Whether trying the same again later can succeed without anybody changing anything."""
    if isinstance(error, DBAPIError):
        # A table that is not there does not come by waiting.
        mistaken = isinstance(error, ProgrammingError) or blame_of(error) is Blame.VALUES
        return error.connection_invalidated or not mistaken
    if isinstance(error, StatementError):
        return False
    if isinstance(error, CommandRefused):
        # A command that is too large for the queue is so at every attempt.
        return not isinstance(error.__cause__, ValueError)
    return isinstance(error, OSError | PoolTimeout | CommandTimeout)


def claims_outage(error: BaseException) -> bool:
    """Whether an error that user code raised says that what the code needs is away."""
    if not isinstance(error, OSError):
        return is_outage(error)
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if isinstance(cause, ConnectionError | TimeoutError | socket.gaierror):
            return True
        if isinstance(cause, OSError) and (cause.errno in _AWAY or str(cause).startswith(_SEVERAL)):
            return True
        cause = cause and (cause.__cause__ or cause.__context__)
    return False


def blames_event(error: BaseException) -> bool:
    """Whether the events of a batch are at fault, and not the tables or the code around them."""
    if isinstance(error, HeadraceError):
        return isinstance(error, ProjectionError)
    return blame_of(error) is Blame.VALUES
