"""
Values that a row keeps as JSON: each has one form, in Python and as text.

    value ─▶ text: keys in the order of their code points, no spaces, 0.0 for -0.0 ─▶ the value again

So two values are equal where their texts are, on every database: PostgreSQL keeps JSON as `jsonb`, which
forgets the order of keys, and SQLite as this text. Not a number, infinity and the character NUL have no
place in either.

Used by `RowShape`. Pure.
"""

import json
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

__all__ = ["JsonForm", "json_text"]

# What may be in a text that is not in its one form yet; or is, as part of a string.
_DOUBTFUL: Final = ("\\u0000", "-0.0")


class JsonForm:
    """The values of one field.

    Args:
        annotation: the field's type.
    """

    def __init__(self, annotation: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)

    def text(self, value: Any) -> str:
        """Returns a value as text in its one form.

        Raises:
            ValueError: it is not of the field's type, or has no such form.
        """
        try:
            plain = self._adapter.dump_python(value, mode="json", by_alias=False, warnings="error")
        except PydanticSerializationError as error:
            raise ValueError(str(error)) from error
        return json_text(plain)

    def value(self, stored: Any) -> Any:
        """Returns the value that a text stands for, or what a database has made of it.

        Raises:
            ValueError: it is not of the field's type.
        """
        text = stored if isinstance(stored, str) else json_text(stored)
        return self._adapter.validate_json(text, by_alias=False, by_name=True)


def json_text(plain: Any) -> str:
    """Returns what JSON can say as text in its one form.

    Raises:
        ValueError: there is a number that is none, a NUL, or half a character in it.
    """
    text = _dump(plain)
    if any(each in text for each in _DOUBTFUL):
        text = _dump(_cleaned(plain))
    text.encode()
    return text


def _dump(plain: Any) -> str:
    return json.dumps(
        plain, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def _cleaned(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {_cleaned(key): _cleaned(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_cleaned(each) for each in plain]
    if isinstance(plain, str) and "\x00" in plain:
        raise ValueError("a text has the character NUL, which no database keeps in JSON")
    # Equal to it, and another text.
    return 0.0 if isinstance(plain, float) and plain == 0 else plain
