"""
Amounts as people write them: `72h`, `10GiB`, `90%`.

An amount without a unit is refused: you may think of seconds when you write 10, and the program of
milliseconds. Pure.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

import typer

__all__ = ["Unit", "duration_ms", "duration_us", "percent", "size_bytes", "unit_of"]

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z%]*)\s*")
_US: Final = {"us": 1, "ms": 1_000}
_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_BYTES: Final = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_PERCENT: Final = {"%": 1}


def duration_ms(text: str) -> int:
    """Returns milliseconds: `500ms`, `90s`, `15m`, `72h`, `7d`, `2w`, `1.5h`, or 0.

    Raises:
        typer.BadParameter: it is no such thing; the sentence shows what is.
    """
    return _amount(text, _MS, "a time such as 500ms, 90s, 15m, 72h or 7d")


def duration_us(text: str) -> int:
    """Returns microseconds: `300us`, `3ms`, or 0.

    Raises:
        typer.BadParameter: it is no such thing; the sentence shows what is.
    """
    return _amount(text, _US, "a time such as 300us or 3ms")


def size_bytes(text: str) -> int:
    """Returns bytes: `64KiB`, `512MiB`, `10GiB`, `1.5TiB`, `10GB` (10^9), `4096B`, or 0.

    Raises:
        typer.BadParameter: it is no such thing; the sentence shows what is.
    """
    return _amount(text, _BYTES, "a size such as 64KiB, 512MiB, 10GiB or 10GB")


def percent(text: str) -> int:
    """Returns whole percent: `90%`.

    Raises:
        typer.BadParameter: it is no such thing; the sentence shows what is.
    """
    return _amount(text, _PERCENT, "a share such as 90%")


class Unit(NamedTuple):
    """What a kind of amount is called, and how it is read."""

    kind: str
    read: Callable[[str], int]
    units: Mapping[str, int]

    def write(self, number: int) -> str:
        """Returns an amount as text that `read` takes, in the largest unit that needs no fraction."""
        fitting = [(size, name) for name, size in self.units.items() if not number % size]
        size, name = max(fitting)
        return f"{number // size}{name}" if number else "0"


# The kind of amount, by a word in the setting's name.
_UNITS: Final = {
    "_us": Unit("TIME", duration_us, _US),
    "_ms": Unit("TIME", duration_ms, _MS),
    "_bytes": Unit("SIZE", size_bytes, _BYTES),
    "_percent": Unit("SHARE", percent, _PERCENT),
}


def unit_of(setting: str) -> Unit | None:
    """Returns the unit of a setting that its name says; None: it is no amount."""
    return next((unit for part, unit in _UNITS.items() if part in setting), None)


def _amount(text: str, units: dict[str, int], what: str) -> int:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not {what}")
    number, unit = Decimal(found[1]), found[2]
    if number == 0 and not unit:
        return 0
    if not unit:
        raise typer.BadParameter(f"{text!r} has no unit; write {what}")
    by_name = {name.lower(): factor for name, factor in units.items()}
    if unit.lower() not in by_name:
        raise typer.BadParameter(f"{unit!r} is none of {', '.join(units)}; write {what}")
    exact = number * by_name[unit.lower()]
    if exact != exact.to_integral_value():
        smallest = next(iter(units))
        raise typer.BadParameter(f"{text!r} is no whole number of {smallest}; write {what}")
    return int(exact)
