"""
The words of a condition, each with its column.

Used by `grammar` and `filter`. Pure.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["InvalidFilter", "Token", "tokens"]

# How much of the text around a mistake is shown.
_SHOWN_CHARACTERS = 24

_WORDS = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<name>[^\W\d][\w.$]*)
    | (?P<sign><=|>=|<>|!=|[=<>(),])
    """,
    re.VERBOSE | re.ASCII,
)
_KEYWORDS = frozenset(
    ["AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"]
)


class InvalidFilter(ValueError):
    """A condition cannot be understood; the sentence says where and what was expected.

    Attributes:
        column: the place of the mistake in the text, from 1.
    """

    def __init__(self, text: str, at: int, what: str) -> None:
        before = text[max(0, at - _SHOWN_CHARACTERS) : at]
        after = text[at : at + _SHOWN_CHARACTERS]
        super().__init__(f"filter, column {at + 1}: {what} (… {before}▸{after} …)")
        self.column = at + 1


class Token(NamedTuple):
    """One word: `kind` is number, string, name, quoted, keyword, sign or end.

    `value` is the text without its quotes; keywords are in capitals.
    """

    kind: str
    value: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.value)


def tokens(text: str) -> Iterator[Token]:
    """Cuts a condition into words, and ends with one of kind `end`.

    Raises:
        InvalidFilter: a character belongs to no word, or a quote is not closed.
    """
    at = 0
    while at < len(text):
        match = _WORDS.match(text, at)
        if match is None:
            quote = text[at] in "'\""
            what = "this quote is not closed" if quote else f"{text[at]!r} has no meaning here"
            raise InvalidFilter(text, at, what)
        kind, value = str(match.lastgroup), match.group()
        if kind in {"string", "quoted"}:
            value = value[1:-1].replace(value[0] * 2, value[0])
        elif kind == "name" and value.upper() in _KEYWORDS:
            kind, value = "keyword", value.upper()
        if kind != "space":
            yield Token(kind, value, at)
        at = match.end()
    yield Token("end", "", len(text))
