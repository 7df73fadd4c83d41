"""
The parser of conditions, by recursive descent.

One method for each rule:

    condition   = conjunction { "OR" conjunction }
    conjunction = negation { "AND" negation }
    negation    = "NOT" negation | "(" condition ")" | test
    test        = value [ comparison ]
    comparison  = ( "=" | "<>" | "!=" | "<" | "<=" | ">" | ">=" ) value
                | "IS" [ "NOT" ] "NULL"
                | [ "NOT" ] ( "BETWEEN" value "AND" value
                            | "IN" "(" literal { "," literal } ")"
                            | "LIKE" string [ "ESCAPE" string ] )
    value       = name | literal
    literal     = number | string | "TRUE" | "FALSE"

Keywords are written in any case. A name is a header's; in double quotes it may have any
characters. `_key` and `_tag` without quotes are the message's own.

Used by `filter`; makes the closures of `conditions`. Pure.
"""

from collections.abc import Callable
from typing import Any

from headrace_mq.filters import conditions
from headrace_mq.filters.conditions import NUMBER_CHARACTERS_MAX, Condition, Value
from headrace_mq.filters.likeness import compile_pattern
from headrace_mq.filters.tokens import InvalidFilter, Token, tokens

__all__ = ["CHARACTERS_MAX", "DEPTH_MAX", "names", "parse"]

# Of a condition: more than anyone writes by hand; it travels with every fetch.
CHARACTERS_MAX = 2_048
# Parentheses and NOTs within each other: the parser and the closures call themselves so deep.
DEPTH_MAX = 32

_SIGNS = frozenset(["=", "<>", "!=", "<", "<=", ">", ">="])
_OWN = {"_key": conditions.key, "_tag": conditions.tag}
_KINDS = {"number": "number", "string": "string", "keyword": "flag"}


def parse(text: str) -> Condition:
    """Turns a text into a condition.

    Raises:
        InvalidFilter: it cannot be understood, or is over a limit.
    """
    if len(text) > CHARACTERS_MAX:
        raise InvalidFilter(
            text, CHARACTERS_MAX, f"a filter has at most {CHARACTERS_MAX} characters; shorten it"
        )
    return _Parser(text).whole()


def names(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The headers that a text names, each once, and which of `_key` and `_tag`."""
    found = [(token.kind, token.value) for token in tokens(text)]
    own = frozenset(value for kind, value in found if kind == "name" and value in _OWN)
    headers = dict.fromkeys(
        value for kind, value in found if kind == "quoted" or (kind == "name" and value not in _OWN)
    )
    return tuple(headers), own


class _Parser:
    """One text and the place in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._next = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._condition()
        if self._peek.kind != "end":
            raise self._expected("AND, OR or the end")
        return found

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._peek
        self._next += token.kind != "end"
        return token

    def _has(self, *values: str, kind: str = "keyword") -> bool:
        """Takes the next words if they are these."""
        ahead = self._tokens[self._next : self._next + len(values)]
        if [(token.kind, token.value) for token in ahead] != [(kind, value) for value in values]:
            return False
        self._next += len(values)
        return True

    def _need(self, value: str, kind: str = "keyword") -> None:
        if not self._has(value, kind=kind):
            raise self._expected(value)

    def _expected(self, what: str) -> InvalidFilter:
        token = self._peek
        return InvalidFilter(self._text, token.at, f"expected {what}, found {token}")

    def _condition(self) -> Condition:
        return self._chain("OR", self._conjunction, conditions.either)

    def _conjunction(self) -> Condition:
        return self._chain("AND", self._negation, conditions.both)

    def _chain(
        self,
        word: str,
        part: Callable[[], Condition],
        join: Callable[[Condition, Condition], Condition],
    ) -> Condition:
        parts = [part()]
        while self._has(word):
            parts.append(part())
        # Joined in pairs, and those in pairs: a chain of hundreds nests few calls.
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [*(join(*pair) for pair in pairs), *parts[len(parts) & ~1 :]]
        return parts[0]

    def _negation(self) -> Condition:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidFilter(
                self._text, self._peek.at,
                f"at most {DEPTH_MAX} parentheses and NOTs within each other; make it flatter",
            )  # fmt: skip
        if self._has("NOT"):
            found = conditions.opposite(self._negation())
        elif self._has("(", kind="sign"):
            found = self._condition()
            self._need(")", kind="sign")
        else:
            found = self._test()
        self._depth -= 1
        return found

    def _test(self) -> Condition:
        at = self._peek.at
        value = self._value()
        token = self._peek
        if token.kind == "sign" and token.value in _SIGNS:
            self._take()
            return self._comparison(token, value)
        if self._has("IS"):
            negative = self._has("NOT")
            self._need("NULL")
            return _perhaps_not(conditions.missing(value), negative=negative)
        negative = self._has("NOT")
        if self._has("BETWEEN"):
            return _perhaps_not(self._between(value), negative=negative)
        if self._has("IN"):
            return _perhaps_not(self._among(value), negative=negative)
        if self._has("LIKE"):
            return _perhaps_not(self._like(value), negative=negative)
        if negative:
            raise self._expected("BETWEEN, IN or LIKE")
        if value.kind in {"string", "number"}:
            raise InvalidFilter(self._text, at, "a number or text alone is no condition")
        return conditions.flag(value)

    def _comparison(self, sign: Token, left: Value) -> Condition:
        right = self._value()
        kinds = {left.kind, right.kind}
        if len(kinds - {"text"}) == 2:
            raise InvalidFilter(
                self._text, sign.at, f"a {left.kind} cannot be compared with a {right.kind}"
            )
        if "text" not in kinds:
            raise InvalidFilter(self._text, sign.at, "compare with a header, _key or _tag")
        if "flag" in kinds and sign.value not in {"=", "<>", "!="}:
            raise InvalidFilter(self._text, sign.at, "TRUE and FALSE are compared with = or <>")
        return conditions.compare(sign.value, left, right)

    def _between(self, value: Value) -> Condition:
        at = self._peek.at
        low = self._value()
        self._need("AND")
        high = self._value()
        kinds = {low.kind, high.kind} - {"text"}
        if value.kind != "text" or len(kinds) > 1 or "flag" in kinds:
            raise InvalidFilter(
                self._text,
                at,
                "BETWEEN compares a header, _key or _tag with two values of one kind",
            )
        if low.kind == high.kind != "text" and low.written > high.written:
            raise InvalidFilter(
                self._text, at, "nothing is between these two; write the lower one first"
            )
        return conditions.both(
            conditions.compare(">=", value, low), conditions.compare("<=", value, high)
        )

    def _among(self, value: Value) -> Condition:
        self._need("(", kind="sign")
        at = self._peek.at
        written = [self._literal()]
        while self._has(",", kind="sign"):
            written.append(self._literal())
        self._need(")", kind="sign")
        kinds = {one.kind for one in written}
        if len(kinds) != 1 or value.kind != "text":
            raise InvalidFilter(
                self._text, at, "IN compares a header, _key or _tag with values of one kind"
            )
        return conditions.among(value, kinds.pop(), [one.written for one in written])

    def _like(self, value: Value) -> Condition:
        if value.kind != "text":
            raise self._expected("a header, _key or _tag before LIKE")
        at, pattern = self._peek.at, self._string()
        escape = self._string() if self._has("ESCAPE") else ""
        try:
            return conditions.like(value, compile_pattern(pattern, escape))
        except ValueError as error:
            raise InvalidFilter(self._text, at, str(error)) from error

    def _string(self) -> str:
        if self._peek.kind != "string":
            raise self._expected("a text in single quotes")
        return self._take().value

    def _value(self) -> Value:
        token = self._peek
        if token.kind == "name":
            self._take()
            own = _OWN.get(token.value)
            return own() if own else conditions.header(token.value)
        if token.kind == "quoted":
            self._take()
            return conditions.header(token.value)
        return self._literal("a header's name, a number, a text in quotes, TRUE or FALSE")

    def _literal(self, expected: str = "a number, a text in quotes, TRUE or FALSE") -> Value:
        token = self._peek
        written: Any = None
        if token.kind == "number":
            written = conditions.number(token.value)
            if written is None:
                raise InvalidFilter(
                    self._text, token.at, f"a number has at most {NUMBER_CHARACTERS_MAX} characters"
                )
        elif token.kind == "string":
            written = token.value
        elif token.kind == "keyword" and token.value in {"TRUE", "FALSE"}:
            written = token.value == "TRUE"
        else:
            raise self._expected(expected)
        self._take()
        return conditions.written(_KINDS[token.kind], written)


def _perhaps_not(condition: Condition, *, negative: bool) -> Condition:
    return conditions.opposite(condition) if negative else condition
