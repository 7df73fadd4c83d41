"""
Errors without personal values: what is logged, parked or traced must not tell what is encrypted elsewhere.

An error of a handler often repeats what the handler was given: pydantic tells the input, `int("ann")` its text,
a database the row. So where a handler of a message with personal fields fails, the values of these fields are
taken out of the text of the error and of all that caused it. Its type and its traceback stay.

Used where users' functions are called. It changes errors, which are of no other use by then.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

from pydantic import BaseModel
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError, to_jsonable_python

__all__ = ["HIDDEN", "hide_personal"]

# What stands in place of a value.
HIDDEN: Final = "[personal]"
# Characters that a value must have to be looked for: shorter ones are in many words.
CHARACTERS_MIN: Final = 4
# Errors that caused one another; what is behind them is cut off.
_CAUSES_MAX: Final = 16


class ErrorWithPersonalValues(Exception):
    """Stands for an error whose text cannot be changed; tells its type."""


class UnreadableError(Exception):
    """Stands for an error that cannot be read or changed; tells its type."""


def hide_personal(error: Exception, messages: Iterable[Any]) -> Exception:
    """Returns an error that tells no personal value of messages; the same one where none has any.

    Raises nothing: in place of one that cannot be read or changed stands one that tells its type. So what is
    returned can be logged and stored.

    Args:
        error: of a function that was given them; it, and what caused it, are changed.
        messages: commands, events or application messages.
    """
    personal = [each for each in messages if getattr(type(each), "message_personal", None)]
    if not personal:
        return error if _is_readable(error) else _stand_in(error)
    try:
        values = sorted(set(_values_of(personal)), key=len, reverse=True)
        hidden = _hidden(error, values, 0)
    except Exception:  # noqa: BLE001 - texts of users' values raise what they like
        return _stand_in(error)
    return hidden if isinstance(hidden, Exception) else _stand_in(error)


def _is_readable(error: Exception) -> bool:
    try:
        return isinstance(f"{error}{error!r}", str)
    except Exception:  # noqa: BLE001 - texts of users' errors raise what they like
        return False


def _values_of(messages: Iterable[Any]) -> Iterator[str]:
    for message in messages:
        for field in type(message).message_personal:
            yield from _texts(getattr(message, field))


def _texts(value: Any) -> Iterator[str]:
    """Yields the forms in which a value may stand in a text."""
    if isinstance(value, BaseModel | list | tuple | set | frozenset | dict):
        plain = to_jsonable_python(value, fallback=str)
        inner = plain.values() if isinstance(plain, dict) else plain
        for each in inner:
            yield from _texts(each)
        return
    text = str(value)
    if len(text) >= CHARACTERS_MIN and value is not None and not isinstance(value, bool):
        yield text
        yield repr(value).strip("'\"")
        yield from _written(text)


def _written(text: str) -> Iterator[str]:
    """Yields a text as programs write it: in ASCII, as bytes, in JSON, in a URL."""
    yield ascii(text)[1:-1]
    yield repr(_bytes_of(text))[2:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield quote(text, errors="replace")
    yield quote(text, safe="", errors="replace")
    yield quote_plus(text, errors="replace")


def _bytes_of(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _hidden(error: BaseException, values: list[str], depth: int) -> BaseException:
    try:
        return _changed(error, values, depth)
    except Exception:  # noqa: BLE001 - attributes and texts of users' errors raise what they like
        return _stand_in(error)


def _stand_in(error: BaseException) -> Exception:
    """Returns what stands for an error that cannot be read or changed; nothing tells what caused it."""
    told = f"{type(error).__name__}, whose text cannot be read or changed"
    return UnreadableError(told).with_traceback(error.__traceback__)


def _changed(error: BaseException, values: list[str], depth: int) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        inner = [_hidden(each, values, depth + 1) for each in error.exceptions]
        return _like(error, error.derive(inner), values, depth)
    if isinstance(error, ValidationError):
        return _like(error, _without_input(error, values), values, depth)
    for name in ("detail", "hint", "context"):  # what PostgreSQL says of a row
        if isinstance(getattr(error, name, None), str):
            setattr(error, name, _cut(getattr(error, name), values))
    if hasattr(error, "hide_parameters"):  # of SQLAlchemy
        error.hide_parameters = True
    error.args = tuple(_cut(each, values) for each in error.args)
    if hasattr(error, "__notes__"):
        error.__notes__ = [_cut(each, values) for each in error.__notes__]
    told = f"{error}{error!r}"
    if any(each in told for each in values):
        stands = ErrorWithPersonalValues(f"{type(error).__name__}, whose text told one")
        return _like(error, stands, values, depth)
    return _like(error, error, values, depth)


def _cut(argument: Any, values: list[str]) -> Any:
    if isinstance(argument, str):
        for each in values:
            argument = argument.replace(each, HIDDEN)
        return argument
    if isinstance(argument, bytes):
        for each in values:
            argument = argument.replace(_bytes_of(each), _bytes_of(HIDDEN))
    if isinstance(argument, int | float | bytes) and str(argument) in values:
        return HIDDEN
    return argument


def _like(error: BaseException, new: BaseException, values: list[str], depth: int) -> BaseException:
    """Gives an error the traceback and the causes of another one, which tell no value either."""
    suppressed, cause, context = error.__suppress_context__, error.__cause__, error.__context__
    known = depth < _CAUSES_MAX
    new.__cause__ = _hidden(cause, values, depth + 1) if cause is not None and known else None
    # The context that is shown nowhere is let go.
    shown = context is not None and not suppressed and known
    new.__context__ = _hidden(context, values, depth + 1) if shown and context else None
    new.__suppress_context__ = suppressed
    return new.with_traceback(error.__traceback__)


def _without_input(error: ValidationError, values: list[str]) -> ValidationError:
    """Returns pydantic's error with places and reasons alone."""
    lines = [
        InitErrorDetails(
            # The sentence as it is: those of pydantic, but for that of a tag, tell no input.
            type=PydanticCustomError(
                each["type"],
                "Input tag is not one of those expected"
                if each["type"] == "union_tag_invalid"
                else _cut(each["msg"], values),
            ),
            loc=tuple(_cut(part, values) for part in each["loc"]),
            input=None,
        )
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return ValidationError.from_exception_data(error.title, lines, hide_input=True)
