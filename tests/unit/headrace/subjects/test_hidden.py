"""Errors without personal values."""

import json
import traceback
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote, quote_plus, urlencode

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator
from sqlalchemy.exc import IntegrityError

from headrace.domain.message import DomainEvent
from headrace.subjects.hidden import HIDDEN, hide_personal
from headrace.subjects.personal import Personal

ANN = "ann@example.org"


class Registered(DomainEvent):
    who: str
    email: Annotated[str, Personal(subject="who")]
    born: Annotated[int, Personal(subject="who", placeholder=0)] = 19710203
    phones: Annotated[list[str], Personal(subject="who", placeholder=[])] = Field(
        default=["0171-5550100"]
    )


class Left(DomainEvent):
    email: str


class Strict(BaseModel):
    number: int
    names: list[int] = []

    @field_validator("number", mode="after")
    @classmethod
    def _even(cls, number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd {{}}")
        return number


EVENT = Registered(who="c-1", email=ANN)


def raised(work: Any) -> Exception:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - any error is wanted
        return error
    raise AssertionError("nothing was raised")


def text_of(error: BaseException) -> str:
    return f"{error} {error!r} {''.join(traceback.format_exception(error))}"


def fail(error: Exception, cause: Exception | None = None) -> Any:
    def work() -> None:
        if cause is None:
            raise error
        raise error from cause

    return work


@pytest.mark.parametrize(
    "work",
    [
        lambda: Strict.model_validate({"number": ANN}),
        lambda: Strict.model_validate({"number": 2, "names": [ANN * 20]}),
        lambda: int(ANN),
        lambda: {}[ANN],
        lambda: {}[EVENT.born],
        fail(ValueError(f"no {EVENT.phones[0]}")),
        fail(ValueError(EVENT.email, EVENT.born)),
        fail(RuntimeError("no"), ValueError(ANN)),
    ],
)
def test_no_text_of_an_error_tells_a_value(work: Any) -> None:
    error = raised(work)
    place = error.__traceback__
    hidden = hide_personal(error, [EVENT])
    told = text_of(hidden)
    assert not [one for one in (ANN, "19710203", "0171-5550100") if one in told]
    assert type(hidden) is type(error)
    assert hidden.__traceback__ is place


@pytest.mark.parametrize(
    "name", ["Jürgen Müller", 'Ann "Nan" O\'Neil', "名前太郎", "a\\b/c&d\n", "x\ud800yz"]
)
@pytest.mark.parametrize(
    "write",
    [
        str,
        repr,
        ascii,
        lambda name: json.dumps({"name": name}),
        lambda name: json.dumps({"name": name}, ensure_ascii=False),
        lambda name: name.encode(errors="backslashreplace"),
        lambda name: str(name.encode(errors="backslashreplace")),
        lambda name: name.encode("latin-1", errors="backslashreplace"),
        lambda name: f"/customers/{quote(name, errors='replace')}",
        lambda name: f"/customers/{quote(name, safe='', errors='replace')}",
        lambda name: f"/customers?name={quote_plus(name, errors='replace')}",
        lambda name: "/customers?" + urlencode({"name": name}, errors="replace"),
    ],
)  # fmt: skip
def test_no_way_to_write_a_value_tells_it(name: str, write: Any) -> None:
    written = write(name)
    told = text_of(
        hide_personal(raised(fail(ValueError(written))), [Registered(who="c-1", email=name)])
    )
    for each in (name, repr(written)[2:-1] if isinstance(written, bytes) else written):
        assert each not in told
    assert HIDDEN in told or "whose text told one" in told


def test_an_error_of_pydantic_keeps_places_and_reasons() -> None:
    error = raised(lambda: Strict.model_validate({"number": ANN, "names": [ANN]}))
    told = str(hide_personal(error, [EVENT]))
    assert "2 validation errors for Strict" in told
    assert "number\n  Input should be a valid integer, unable to parse" in told
    assert "names.0" in told
    assert "int_parsing" in told
    odd = str(hide_personal(raised(lambda: Strict(number=19710203)), [EVENT]))
    assert "odd {}" in odd
    assert "19710203" not in odd


def test_a_tag_that_is_the_value_is_not_told() -> None:
    class One(BaseModel):
        kind: Literal["one"]

    class Two(BaseModel):
        kind: Literal["two"]

    class Tagged(BaseModel):
        one: One | Two = Field(discriminator="kind")

    error = raised(lambda: Tagged.model_validate({"one": {"kind": ANN}}))
    assert isinstance(error, ValidationError)
    assert ANN not in text_of(hide_personal(error, [EVENT]))


def test_what_a_database_says_of_a_row_is_not_told() -> None:
    class Refused(Exception):
        detail: str | None = f"Key (email)=({ANN}) already exists."

        def __str__(self) -> str:
            return f"{self.args[0]} DETAIL: {self.detail}"

    orig = Refused("duplicate key")
    error = IntegrityError("INSERT", {"email": ANN}, orig)
    error.__cause__ = orig
    hidden = hide_personal(error, [EVENT])
    assert isinstance(hidden, IntegrityError)
    told = text_of(hidden)
    assert ANN not in told
    assert HIDDEN in told
    assert "INSERT" in told


def test_groups_contexts_and_notes_tell_no_value() -> None:
    def work() -> None:
        try:
            int(ANN)
        except ValueError as error:
            error.add_note(f"of {ANN}")
            group = ExceptionGroup("some", [error, ValueError(ANN)])
            raise group  # noqa: B904 - its context is what is tested

    told = text_of(hide_personal(raised(work), [EVENT]))
    assert ANN not in told
    assert "of [personal]" in told


def test_an_error_whose_text_stays_is_replaced() -> None:
    class Stubborn(Exception):
        def __str__(self) -> str:
            return ANN

    hidden = hide_personal(raised(fail(Stubborn())), [EVENT])
    assert ANN not in text_of(hidden)
    assert str(hidden) == "Stubborn, whose text told one"
    assert hidden.__traceback__ is not None


@dataclass(frozen=True)
class Frozen(Exception):
    email: str


class ReadOnlyDetail(Exception):
    @property
    def detail(self) -> str:
        return ANN


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError(ANN)


@pytest.mark.parametrize("error", [Frozen(ANN), ReadOnlyDetail(ANN), BrokenText(ANN)])
def test_an_error_that_cannot_be_read_or_changed_is_replaced(error: Exception) -> None:
    found = raised(fail(error))
    hidden = hide_personal(found, [EVENT])
    assert ANN not in text_of(hidden)
    assert str(hidden) == f"{type(error).__name__}, whose text cannot be read or changed"
    assert hidden.__traceback__ is found.__traceback__
    # What it caused keeps its type, by which outages are known.
    outer: Exception
    for outer in (ExceptionGroup("some", [error]), caused(OSError("away"), error)):
        told = hide_personal(raised(fail(outer)), [EVENT])
        assert type(told) is type(outer)
        assert ANN not in text_of(told)
        assert "whose text cannot be read or changed" in text_of(told)


def test_an_error_whose_text_raises_is_replaced_without_personal_values_too() -> None:
    hidden = hide_personal(raised(fail(BrokenText())), [Left(email=ANN)])
    assert str(hidden) == "BrokenText, whose text cannot be read or changed"
    readable = ReadOnlyDetail("x")
    assert hide_personal(readable, [Left(email=ANN)]) is readable


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_values_that_cannot_be_read_replace_the_error() -> None:
    class Unreadable(str):
        __slots__ = ()

        def __str__(self) -> str:
            raise RuntimeError(ANN)

    event = Registered.model_construct(who="c-1", email=Unreadable())
    hidden = hide_personal(raised(fail(ValueError(ANN))), [event])
    assert ANN not in text_of(hidden)


def test_a_group_that_becomes_no_error_is_replaced() -> None:
    class Odd(ExceptionGroup[Exception]):
        def derive(self, excs: Any) -> Any:
            return BaseExceptionGroup("odd", [KeyboardInterrupt()])

    hidden = hide_personal(raised(fail(Odd("some", [ValueError(ANN)]))), [EVENT])
    assert ANN not in text_of(hidden)
    assert "Odd, whose text" in str(hidden)


def test_an_error_about_other_messages_stays_as_it_is() -> None:
    error = raised(lambda: int(ANN))
    assert hide_personal(error, [Left(email=ANN)]) is error
    assert ANN in str(error)
    assert hide_personal(error, []) is error


def test_a_short_value_is_in_no_text_by_itself() -> None:
    error = ValueError("a and b")
    assert str(hide_personal(error, [Registered(who="c-1", email="and")])) == "a and b"


def test_a_long_chain_ends() -> None:
    error = ValueError("first")
    for number in range(100):
        error, cause = ValueError(f"{number} {ANN}"), error
        error.__cause__ = cause
    assert ANN not in text_of(hide_personal(error, [EVENT]))
