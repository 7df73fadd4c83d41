"""
Conditions as closures in SQL's three-valued logic: True, False, or None for *unknown*.

A comparison is unknown where the header is missing, or is not a number but compared with one. A message
whose condition is unknown is not selected: neither `price > 10` nor `NOT price > 10` selects a message
without a price.

A closure answers for many messages at once, column by column, and decides each distinct text once:
a batch has many messages and few different regions.

Used by `grammar`, which puts conditions together, and by `filter`, which evaluates them. Pure.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

__all__ = [
    "Answers",
    "Condition",
    "Messages",
    "NumberBounds",
    "Value",
    "among",
    "both",
    "compare",
    "either",
    "flag",
    "header",
    "key",
    "like",
    "missing",
    "number",
    "opposite",
    "tag",
    "written",
]

# A longer text is no number: Python needs quadratic time for the digits of a large integer.
NUMBER_CHARACTERS_MAX = 40

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
# Of what int and float take nothing but what `_NUMBER` says is written like this.
_PLAIN_NUMBERS = re.compile(r"[0-9.+-]+")
_FLAGS = {"true": True, "false": False}
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"=": "=", "<>": "<>", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

# A text is asked about once if at least one of so many comes again.
_DISTINCT_SHARE = 2

Answers = list[bool | None]
Column = Sequence[str | None]
# One answer for each text.
Decide = Callable[[Sequence[str]], Answers]


class Messages(NamedTuple):
    """What is asked about: columns of `size` entries, those of the headers by their names."""

    size: int
    headers: Mapping[str, Column]
    keys: Column = ()
    tags: Column = ()

    def at(self, places: Sequence[int]) -> "Messages":
        """Those at these places."""
        return Messages(
            len(places),
            {name: [column[place] for place in places] for name, column in self.headers.items()},
            [self.keys[place] for place in places] if self.keys else (),
            [self.tags[place] for place in places] if self.tags else (),
        )


class NumberBounds(NamedTuple):
    """Each selected message has a number in the header `name`: from `low` to `high`, both included.

    As floats they are rounded away from each other, so that no rounding leaves a message out.
    """

    name: str
    low: float
    high: float


class Condition(NamedTuple):
    """What may be asked of messages.

    `tags` are the only ones that a selected message can have; None: any. `words` are texts of which
    each selected message has at least one among its headers, as a name or a value; None: unknown.
    `bounds` are of one header; None: it is not numbers that decide. `tags_decide` says that all
    messages with one of the tags are selected.
    """

    ask: Callable[[Messages], Answers]
    tags: frozenset[str] | None = None
    words: frozenset[str] | None = None
    bounds: NumberBounds | None = None
    tags_decide: bool = False


class Value(NamedTuple):
    """One side of a comparison.

    `kind` is `text` for headers, key and tag, which `look` finds; or `string`, `number` or `flag`
    for what was `written` out: it says how the text on the other side is read. `name` is that of a
    header.
    """

    kind: str
    look: Callable[[Messages], Column] | None = None
    written: Any = None
    is_tag: bool = False
    name: str | None = None

    @property
    def words(self) -> frozenset[str] | None:
        """What a message has among its headers if it has this value."""
        return None if self.name is None else frozenset([self.name])

    def column(self, messages: Messages) -> Column:
        """The texts of this value, one for each message."""
        assert self.look is not None, "what is written out is never looked for"
        return self.look(messages)


def header(name: str) -> Value:
    """The header of this name, unknown where a message has none."""
    return Value("text", lambda messages: messages.headers[name], name=name)


def key() -> Value:
    """The message's key; an empty one is unknown."""
    return Value("text", lambda messages: [one or None for one in messages.keys])


def tag() -> Value:
    """The message's tag; an empty one is unknown."""
    return Value("text", lambda messages: [one or None for one in messages.tags], is_tag=True)


def written(kind: str, value: Any) -> Value:
    """A `string`, `number` or `flag` that stands in the condition."""
    return Value(kind, written=value)


def number(text: str) -> int | float | None:
    """The number that a text says, exact where it is whole; None where it says none."""
    if len(text) > NUMBER_CHARACTERS_MAX or _NUMBER.fullmatch(text) is None:
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def numbers(texts: Sequence[str]) -> list[int | float | None]:
    """The number that each text says; a fifth of the time where all of them are plain ones."""
    if _PLAIN_NUMBERS.fullmatch("".join(texts)) and max(map(len, texts)) <= NUMBER_CHARACTERS_MAX:
        try:
            return [float(text) if "." in text else int(text) for text in texts]
        except ValueError:
            pass
    return list(map(number, texts))


def _truth(text: str) -> bool | None:
    return _FLAGS.get(text.lower())


def _truths(texts: Sequence[str]) -> list[bool | None]:
    return list(map(_truth, texts))


_READERS: Mapping[str, Callable[[Sequence[str]], Sequence[Any]]] = {
    "string": lambda texts: texts, "number": numbers, "flag": _truths,
}  # fmt: skip


def _judged(kind: str, judge: Callable[[Any], bool]) -> Decide:
    """Judges what texts say; what is not of that kind is unknown."""
    read = _READERS[kind]

    def decide(texts: Sequence[str]) -> Answers:
        said = read(texts)
        if None in said:
            return [None if one is None else judge(one) for one in said]
        return list(map(judge, said))

    return decide


def _decided(value: Value, decide: Decide) -> Callable[[Messages], Answers]:
    """Asks `decide` about each distinct text, or all where most are; a missing one is unknown."""

    def ask(messages: Messages) -> Answers:
        column = value.column(messages)
        distinct = set(column)
        if len(distinct) * _DISTINCT_SHARE > len(column) and None not in distinct:
            return decide(column)  # type: ignore[arg-type]  # nothing is missing
        distinct.discard(None)
        texts: list[Any] = list(distinct)
        said: dict[str | None, bool | None] = dict(zip(texts, decide(texts), strict=True))
        said[None] = None
        return list(map(said.__getitem__, column))

    return ask


def compare(sign: str, left: Value, right: Value) -> Condition:
    """`left sign right`, of which at least one is a text."""
    if left.kind != "text":
        left, right, sign = right, left, _MIRRORED[sign]
    if right.kind == "text":
        return _compare_texts(_OPERATORS[sign], left, right)
    other = right.written
    # As `other < one` where it says `one > other`: without a frame of Python for each text.
    judge = partial(_OPERATORS[_MIRRORED[sign]], other)
    equal = right.kind == "string" and sign == "="
    tags = frozenset([other]) if equal and left.is_tag else None
    words = frozenset([other]) if equal and left.name is not None else left.words
    bounds = _bounds_of(left.name, sign, other) if right.kind == "number" else None
    # An empty tag is unknown.
    decide = tags is not None and other != ""
    return Condition(_decided(left, _judged(right.kind, judge)), tags, words, bounds, decide)


def _compare_texts(decide: Callable[[Any, Any], bool], left: Value, right: Value) -> Condition:
    """Compares as numbers if both texts say one, as texts otherwise."""

    def answer(one: str | None, other: str | None) -> bool | None:
        if one is None or other is None:
            return None
        numbers = number(one), number(other)
        return decide(one, other) if None in numbers else decide(*numbers)

    def ask(messages: Messages) -> Answers:
        pairs = zip(left.column(messages), right.column(messages), strict=True)
        return [answer(one, other) for one, other in pairs]

    return Condition(ask, None, left.words or right.words)


def among(value: Value, kind: str, members: Sequence[Any]) -> Condition:
    """`value IN (…)`, where all members are written out and of one kind."""
    found = frozenset(members)
    tags = found if kind == "string" and value.is_tag else None
    words = found if kind == "string" and value.name is not None else value.words
    bounds = None
    if kind == "number":
        bounds = _met(
            _bounds_of(value.name, ">=", min(members)), _bounds_of(value.name, "<=", max(members))
        )
    decide = tags is not None and "" not in found
    ask = _decided(value, _judged(kind, found.__contains__))
    return Condition(ask, tags, words, bounds, decide)


def like(value: Value, matches: Callable[[str], bool]) -> Condition:
    """`value LIKE pattern`, the pattern compiled."""
    return Condition(_decided(value, _judged("string", matches)), None, value.words)


def flag(value: Value) -> Condition:
    """A value that stands for itself: true and false, in capitals or not."""
    if value.kind == "flag":
        return Condition(lambda messages: [value.written] * messages.size)
    return Condition(_decided(value, _truths), None, value.words)


def missing(value: Value) -> Condition:
    """`value IS NULL`, which is never unknown."""
    return Condition(lambda messages: [text is None for text in value.column(messages)])


def both(one: Condition, other: Condition) -> Condition:
    """AND: False if one is, else unknown if one is."""

    def ask(messages: Messages) -> Answers:
        first = one.ask(messages)
        left = [place for place, said in enumerate(first) if said is not False]
        if len(left) == len(first):
            second = other.ask(messages)
        else:
            # The second condition sees only what the first one leaves: few messages of most batches.
            second = other.ask(messages.at(left)) if left else []
        answers: Answers = [False] * len(first)
        for place, said in zip(left, second, strict=True):
            answers[place] = first[place] and said if said is not False else False
        return answers

    # The fewer words, the sooner it is seen that none of them is there.
    words = min(filter(None, (one.words, other.words)), key=len, default=None)
    bounds = _met(one.bounds, other.bounds)
    if one.tags is None or other.tags is None:
        return Condition(ask, other.tags if one.tags is None else one.tags, words, bounds)
    return Condition(ask, one.tags & other.tags, words, bounds)


def either(one: Condition, other: Condition) -> Condition:
    """OR: True if one is, else unknown if one is."""

    def ask(messages: Messages) -> Answers:
        pairs = zip(one.ask(messages), other.ask(messages), strict=True)
        return [True if a or b else (None if a is None or b is None else False) for a, b in pairs]

    return Condition(
        ask,
        _united(one.tags, other.tags),
        _united(one.words, other.words),
        _joined(one.bounds, other.bounds),
    )


def _united(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    return None if one is None or other is None else one | other


def opposite(condition: Condition) -> Condition:
    """NOT: unknown stays unknown."""
    return Condition(
        lambda messages: [None if said is None else not said for said in condition.ask(messages)]
    )


def _bounds_of(name: str | None, sign: str, limit: float) -> NumberBounds | None:
    """Where the numbers are of which `number sign limit` is true; None of all that is no header."""
    if name is None or sign in {"<>", "!="}:
        return None
    low, high = -math.inf, math.inf
    if sign in {"=", ">", ">="}:
        low = math.nextafter(float(limit), -math.inf)
    if sign in {"=", "<", "<="}:
        high = math.nextafter(float(limit), math.inf)
    return NumberBounds(name, low, high)


def _met(one: NumberBounds | None, other: NumberBounds | None) -> NumberBounds | None:
    """What both allow; of two headers the first, because one is enough to look at."""
    if one is None or other is None or one.name != other.name:
        return one or other
    return NumberBounds(one.name, max(one.low, other.low), min(one.high, other.high))


def _joined(one: NumberBounds | None, other: NumberBounds | None) -> NumberBounds | None:
    """What at least one of both allows."""
    if one is None or other is None or one.name != other.name:
        return None
    return NumberBounds(one.name, min(one.low, other.low), max(one.high, other.high))
