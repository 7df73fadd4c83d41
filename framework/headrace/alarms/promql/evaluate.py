"""
Evaluates an expression over the figures of the last hours.

    Expression("headrace_broker_takes_messages == 0").at(history, now_s)  ─▶  {(("instance", "a:9464"), …): 0.0}

Used by the watcher. Names of metrics are no labels here: no expression of the rules asks for them.
"""

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from headrace.alarms.promql.functions import RANGED, quantile, ranged
from headrace.alarms.promql.history import FigureHistory, Labels
from headrace.alarms.promql.parse import (
    Aggregation,
    Binary,
    Call,
    Matcher,
    Node,
    Number,
    Selector,
    parse,
)

__all__ = ["Expression", "Vector"]

Vector: TypeAlias = dict[Labels, float]
_COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
    ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_AGGREGATED: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "sum": sum, "max": max, "min": min,
}  # fmt: skip


class Expression:
    """An expression that was read once.

    Args:
        text: in PromQL.

    Raises:
        ValueError: it uses a part of PromQL that is not known here.
    """

    def __init__(self, text: str) -> None:
        self._node = parse(text)

    @property
    def reach_s(self) -> dict[str, float]:
        """How far back each metric is looked at, in seconds by its name."""
        found: dict[str, float] = {}
        for one in _selectors(self._node):
            found[one.name] = max(found.get(one.name, 0.0), one.range_s + one.offset_s)
        return found

    def at(self, history: FigureHistory, now_s: float) -> Vector:
        """Returns the series for which it holds, with their values."""
        found = _Evaluation(history, now_s).value(self._node)
        return found if isinstance(found, dict) else {(): found}


def _selectors(node: Node) -> Iterator[Selector]:
    if isinstance(node, Selector):
        yield node
    elif isinstance(node, Call):
        for each in node.arguments:
            yield from _selectors(each)
    elif isinstance(node, Aggregation):
        yield from _selectors(node.inner)
    elif isinstance(node, Binary):
        yield from _selectors(node.left)
        yield from _selectors(node.right)


class _Evaluation:
    def __init__(self, history: FigureHistory, now_s: float) -> None:
        self._history = history
        self._now_s = float(now_s)

    def value(self, node: Node) -> "Vector | float":
        if isinstance(node, Number):
            return node.value
        if isinstance(node, Selector):
            moment = self._now_s - node.offset_s
            return {
                labels: value
                for labels, value in self._history.at(node.name, moment)
                if _matches(labels, node.matchers)
            }
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Aggregation):
            groups: dict[Labels, list[float]] = defaultdict(list)
            for labels, value in self._vector(node.inner).items():
                kept = tuple(pair for pair in labels if pair[0] in node.labels)
                groups[kept].append(value)
            return {labels: _AGGREGATED[node.operation](held) for labels, held in groups.items()}
        return self._binary(node)

    def _vector(self, node: Node) -> Vector:
        found = self.value(node)
        if not isinstance(found, dict):
            raise TypeError(f"{node} has no series")
        return found

    def _call(self, node: Call) -> "Vector | float":
        if node.function == "time":
            return self._now_s
        if node.function in RANGED:
            return self._ranged(node)
        share = self.value(node.arguments[0])
        assert isinstance(share, float)
        buckets: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
        for labels, value in self._vector(node.arguments[1]).items():
            rest = tuple(pair for pair in labels if pair[0] != "le")
            bound = _bound(dict(labels).get("le", ""))
            if bound is not None:
                buckets[rest].append((bound, value))
        return {labels: quantile(share, sorted(held)) for labels, held in buckets.items()}

    def _ranged(self, node: Call) -> Vector:
        (one,) = node.arguments
        assert isinstance(one, Selector)
        end = self._now_s - one.offset_s
        start = end - one.range_s
        found = {}
        for labels, points in self._history.between(one.name, start, end):
            if _matches(labels, one.matchers):
                value = ranged(node.function, points, start, end)
                if value is not None:
                    found[labels] = value
        return found

    def _binary(self, node: Binary) -> "Vector | float":
        left, right = self.value(node.left), self.value(node.right)
        if not isinstance(left, dict) and not isinstance(right, dict):
            return _computed(node.operator, left, right)
        if isinstance(left, dict) and isinstance(right, dict):
            return _joined(node, left, right)
        if isinstance(left, dict):
            assert isinstance(right, float)
            return _each(node.operator, ((labels, one, right, one) for labels, one in left.items()))
        assert isinstance(right, dict)
        return _each(node.operator, ((labels, left, one, one) for labels, one in right.items()))


def _each(sign: str, sides: "Iterator[tuple[Labels, float, float, float]]") -> Vector:
    """Compares or computes each pair; what a comparison keeps is the value of the series."""
    if sign in _COMPARED:
        return {labels: kept for labels, a, b, kept in sides if _COMPARED[sign](a, b)}
    return {labels: _computed(sign, a, b) for labels, a, b, _ in sides}


def _joined(node: Binary, left: Vector, right: Vector) -> Vector:
    def key(labels: Labels) -> Labels:
        if node.on is None:
            return labels
        held = dict(labels)
        return tuple((name, held.get(name, "")) for name in node.on)

    others = {key(labels): value for labels, value in right.items()}
    if node.operator == "and":
        return {labels: value for labels, value in left.items() if key(labels) in others}
    if node.operator == "unless":
        return {labels: value for labels, value in left.items() if key(labels) not in others}
    if node.operator == "or":
        known = {key(labels) for labels in left}
        return left | {labels: value for labels, value in right.items() if key(labels) not in known}
    return _each(
        node.operator,
        (
            (labels, value, others[key(labels)], value)
            for labels, value in left.items()
            if key(labels) in others
        ),
    )


def _computed(sign: str, a: float, b: float) -> float:
    if sign in {"+", "-", "*"}:
        return {"+": a + b, "-": a - b, "*": a * b}[sign]
    if sign == "/":
        if b:
            return a / b
        return float("nan") if not a else float("inf") * (1 if a > 0 else -1)
    raise ValueError(f"{sign} of two numbers is not known here")


def _bound(text: str) -> float | None:
    """The upper end of a bucket; None: what has a wrong one is no bucket."""
    try:
        found = float(text)
    except ValueError:
        return None
    return None if found != found else found


def _matches(labels: Labels, matchers: tuple[Matcher, ...]) -> bool:
    held = dict(labels)
    for label, sign, value in matchers:
        own = held.get(label, "")
        equal = re.fullmatch(value, own) is not None if sign in {"=~", "!~"} else own == value
        if equal == sign.startswith("!"):
            return False
    return True
