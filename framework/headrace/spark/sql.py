"""
Terms as Spark SQL, over the columns that `event_reader` makes.

Values stand in the plain form of `decode`: a decimal as its digits in text, a moment and a day as
numbers. So nothing here depends on the session's time zone. Used by `native`; uses the terms of a
projection. Pure; it must not know a session.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

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
from headrace.spark.executor.decode import DECIMAL_PLACES_MAX, EventField, to_plain
from headrace.spark.executor.event_reader import column_of, context_column

__all__ = ["Sql", "number", "to_sql"]

_NUMBER: Final = f"decimal(38,{DECIMAL_PLACES_MAX})"
_DAY_MICROSECONDS: Final = "cast('86400000000' as bigint)"
_LITERAL_TYPES: Final = {
    ColumnKind.INTEGER: "bigint",
    ColumnKind.FLOAT: "double",
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.DECIMAL: "string",
    ColumnKind.DATE: "int",
    ColumnKind.TIMESTAMP: "bigint",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    """An expression and what it yields."""

    text: str
    kind: ColumnKind


def number(text: str) -> str:
    """Returns the digits of a decimal as a number that can be added and compared."""
    return f"cast({text} as {_NUMBER})"


def to_sql(term: Term, event_type: type[DomainEvent]) -> Sql:
    """Returns a term as an expression over the row of an event of a type."""
    kind = bind(term, event_type).kind
    match term:
        case Field(path) if path.startswith(CONTEXT):
            return Sql(text=f"`{context_column(path.removeprefix(CONTEXT))}`", kind=kind)
        case Field(path):
            return Sql(text=f"`{column_of(EventField(name=path, kind=kind))}`", kind=kind)
        case Literal(value):
            return Sql(text=_literal(value, kind), kind=kind)
        case Negated(inner):
            return Sql(text=_negated(to_sql(inner, event_type)), kind=kind)
        case Day(inner):
            return Sql(text=_day(to_sql(inner, event_type)), kind=kind)
        case Compared(sign, left, right):
            text = _compared(sign, to_sql(left, event_type), to_sql(right, event_type))
            return Sql(text=text, kind=kind)
        case Connected(left, right, deciding):
            word = "or" if deciding else "and"
            a, b = to_sql(left, event_type).text, to_sql(right, event_type).text
            return Sql(text=f"({a} {word} {b})", kind=kind)
        case Inverted(inner):
            return Sql(text=f"(not {to_sql(inner, event_type).text})", kind=kind)
        case Missing(inner):
            return Sql(text=f"({to_sql(inner, event_type).text} is null)", kind=kind)
        case KeyText(parts):
            return Sql(text=_key_text([to_sql(part, event_type) for part in parts]), kind=kind)
    raise AssertionError(f"{term!r} was bound and has no SQL")


def _literal(value: Any, kind: ColumnKind) -> str:
    if kind is ColumnKind.TEXT:
        # No quoting rule to depend on, of which Spark has two.
        return f"cast(X'{value.encode().hex()}' as string)"
    return f"cast('{to_plain(kind, value)}' as {_LITERAL_TYPES[kind]})"


def _negated(inner: Sql) -> str:
    if inner.kind is not ColumnKind.DECIMAL:
        return f"(- {inner.text})"
    text = inner.text
    return f"if(startswith({text}, '-'), substring({text}, 2), concat('-', {text}))"


def _day(inner: Sql) -> str:
    days = inner.text
    if inner.kind is ColumnKind.TIMESTAMP:
        # Down to the day's begin first, also before 1970, so that the division has no rest.
        begin = f"({days} - pmod({days}, {_DAY_MICROSECONDS}))"
        days = f"cast({begin} div {_DAY_MICROSECONDS} as int)"
    return f"cast(date_from_unix_date({days}) as string)"


def _key_text(parts: Sequence[Sql]) -> str:
    """As `key_text` writes it; null where a part is."""
    if len(parts) == 1:
        return f"cast({parts[0].text} as string)"
    percent, comma = _literal("%", ColumnKind.TEXT), _literal(",", ColumnKind.TEXT)
    texts = (
        f"replace(replace(cast({part.text} as string), {percent}, {_literal('%25', ColumnKind.TEXT)}),"
        f" {comma}, {_literal('%2C', ColumnKind.TEXT)})"
        for part in parts
    )
    return f"concat({f', {comma}, '.join(texts)})"


def _compared(sign: str, left: Sql, right: Sql) -> str:
    a, b = left.text, right.text
    if ColumnKind.DECIMAL in {left.kind, right.kind}:
        a, b = number(a), number(b)
    return f"({a} {sign} {b})"
