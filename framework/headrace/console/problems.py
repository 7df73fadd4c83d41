"""
Errors as a status of HTTP and one sentence for a person.

    NotPermitted   403      TopicNotFound   404      GroupNotEmpty     409
    a wrong field  422      LoginFailed     401      no broker answers 503

    an aggregate, a projection, an instance that is not there   404      a database that is away   503

Used by the console's pages and its JSON.
"""

from typing import Final

from sqlalchemy.exc import DBAPIError

from headrace import errors as framework
from headrace.gateway.problems import Problem
from headrace_mq import errors as queue

__all__ = ["KNOWN", "Mistake", "problem_of"]

_STATUSES: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], int, str], ...]] = (
    (queue.LoginFailed, 401, "login-failed"),
    (queue.NotPermitted, 403, "not-permitted"),
    ((queue.TopicNotFound, queue.GroupNotFound, queue.QueueNotFound), 404, "not-found"),
    (
        (queue.GroupNotEmpty, queue.TopicInUse, queue.TopicExists, queue.QueueFrozen),
        409,
        "not-now",
    ),
    ((queue.InvalidArgument, queue.OffsetOutOfRange), 422, "invalid"),
    (queue.MessageQueueError, 503, "broker-away"),
    (
        (framework.AggregateNotFound, framework.ProjectionNotFound, framework.LetterNotFound, framework.InstanceNotFound),
        404,
        "not-found",
    ),
    ((framework.SchemaOutOfDate, framework.SubjectKeysAway), 503, "database-away"),
    (framework.HeadraceError, 409, "not-now"),
)  # fmt: skip


class Mistake(Exception):
    """A field of a request is missing, or its value does not fit; the sentence says which."""


# What is no defect of ours, and says what to do.
KNOWN: Final = (
    Mistake,
    Problem,
    queue.MessageQueueError,
    framework.HeadraceError,
    DBAPIError,
    OSError,
)


def problem_of(error: Exception) -> Problem:
    """Returns the problem of an error.

    Args:
        error: one of `KNOWN`.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, Mistake):
        return Problem(422, "invalid", "Invalid values", str(error))
    if isinstance(error, DBAPIError | OSError):
        # What the driver said, without the statement and its values.
        said = error.orig if isinstance(error, DBAPIError) else error
        sentence = (
            f"the application's database cannot be used ({said}); check its URL, and that it runs"
        )
        return Problem(503, "database-away", "Database away", sentence)
    for kinds, status, kind in _STATUSES:
        if isinstance(error, kinds):
            return Problem(status, kind, type(error).__name__, str(error))
    raise error
