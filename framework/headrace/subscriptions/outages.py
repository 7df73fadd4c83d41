"""
Which errors are outages: the database or the queue is away, the data is not wrong.

    is_outage       for errors of our own calls: any error of a socket or a file
    claims_outage   for errors of your code: lost connections and timeouts only, because many libraries
                    derive other errors from OSError, for example a mail server's refusal

Used by the runners. They wait until an outage is over, but give up after a few attempts on an error
that will not pass. Pure.
"""

import errno
import socket
from typing import Final

from headrace.errors import CommandRefused, CommandTimeout, HeadraceError, ProjectionError
from headrace.stores.database.refusals import Blame, blame_of, is_away

__all__ = ["blames_event", "claims_outage", "is_outage"]

# Errors of connections, independent of the class that a library raises.
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
# How asyncio's error begins when a name has several addresses and none of them answers.
_SEVERAL: Final = "Multiple exceptions: "
# Causes of an error that are checked: libraries wrap an error a few times.
_CAUSES_MAX: Final = 8


def is_outage(error: BaseException) -> bool:
    """Whether the same call can succeed later, although no one repairs anything."""
    if isinstance(error, CommandRefused):
        # A command that is too large for the queue stays too large.
        return not isinstance(error.__cause__, ValueError)
    return is_away(error) or isinstance(error, CommandTimeout)


def claims_outage(error: BaseException) -> bool:
    """Whether an error from your code says that a system it needs is away."""
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
    """Whether the events of a batch cause an error, and not the tables or the code around them."""
    if isinstance(error, HeadraceError):
        return isinstance(error, ProjectionError)
    return blame_of(error) is Blame.VALUES
