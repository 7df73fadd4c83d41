"""The sentence of an error: your mistakes and missing parts have one, defects have none."""

import socket

import pytest
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from headrace.cli.sentences import sentence_of
from headrace.errors import HeadraceError
from headrace_mq.errors import ConnectionLost


class Row(BaseModel):
    number: int


def refused() -> ValidationError:
    with pytest.raises(ValidationError) as found:
        Row(number="x")  # type: ignore[arg-type]  # that is the point
    return found.value


def of_database(kind: type[DatabaseError], text: str) -> DatabaseError:
    return kind("SELECT 1", {}, Exception(text))


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (HeadraceError("it is away; start it"), "it is away; start it"),
        (ConnectionLost("no broker answers"), "no broker answers"),
        (ConnectionRefusedError("refused"), "the database does not answer (refused)"),
        (socket.gaierror("no such host"), "the database does not answer"),
        (FileNotFoundError("no file"), "no file"),
        (
            of_database(OperationalError, "no such table"),
            "the database cannot be used (no such table)",
        ),
        (
            of_database(OperationalError, "attempt to write a readonly database"),
            "this needs to write",
        ),
        (refused(), "validation error"),
    ],
)
def test_a_mistake_has_a_sentence(error: Exception, part: str) -> None:
    assert part in (sentence_of(error) or "")


@pytest.mark.parametrize("error", [KeyError("x"), of_database(IntegrityError, "unique")])
def test_a_defect_has_none(error: Exception) -> None:
    assert sentence_of(error) is None
