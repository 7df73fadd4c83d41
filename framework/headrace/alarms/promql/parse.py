"""
Reads the part of PromQL that the rules use. PURE.

    max by (a) (x{b="c"}) > 60 unless on (a) y offset 1h == 1  ─▶  Binary(unless, Binary(>, Aggregation, 60), …)

Used by `evaluate`, and by the rules to read durations.
"""

import re
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "Aggregation",
    "Binary",
    "Call",
    "Matcher",
    "Node",
    "Number",
    "Selector",
    "duration_s",
    "parse",
]

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<duration>\d+[smhdw])(?!\w)
      | (?P<number>\d+(?:\.\d+)?)
      | (?P<name>[a-zA-Z_]\w*)
      | (?P<text>"[^"]*")
      | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/<>=(){}\[\],])
    )""",
    re.VERBOSE,
)
# How tightly each holds; those of a row go from left to right.
_HOLDS: Final = {
    "or": 1, "and": 2, "unless": 2,
    "==": 3, "!=": 3, ">": 3, "<": 3, ">=": 3, "<=": 3,
    "+": 4, "-": 4, "*": 5, "/": 5,
}  # fmt: skip
_AGGREGATES: Final = frozenset({"sum", "max", "min"})
FUNCTIONS: Final = frozenset(
    {"changes", "delta", "deriv", "histogram_quantile", "increase", "rate", "time"}
)


class Number(NamedTuple):
    """A constant."""

    value: float


class Matcher(NamedTuple):
    """What a label must be, or match."""

    label: str
    sign: str
    value: str


class Selector(NamedTuple):
    """Series of a name; with a range all their values in that time."""

    name: str
    matchers: tuple[Matcher, ...]
    range_s: float
    offset_s: float


class Call(NamedTuple):
    """A function of its arguments."""

    function: str
    arguments: "tuple[Node, ...]"


class Aggregation(NamedTuple):
    """One series for all that share these labels."""

    operation: str
    labels: tuple[str, ...]
    inner: "Node"


class Binary(NamedTuple):
    """Two sides; `on` says which labels must agree, None: all."""

    operator: str
    left: "Node"
    right: "Node"
    on: tuple[str, ...] | None


Node: TypeAlias = Number | Selector | Call | Aggregation | Binary


def duration_s(text: str) -> float:
    """Returns seconds of `30s`, `5m`, `1h`, `1d`.

    Raises:
        ValueError: it is no such thing.
    """
    if not re.fullmatch(r"\d+[smhdw]", text):
        raise ValueError(f"{text!r} is no duration; write 30s, 5m, 1h or 1d")
    return float(int(text[:-1]) * _UNITS[text[-1]])


def parse(expression: str) -> Node:
    """Returns the tree of an expression.

    Raises:
        ValueError: it is none, or uses a part of PromQL that is not known here.
    """
    reader = _Reader(expression)
    found = reader.binary(0)
    reader.end()
    return found


class _Reader:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens: list[str] = []
        at, text = 0, expression.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"{text[at : at + 20]!r} is not known in {expression!r}")
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = 0

    def end(self) -> None:
        if self._next:
            raise ValueError(f"{self._next!r} is too much in {self._expression!r}")

    def binary(self, least: int) -> Node:
        left = self._one()
        while (holds := _HOLDS.get(self._next, 0)) > least:
            operator = self._take()
            on = self._labels() if self._skip("on") else None
            left = Binary(operator, left, self.binary(holds), on)
        return left

    def _one(self) -> Node:
        word = self._take()
        if word == "(":
            inner = self.binary(0)
            self._expect(")")
            return inner
        if word in _AGGREGATES:
            labels = self._labels() if self._skip("by") else ()
            self._expect("(")
            inner = self.binary(0)
            self._expect(")")
            return Aggregation(word, labels, inner)
        if word in FUNCTIONS:
            return Call(word, self._arguments())
        if word[:1].isdigit():
            return Number(float(word))
        if not (word[:1].isalpha() or word[:1] == "_"):
            raise ValueError(f"{word!r} is not known in {self._expression!r}")
        return self._selector(word)

    def _selector(self, name: str) -> Selector:
        matchers, range_s, offset_s = [], 0.0, 0.0
        if self._skip("{"):
            while not self._skip("}"):
                matchers.append(Matcher(self._take(), self._take(), self._take()[1:-1]))
                self._skip(",")
        if self._skip("["):
            range_s = duration_s(self._take())
            self._expect("]")
        if self._skip("offset"):
            offset_s = duration_s(self._take())
        return Selector(name, tuple(matchers), range_s, offset_s)

    def _arguments(self) -> tuple[Node, ...]:
        found: list[Node] = []
        self._expect("(")
        while not self._skip(")"):
            found.append(self.binary(0))
            self._skip(",")
        return tuple(found)

    def _labels(self) -> tuple[str, ...]:
        found = []
        self._expect("(")
        while not self._skip(")"):
            found.append(self._take())
            self._skip(",")
        return tuple(found)

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        word = self._next
        if not word:
            raise ValueError(f"{self._expression!r} ends too early")
        self._at += 1
        return word

    def _skip(self, word: str) -> bool:
        if self._next != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise ValueError(f"{word!r} is missing at {self._next!r} in {self._expression!r}")
