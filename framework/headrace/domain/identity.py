"""
Ids as text: the id that a user gives is rendered as text once, and stays text from then on.

Used by applications, whose ids may be UUIDs, numbers or tuples, and by everything that stores,
routes and compares ids. Pure.
"""

import re
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from typing import Final

from pydantic import BaseModel

__all__ = ["ID_CHARACTERS_MAX", "check_id", "id_text"]

# Longest id of an aggregate or command: 255 fits every database's indexed text column.
ID_CHARACTERS_MAX: Final = 255
# What most ids are: seen at one look.
_is_plain = re.compile(f"[\x01-\x7f]{{1,{ID_CHARACTERS_MAX}}}").fullmatch
# PostgreSQL stores no NUL, and UTF-8 has no form for half of a surrogate pair.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def check_id(kind: str, text: str) -> str:
    """Returns an id that every store takes.

    Args:
        kind: what it is the id of, with its article, for the sentence.
        text: 1 to 255 characters, no NUL, no half of a surrogate pair.

    Raises:
        ValueError: says what is wrong with it.
    """
    if _is_plain(text):
        return text
    if not 1 <= len(text) <= ID_CHARACTERS_MAX:
        raise ValueError(
            f"{kind} has 1 to {ID_CHARACTERS_MAX} characters, this one has {len(text)}"
        )
    if _UNSTORABLE.search(text):
        raise ValueError(
            f"{kind} must not contain NUL or half of a surrogate pair; change {text!r}"
        )
    return text


def id_text(kind: str, value: Hashable) -> str:
    """Returns the text of an id of any type; different ids of one type have different texts.

    Text is itself; an enumeration's member is its value; dates and times are in ISO 8601; tuples,
    frozen models and frozen dataclasses are their parts joined by ':'; everything else (UUID, int,
    …) is what its own `__str__` says.

    Args:
        kind: what it is the id of, with its article, for the sentence.
        value: a hashable value.

    Raises:
        ValueError: the value has no such text, or one that no store takes.
    """
    if type(value) is str:
        return value if _is_plain(value) else check_id(kind, value)
    return check_id(kind, _render(kind, value))


def _render(kind: str, value: object) -> str:
    if isinstance(value, Enum):
        return _render(kind, value.value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool) or value is None:
        raise ValueError(f"{kind} must not be {value}; use text, a number or a UUID")
    if isinstance(value, date | time):
        return value.isoformat()
    try:
        hash(value)
    except TypeError as error:
        raise ValueError(
            f"{kind} must be hashable and {type(value).__name__} is not; use a frozen type"
        ) from error
    if isinstance(value, tuple):
        return _joined(kind, value)
    if isinstance(value, BaseModel):
        return _joined(kind, tuple(getattr(value, name) for name in type(value).model_fields))
    if is_dataclass(value):
        return _joined(kind, tuple(getattr(value, field.name) for field in fields(value)))
    if type(value).__str__ is object.__str__ and type(value).__repr__ is object.__repr__:
        raise ValueError(f"{kind} needs a text; give {type(value).__name__} a __str__")
    return str(value)


def _joined(kind: str, parts: tuple[object, ...]) -> str:
    rendered = (_render(kind, part) for part in parts)
    # Escaped, so that ("a:b", "c") and ("a", "b:c") stay two ids.
    return ":".join(part.replace("\\", "\\\\").replace(":", "\\:") for part in rendered)
