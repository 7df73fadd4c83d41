"""
Between which numbers a header must be: what can be seen of a condition without asking it.

Sits between: `conditions`, which say it, and whoever looks at encoded headers. Pure.
"""

import math
from typing import NamedTuple

__all__ = ["Bounds", "bounds_of", "joined", "met"]


class Bounds(NamedTuple):
    """Each selected message has a number in the header `name`: from `low` to `high`, both included.

    As floats they are rounded away from each other, so that no rounding leaves a message out.
    """

    name: str
    low: float
    high: float


def bounds_of(name: str | None, sign: str, limit: float) -> Bounds | None:
    """Where the numbers are of which `number sign limit` is true; None of all that is no header."""
    if name is None or sign in {"<>", "!="}:
        return None
    low, high = -math.inf, math.inf
    if sign in {"=", ">", ">="}:
        low = math.nextafter(float(limit), -math.inf)
    if sign in {"=", "<", "<="}:
        high = math.nextafter(float(limit), math.inf)
    return Bounds(name, low, high)


def met(one: Bounds | None, other: Bounds | None) -> Bounds | None:
    """What both allow; of two headers the first, because one is enough to look at."""
    if one is None or other is None or one.name != other.name:
        return one or other
    return Bounds(one.name, max(one.low, other.low), min(one.high, other.high))


def joined(one: Bounds | None, other: Bounds | None) -> Bounds | None:
    """What at least one of both allows."""
    if one is None or other is None or one.name != other.name:
        return None
    return Bounds(one.name, min(one.low, other.low), max(one.high, other.high))
