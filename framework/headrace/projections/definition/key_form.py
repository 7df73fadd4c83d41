"""
The form of a projection's keys: values in the columns of a row, and one text wherever a key travels.

    one field, str       ann                       the text is the value
    one field, int       -7                        as Python writes it
    one field, UUID      1b4e28ba-2fa1-…           lower case, with hyphens
    several fields       ann,2026-01               joined by commas; within a part %2C is a comma, %25 a %

Folds, rebuilds and Spark's shuffle know keys as this text, of which each key has exactly one. Tables have
the values, so keys are ordered as the values are: numbers by size, text by code point.

Used by `Projection`, and by everything that reads or writes rows by key. Pure.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from headrace.errors import DefinitionError
from headrace.projections.definition.column_types import ColumnKind
from headrace.projections.definition.shape import RowField

__all__ = ["KEY_CHARACTERS_MAX", "KEY_FIELDS_MAX", "KeyForm", "key_text"]

# Of a key as text, all its parts together; the same as an aggregate's id.
KEY_CHARACTERS_MAX: Final = 255
# Fields of one key: more columns than that are no key that a person would write.
KEY_FIELDS_MAX: Final = 8

# What a column of 64 bits holds.
_INTEGERS: Final = range(-(2**63), 2**63)
_TYPES: Final = {ColumnKind.TEXT: str, ColumnKind.INTEGER: int, ColumnKind.UUID: UUID}


def key_text(values: Sequence[Any]) -> str:
    """Returns the values of a key as its text; see `key_form`."""
    if len(values) == 1:
        return str(values[0])
    return ",".join(str(value).replace("%", "%25").replace(",", "%2C") for value in values)


class KeyForm:
    """The key of one projection.

    Args:
        owner: the projection's name, for sentences.
        fields: of the row that make the key, in order.

    Attributes:
        names: of these fields.
        kinds: what they hold.
        is_text: whether the key is one text, so that text and value are the same.
        one: the type of one key, and not of several: of a key of several fields a tuple.

    Raises:
        DefinitionError: a field cannot be part of a key; the sentence names it.
    """

    def __init__(self, owner: str, fields: Sequence[RowField]) -> None:
        for field in fields:
            if field.kind not in _TYPES or field.optional or field.enum or field.choices:
                raise DefinitionError(
                    f"projection {owner}: key field {field.name} must be of type str, int or UUID,"
                    " without None"
                )
        if not 1 <= len(fields) <= KEY_FIELDS_MAX:
            raise DefinitionError(
                f"projection {owner}: a key has 1 to {KEY_FIELDS_MAX} fields, not {len(fields)}"
            )
        self.names = tuple(field.name for field in fields)
        self.kinds = tuple(field.kind for field in fields)
        self.is_text = self.kinds == (ColumnKind.TEXT,)
        self._types = tuple(_TYPES[kind] for kind in self.kinds)
        # Of a key that is a number text is no list of several keys, but no key either.
        self.one: tuple[type, ...] = (tuple,) if len(fields) > 1 else (str, bytes, *self._types)

    @property
    def described(self) -> str:
        """What a key is, for sentences."""
        parts = [f"{self._types[place].__name__}" for place in range(len(self.names))]
        if len(parts) == 1:
            return f"{_ARTICLES.get(parts[0], 'a')} {parts[0]}"
        named = (f"{name}: {part}" for name, part in zip(self.names, parts, strict=True))
        return f"a tuple ({', '.join(named)})"

    def text(self, key: Any) -> str:
        """Returns a key as text: of one field its value, of several a tuple of their values.

        Raises:
            ValueError: no row can have this key.
        """
        if self.is_text:
            if not isinstance(key, str) or len(key) > KEY_CHARACTERS_MAX:
                raise self._unusable(key)
            return key
        values = key if len(self.names) > 1 else (key,)
        if not isinstance(values, tuple) or len(values) != len(self.names):
            raise self._unusable(key)
        for value, wanted in zip(values, self._types, strict=True):
            fits = type(value) is wanted or (wanted is not int and isinstance(value, wanted))
            if not fits or (wanted is int and value not in _INTEGERS):
                raise self._unusable(key)
        text = self.join(values)
        if len(text) > KEY_CHARACTERS_MAX:
            raise self._unusable(key)
        return text

    def fitting(self, text: str) -> str:
        """Returns the text of values of the right types, if it is not too long.

        Raises:
            ValueError: it is, or a number has more than 64 bits.
        """
        if len(text) > KEY_CHARACTERS_MAX:
            raise self._unusable(text)
        self.values(text)
        return text

    def join(self, values: Sequence[Any]) -> str:
        """Returns values that fit as the text of their key."""
        return key_text(values)

    def text_of(self, row: Any) -> str:
        """Returns the key of a row as text."""
        values = row.__dict__
        if self.is_text:
            text: str = values[self.names[0]]
            return text
        return self.join([values[name] for name in self.names])

    def named(self, text: str) -> str:
        """Returns the fields and values of a key, for sentences."""
        try:
            return ", ".join(f"{name}={value!r}" for name, value in self.columns(text).items())
        except ValueError:
            return f"{', '.join(self.names)} of {text!r}, which is no key: write {self.described}"

    def values(self, text: str) -> tuple[Any, ...]:
        """Returns the values of a key that is written in its one form.

        Raises:
            ValueError: it is not the text of a key, or another text of the same key is.
        """
        if self.is_text:
            return (text,)
        values = self._read(text)
        if self.join(values) != text:
            raise ValueError(f"{text!r} is not how the key {self.join(values)!r} is written")
        return values

    def value(self, text: str) -> Any:
        """Returns a key as `text` takes it; raises as `values` does."""
        values = self.values(text)
        return values[0] if len(values) == 1 else values

    def columns(self, text: str) -> dict[str, Any]:
        """Returns the values of a key by the names of its fields; raises as `values` does."""
        return dict(zip(self.names, self.values(text), strict=True))

    def parse(self, text: str) -> str:
        """Returns the one text of a key that a person has written, such as `007` of the number 7.

        Raises:
            ValueError: it is none; the sentence says how one is written.
        """
        return text if self.is_text else self.join(self._read(text))

    def _read(self, text: str) -> tuple[Any, ...]:
        parts = [text]
        if len(self.names) > 1:
            parts = [part.replace("%2C", ",").replace("%25", "%") for part in text.split(",")]
        try:
            values = tuple(wanted(part) for wanted, part in zip(self._types, parts, strict=True))
            return self._checked(values)
        except (ValueError, OverflowError) as error:
            how = self.described
            if len(self.names) > 1:
                how = f"{','.join(self.names).upper()}, with %2C for a comma and %25 for a % within"
            raise ValueError(f"{text[:KEY_CHARACTERS_MAX]!r} is no key; write {how}") from error

    def _checked(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if any(type(value) is int and value not in _INTEGERS for value in values):
            raise ValueError("an integer has at most 64 bits")
        return values

    def _unusable(self, key: Any) -> ValueError:
        if self.is_text:
            return ValueError(f"a key is a str of at most {KEY_CHARACTERS_MAX} characters: {key!r}")
        return ValueError(
            f"a key is {self.described}, as text of at most {KEY_CHARACTERS_MAX} characters and"
            f" with numbers of at most 64 bits: {key!r}"
        )

    def __repr__(self) -> str:
        return f"<KeyForm of {', '.join(self.names)}>"


_ARTICLES: Final = {"int": "an"}
