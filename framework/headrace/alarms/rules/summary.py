"""
Fills the summary of a rule with the labels and the value of an alarm, as Prometheus does it. PURE.

    the disk of {{ $labels.instance }} is full in {{ $value | humanize }} days  ─▶  the disk of a:9464 is full in 2.5 days

Used by the watcher.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["filled"]

_PLACE: Final = re.compile(r"\{\{\s*\$(?:labels\.(\w+)|value)(?:\s*\|\s*(\w+))?\s*\}\}")
_STEPS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_LARGE: Final = ("", "k", "M", "G", "T", "P")


def filled(summary: str, labels: Mapping[str, str], value: float) -> str:
    """Returns a summary with its values.

    Args:
        summary: with places such as `{{ $labels.group }}` and `{{ $value | humanizeDuration }}`.
        labels: of the alarm; one that it has not stays empty.
        value: of the expression.
    """

    def place(found: re.Match[str]) -> str:
        if found[1]:
            return labels.get(found[1], "")
        return _WRITTEN[found[2] or ""](value)

    return _PLACE.sub(place, summary)


def _plain(value: float) -> str:
    return f"{value:.10g}"


def _duration(value: float) -> str:
    """Writes seconds as `2d 3h 4m 5s`, and less than one as `250ms`."""
    if not math.isfinite(value):
        return _plain(value)
    sign, left = ("-" if value < 0 else ""), abs(value)
    if 0 < left < 1:
        return f"{sign}{left * 1_000:.4g}ms"
    told: list[str] = []
    whole = int(left)
    if whole < 60:
        return f"{sign}{left:.4g}s"
    for seconds, unit in _STEPS:
        count, whole = divmod(whole, seconds)
        if told or count:
            told.append(f"{count}{unit}")
    return sign + " ".join(told)


def _short(value: float) -> str:
    """Writes a number with at most four digits and the letter of its thousands."""
    if not math.isfinite(value):
        return _plain(value)
    thousands = 0
    while abs(value) >= 1_000 and thousands < len(_LARGE) - 1:
        value, thousands = value / 1_000, thousands + 1
    return f"{value:.4g}{_LARGE[thousands]}"


def _percentage(value: float) -> str:
    return f"{value * 100:.4g}%"


_WRITTEN: Final[Mapping[str, Callable[[float], str]]] = {
    "": _plain,
    "humanize": _short,
    "humanizeDuration": _duration,
    "humanizePercentage": _percentage,
}
