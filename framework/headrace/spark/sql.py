"""
Terms as Spark SQL, over the columns that `event_reader` makes.

Values stand in a plain form: a moment and a day as numbers, as in `decode`, and a decimal as a number
next to a count of its places. So nothing here depends on the session's time zone, and an exported file,
which has decimals so, needs no text. Used by `native` and `typed_files`; uses the terms of a projection.
Pure; it must not know a session.
"""

from collections.abc import Mapping, Sequence
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
from headrace.spark.executor.event_reader import Reading, column_of, context_column

__all__ = ["SPARK_TYPES", "Sql", "number", "places_column", "plain_columns", "to_sql"]

_NUMBER: Final = f"decimal(38,{DECIMAL_PLACES_MAX})"
# Of the columns of files and lake tables; a query has moments and days as whole numbers instead.
# A field that has no kind, such as a list, is text in JSON.
SPARK_TYPES: Final[Mapping[ColumnKind | None, str]] = {
    None: "string",
    ColumnKind.TEXT: "string",
    ColumnKind.INTEGER: "bigint",
    ColumnKind.FLOAT: "double",
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.DECIMAL: _NUMBER,
    ColumnKind.DATE: "date",
    ColumnKind.TIMESTAMP: "timestamp",
}
_DAY_MICROSECONDS: Final = "cast('86400000000' as bigint)"
_LITERAL_TYPES: Final = {
    ColumnKind.INTEGER: "bigint",
    ColumnKind.FLOAT: "double",
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.DECIMAL: _NUMBER,
    ColumnKind.DATE: "int",
    ColumnKind.TIMESTAMP: "bigint",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    """An expression and what it yields; of a decimal also how many places it was written with."""

    text: str
    kind: ColumnKind
    places: str = ""


def number(text: str) -> str:
    """Returns an expression as a number that can be added and compared with decimals."""
    return f"cast({text} as {_NUMBER})"


def places_column(name: str) -> str:
    """Returns the name of the column that holds how many places the decimals of a column have."""
    return f"p_{name}"


def plain_columns(reading: Reading) -> list[str]:
    """Returns the expressions that make the columns of a reading plain: its decimals are text."""
    decimals = {name for name, (_, kind) in reading.columns.items() if kind is ColumnKind.DECIMAL}
    columns: list[str] = []
    for each in reading.arrow_schema:
        column = f"`{each.name}`"
        if each.name not in decimals:
            columns.append(column)
            continue
        columns.append(f"{number(column)} as {column}")
        columns.append(f"length(split_part({column}, '.', 2)) as `{places_column(each.name)}`")
    return columns


def to_sql(term: Term, event_type: type[DomainEvent]) -> Sql:
    """Returns a term as an expression over the row of an event of a type."""
    kind = bind(term, event_type).kind
    match term:
        case Field(path) if path.startswith(CONTEXT):
            return Sql(text=f"`{context_column(path.removeprefix(CONTEXT))}`", kind=kind)
        case Field(path):
            column = column_of(EventField(name=path, kind=kind))
            places = f"`{places_column(column)}`" if kind is ColumnKind.DECIMAL else ""
            return Sql(text=f"`{column}`", kind=kind, places=places)
        case Literal(value):
            return _literal(value, kind)
        case Negated(inner):
            found = to_sql(inner, event_type)
            return Sql(text=f"(- {found.text})", kind=kind, places=found.places)
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
            texts = [f"cast({to_sql(part, event_type).text} as string)" for part in parts]
            return Sql(text=_joined(texts), kind=kind)
    raise AssertionError(f"{term!r} was bound and has no SQL")


def _literal(value: Any, kind: ColumnKind) -> Sql:
    if kind is ColumnKind.TEXT:
        return Sql(text=_quoted(value), kind=kind)
    plain = to_plain(kind, value)
    text = f"cast('{plain}' as {_LITERAL_TYPES[kind]})"
    places = str(len(plain.partition(".")[2])) if kind is ColumnKind.DECIMAL else ""
    return Sql(text=text, kind=kind, places=places)


def _day(inner: Sql) -> str:
    days = inner.text
    if inner.kind is ColumnKind.TIMESTAMP:
        # Down to the day's begin first, also before 1970, so that the division has no rest.
        begin = f"({days} - pmod({days}, {_DAY_MICROSECONDS}))"
        days = f"cast({begin} div {_DAY_MICROSECONDS} as int)"
    return f"cast(date_from_unix_date({days}) as string)"


def _quoted(value: str) -> str:
    # No quoting rule to depend on, of which Spark has two.
    return f"cast(X'{value.encode().hex()}' as string)"


def _joined(texts: Sequence[str]) -> str:
    """Returns the text of a key of these parts, as `key_text` writes it; null where a part is."""
    if len(texts) == 1:
        return texts[0]
    percent, comma = _quoted("%"), _quoted(",")
    escaped = (
        f"replace(replace({text}, {percent}, {_quoted('%25')}), {comma}, {_quoted('%2C')})"
        for text in texts
    )
    return f"concat({f', {comma}, '.join(escaped)})"


def _compared(sign: str, left: Sql, right: Sql) -> str:
    a, b = left.text, right.text
    if ColumnKind.DECIMAL in {left.kind, right.kind}:
        a, b = number(a), number(b)
    return f"({a} {sign} {b})"
