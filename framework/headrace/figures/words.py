"""
Times, rates and sizes in words, and wire structs with the names of their fields.

    1 769 868 000 250  ─▶  2026-01-31 14:00:00.250
    3 221 225 472      ─▶  3.0 GiB

Used by the command line and the console. Pure.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # the help text must not wait for the queue
    from headrace_mq.protocol.administration import Traffic

__all__ = ["age", "named", "per_second", "size", "time_ms", "when"]

_KIB: Final = 1 << 10
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_PER_S: Final = 1_000
# What `datetime` holds, in ms since 1970: the years 1 to 9999; a longer text is costly to turn into a number.
_YEARS: Final = (-62_135_596_800_000, 253_402_300_799_999)
_DIGITS: Final = 20


def time_ms(text: str) -> int:
    """Reads a point in time as people and programs write it: ISO 8601, or ms since 1970 UTC.

    Args:
        text: a time without a zone is in UTC.

    Raises:
        ValueError: it is no time, or not of the years 1 to 9999.
    """
    if text.isdecimal():
        if len(text) > _DIGITS or int(text) > _YEARS[1]:
            raise ValueError(f"{text[:40]!r} is after the year 9999; write milliseconds since 1970")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is no time; write 2026-01-31T14:00:00.250Z or milliseconds since 1970"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    found = round(moment.timestamp() * _PER_S)
    if not _YEARS[0] <= found <= _YEARS[1]:
        raise ValueError(f"{text!r} is not between the years 1 and 9999 in UTC")
    return found


def when(time_ms: int) -> str:
    """Writes a time for people, in UTC; empty for none."""
    if not time_ms:
        return ""
    try:
        moment = datetime.fromtimestamp(time_ms / _PER_S, UTC)
    except (OverflowError, ValueError, OSError):
        # A producer may say what it likes.
        return f"{time_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def age(now_ms: int, stored_at_ms: int) -> str:
    """Writes how long a message has waited; empty for none."""
    return f"{max(0, now_ms - stored_at_ms) / _PER_S:,.1f} s" if stored_at_ms else ""


def per_second(traffic: "Traffic") -> tuple[int, int]:
    """Returns messages and bytes per second over the last ten, at least 1 where there were any."""
    return -(-traffic.messages_10s // 10), -(-traffic.bytes_10s // 10)


def size(value: float) -> str:
    """Writes a number of bytes."""
    for unit in _UNITS[:-1]:
        if abs(value) < _KIB:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= _KIB
    return f"{value:,.1f} {_UNITS[-1]}"


def named(value: Any) -> Any:
    """Returns a value with mappings in place of structs and named tuples.

    Bodies are arrays on the wire; people and programs want names.
    """
    import msgspec

    if isinstance(value, msgspec.Struct):
        return {name: named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: named(held) for name, held in value.items()}
    if hasattr(value, "_asdict"):
        return {name: named(held) for name, held in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [named(held) for held in value]
    return value
