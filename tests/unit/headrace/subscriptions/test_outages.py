"""An outage passes by itself; a fault of the values does not."""

import errno
import smtplib
import socket
import urllib.error
from email.message import Message

import pytest
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.errors import (
    CommandRefused,
    CommandTimeout,
    ProjectionError,
    SchemaOutOfDate,
    SubjectKeysAway,
    SubjectKeysError,
)
from headrace.subscriptions.outages import blames_event, claims_outage, is_outage


class DriverError(Exception):
    """An error as SQLAlchemy's asyncpg dialect wraps it."""

    def __init__(self, sqlstate: str | None = None) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("statement", {}, DriverError()),
        DBAPIError("statement", {}, DriverError("57014")),
        DBAPIError("statement", {}, DriverError("40P01")),
        InterfaceError("statement", {}, DriverError()),
        IntegrityError("statement", {}, DriverError(), connection_invalidated=True),
        PoolTimeout(),
        ConnectionRefusedError(),
        TimeoutError(),
        CommandRefused(),
        CommandTimeout(),
        SubjectKeysAway(),
    ],
)
def test_a_database_or_queue_that_is_away_is_an_outage(error: Exception) -> None:
    assert is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        IntegrityError("statement", {}, DriverError("23502")),
        ProgrammingError("statement", {}, DriverError("42P01")),
        DBAPIError("statement", {}, DriverError("22021")),
        StatementError("no zone", "statement", {}, ValueError()),
        OverflowError(),
        ProjectionError(),
        SubjectKeysError(),
        KeyError(),
    ],
)
def test_values_that_do_not_fit_and_code_that_fails_are_no_outage(error: Exception) -> None:
    assert not is_outage(error)


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        (ProjectionError(), True),
        (IntegrityError("statement", {}, DriverError("23502")), True),
        (DBAPIError("statement", {}, DriverError("22003")), True),
        (StatementError("no zone", "statement", {}, ValueError()), True),
        (OverflowError(), True),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), True),
        (IntegrityError("statement", {}, DriverError(), connection_invalidated=True), False),
        (ProgrammingError("statement", {}, DriverError("42P01")), False),
        (OperationalError("statement", {}, DriverError()), False),
        (SchemaOutOfDate(), False),
        (KeyError(), False),
    ],
)
def test_an_event_is_parked_for_its_values_and_not_for_tables_that_are_missing(
    error: Exception, blamed: bool
) -> None:
    assert blames_event(error) is blamed


class HostUnreachable(OSError):
    """Such as a client library derives from OSError, with the number of what was met."""


def caused(error: Exception, by: Exception) -> Exception:
    try:
        try:
            raise by
        except OSError:
            raise error  # noqa: B904 - as libraries do that say no cause
    except OSError as raised:
        return raised


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        TimeoutError(),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        HostUnreachable(errno.ECONNREFUSED, "refused"),
        OSError("Multiple exceptions: [Errno 111] …, [Errno 111] …"),
        caused(urllib.error.URLError("refused"), ConnectionRefusedError()),
        OperationalError("statement", {}, DriverError()),
        CommandRefused(),
    ],
)
def test_errors_of_connections_timeouts_and_names_claim_an_outage(error: Exception) -> None:
    assert claims_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        smtplib.SMTPRecipientsRefused({"ann@example.org": (550, b"no such user")}),
        smtplib.SMTPDataError(554, b"no spam"),
        urllib.error.HTTPError("http://a", 404, "Not Found", Message(), None),
        FileNotFoundError("no template"),
        PermissionError(),
        OSError("Multiple of something else"),
        caused(FileNotFoundError("no template"), IsADirectoryError()),
        KeyError(),
        IntegrityError("statement", {}, DriverError("23502")),
    ],
)
def test_an_oserror_that_is_no_connection_is_a_failure(error: Exception) -> None:
    assert not claims_outage(error)


def test_a_command_that_the_queue_can_never_take_is_no_outage() -> None:
    refused = CommandRefused("command c was not handed over")
    refused.__cause__ = ValueError("over the broker's limit")
    assert not is_outage(refused)
    assert not claims_outage(refused)
