"""
The sentence of an error: what a command says of your mistake, or of a part of the surroundings that is missing.

    ConnectionRefusedError ─▶ the database does not answer (…); check its URL, and that it runs
    KeyError               ─▶ None: a defect of ours, whose traceback is shown

Errors of Headrace say what to do by themselves. Those of databases and of the system are put into words here. Used by
the command line for errors that end a command, and by `headrace doctor` for parts that do not answer.
"""

import socket

from headrace.errors import HeadraceError

__all__ = ["sentence_of"]


def sentence_of(error: Exception) -> str | None:
    """Returns what to say of a mistake or of a missing part of the surroundings.

    Args:
        error: that a command ended with.

    Returns:
        One sentence that says what to do; None: it is a defect of ours, and its traceback is needed.
    """
    from pydantic import ValidationError

    from headrace_mq.errors import MessageQueueError

    # Connections to the broker raise errors of the queue, so this one is to a database: its driver
    # raises what the system said.
    if isinstance(error, ConnectionError | socket.gaierror):
        return f"the database does not answer ({error}); check its URL, and that it runs"
    if isinstance(error, HeadraceError | MessageQueueError | ValidationError | OSError):
        return str(error)
    return _of_a_database(error)


def _of_a_database(error: Exception) -> str | None:
    """Returns what to say of a database.

    It cannot be opened, is none, takes no writes, or does not let this user in.
    Other errors of a database mean that a statement is wrong, which is a defect of ours.
    """
    from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

    if type(error) not in {DBAPIError, DatabaseError, OperationalError}:
        return None
    assert isinstance(error, DBAPIError)
    if "readonly database" in str(error.orig):
        return (
            "this needs to write, and a file of the database can be read only: its disk takes no"
            " writes, or this user may not write it; change that, or name a copy that can be written"
        )
    return (
        f"the database cannot be used ({error.orig});"
        " check its URL, user and password, that it runs, the rights on its file, and that its"
        " disk has room and takes writes"
    )
