"""
Terms as columns of Arrow, over the typed events of an exported file.

A decimal is a number with eighteen places; how many of them it was written with stands in a column of its own:
1.50 and 1.5 are equal, and a row keeps the one that it was given. Used by `touches`; uses the terms
of a projection. Pure.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.domain.message import DomainEvent
from headrace.projections.definition.expressions import (
    CONTEXT,
    Compared,
    Connected,
    Day,
    Field,
    Inverted,
    KeyText,
    Literal,
    Missing,
    Negated,
    Term,
    bind,
)
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.executor.decode import DECIMAL_PLACES_MAX, to_plain

__all__ = ["COLUMN_TYPES", "Columns", "Values", "evaluate", "spread"]

_NUMBER: Final = pa.decimal128(38, DECIMAL_PLACES_MAX)
# Text by 64-bit offsets, so that many rows of it are one array.
COLUMN_TYPES: Final = {
    ColumnKind.TEXT: pa.large_string(),
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.FLOAT: pa.float64(),
    ColumnKind.BOOLEAN: pa.bool_(),
    ColumnKind.DECIMAL: _NUMBER,
    ColumnKind.DATE: pa.date32(),
    ColumnKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}
_COMPARISONS: Final = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Columns(Protocol):
    """Typed events of one type."""

    def field(self, path: str) -> pa.Array:
        """Returns a field of the events, or with `context.` one of their contexts."""
        ...

    def places(self, name: str) -> pa.Array:
        """Returns how many places a decimal field was written with."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a term yields.

    Attributes:
        kind: of the values.
        values: one per event, or one for all.
        places: of decimals, how many each was written with.
    """

    kind: ColumnKind
    values: Any
    places: Any = None


def spread(value: Any, length: int) -> pa.Array:
    """Returns a value per event where there is one for all."""
    return pa.repeat(value, length) if isinstance(value, pa.Scalar) else value


def evaluate(term: Term, event_type: type[DomainEvent], events: Columns) -> Values:
    """Returns what a term yields of events of a type.

    Raises:
        ProjectionError: a literal has no place in a column.
        pyarrow.ArrowInvalid, OverflowError: a number leaves its 64 bits.
    """
    kind = bind(term, event_type).kind
    match term:
        case Field(path):
            values = events.field(path).cast(COLUMN_TYPES[kind])
            is_decimal = kind is ColumnKind.DECIMAL and not path.startswith(CONTEXT)
            return Values(
                kind=kind, values=values, places=events.places(path) if is_decimal else None
            )
        case Literal(value):
            return _literal(value, kind)
        case Negated(inner):
            found = evaluate(inner, event_type, events)
            negate = pc.negate_checked if kind is ColumnKind.INTEGER else pc.negate
            return Values(kind=kind, values=negate(found.values), places=found.places)
        case Day(inner):
            return Values(kind=kind, values=_day(evaluate(inner, event_type, events)))
        case Compared(sign, left, right):
            one, other = (evaluate(each, event_type, events) for each in (left, right))
            return Values(kind=kind, values=_compared(sign, one, other))
        case Connected(left, right, deciding):
            a, b = (evaluate(each, event_type, events).values for each in (left, right))
            return Values(kind=kind, values=(pc.or_kleene if deciding else pc.and_kleene)(a, b))
        case Inverted(inner):
            return Values(kind=kind, values=pc.invert(evaluate(inner, event_type, events).values))
        case Missing(inner):
            return Values(kind=kind, values=pc.is_null(evaluate(inner, event_type, events).values))
        case KeyText(parts):
            texts = [evaluate(part, event_type, events).values for part in parts]
            return Values(kind=kind, values=_key_text(texts))
    raise AssertionError(f"{term!r} was bound and has no columns")


def _literal(value: Any, kind: ColumnKind) -> Values:
    plain = to_plain(kind, value)
    if kind is not ColumnKind.DECIMAL:
        return Values(kind=kind, values=pa.scalar(plain, COLUMN_TYPES[kind]))
    places = pa.scalar(len(plain.partition(".")[2]), pa.int8())
    return Values(kind=kind, values=pa.scalar(plain).cast(_NUMBER), places=places)


def _day(moment: Values) -> Any:
    days = moment.values
    if moment.kind is ColumnKind.TIMESTAMP:
        # Down to the day's begin first, also before 1970, so that nothing is cut off.
        days = pc.floor_temporal(days, unit="day").cast(pa.date32())
    return days.cast(pa.string()).cast(COLUMN_TYPES[ColumnKind.TEXT])


def _key_text(parts: list[Any]) -> Any:
    """As `key_text` writes it; null where a part is."""
    texts = [part.cast(COLUMN_TYPES[ColumnKind.TEXT]) for part in parts]
    if len(texts) == 1:
        return texts[0]
    for raw, written in (("%", "%25"), (",", "%2C")):
        texts = [pc.replace_substring(each, pattern=raw, replacement=written) for each in texts]
    return pc.binary_join_element_wise(*texts, pa.scalar(",", pa.large_string()))


def _compared(sign: str, one: Values, other: Values) -> Any:
    a, b = one.values, other.values
    if ColumnKind.DECIMAL in {one.kind, other.kind}:
        a, b = a.cast(_NUMBER), b.cast(_NUMBER)
    return _COMPARISONS[sign](a, b)
