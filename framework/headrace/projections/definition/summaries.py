"""
Summaries: declare what a column keeps of its row's events, instead of writing a fold.

    count()            the number of events
    sum_("amount")     the sum of a field; None adds nothing
    last("balance")    the field of the latest event, also if it is None
    first("owner")     the field of the first event where it is not None
    min_, max_         the smallest and the largest value; None is left out

This module computes them event by event for live rows; Spark computes the same over all events at once.
Used by `Projection.on` and the rules of a projection. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Inexact, InvalidOperation, Overflow
from enum import Enum
from typing import Any, Final, cast

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.projections.definition.column_types import ColumnKind, column_type
from headrace.projections.definition.expressions import Access, Bound, Literal, Term, as_term, bind
from headrace.projections.definition.shape import RowField

__all__ = [
    "DECIMAL_DIGITS_MAX",
    "Operation",
    "Step",
    "Summary",
    "compile_summary",
    "count",
    "first",
    "last",
    "max_",
    "min_",
    "sum_",
]

# Given the column's value, an event and its context, returns the column's new value.
Step = Callable[[Any, Any, EventContext], Any]

# Spark's decimals have 38 digits; a longer sum would be different there.
DECIMAL_DIGITS_MAX: Final = 38
_EXACT: Final = Context(prec=DECIMAL_DIGITS_MAX, traps=[Inexact, InvalidOperation, Overflow])
_ADDABLE: Final = frozenset({ColumnKind.INTEGER, ColumnKind.FLOAT, ColumnKind.DECIMAL})


class Operation(Enum):
    """What becomes of the values."""

    SUM = "sum_"
    FIRST = "first"
    LAST = "last"
    MIN = "min_"
    MAX = "max_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a column keeps.

    Attributes:
        operation: what becomes of the values.
        term: the value of one event.
    """

    operation: Operation
    term: Term

    def __repr__(self) -> str:
        return f"{self.operation.value}({self.term!r})"


def count() -> Summary:
    """Counts events."""
    return Summary(operation=Operation.SUM, term=Literal(1))


def sum_(what: str | Term) -> Summary:
    """Adds up a number; None adds nothing."""
    return Summary(operation=Operation.SUM, term=as_term(what))


def first(what: str | Term) -> Summary:
    """Keeps the first value that is not None."""
    return Summary(operation=Operation.FIRST, term=as_term(what))


def last(what: str | Term) -> Summary:
    """Keeps the latest event's value, even None."""
    return Summary(operation=Operation.LAST, term=as_term(what))


def min_(what: str | Term) -> Summary:
    """Keeps the smallest value; text by code point."""
    return Summary(operation=Operation.MIN, term=as_term(what))


def max_(what: str | Term) -> Summary:
    """Keeps the largest value; text by code point."""
    return Summary(operation=Operation.MAX, term=as_term(what))


def compile_summary(
    summary: Summary,
    field: RowField,
    event_type: type[DomainEvent],
    access: Access | None = None,
) -> Step:
    """Returns what an event of a type makes of a column's value; `access` as in `bind`.

    Raises:
        DefinitionError: the column cannot keep it; the sentence says why.
    """
    bound = bind(summary.term, event_type, access)
    _check(summary, field, bound)
    read = bound.read if field.enum is None else _members(field.enum, bound.read)
    if summary.operation is Operation.LAST:
        return lambda _before, event, context: read(event, context)
    if _always_adds(summary, field):
        amount = read(None, cast("EventContext", None))
        return lambda before, _event, _context: before + amount
    choose = _CHOOSERS[summary.operation]
    if summary.operation is Operation.SUM and field.kind is ColumnKind.DECIMAL:
        choose = _EXACT.add

    def step(before: Any, event: Any, context: EventContext) -> Any:
        value = read(event, context)
        if value is None or before is None:
            return before if value is None else value
        return choose(before, value)

    return step


def _check(summary: Summary, field: RowField, bound: Bound) -> None:
    operation = summary.operation
    if bound.kind is not field.kind:
        raise DefinitionError(
            f"column {field.name} is {field.kind.value} and {summary!r} is {bound.kind.value}"
        )
    _check_values(summary, field, bound)
    if operation is Operation.SUM and field.kind not in _ADDABLE:
        raise DefinitionError(f"column {field.name} is {field.kind.value}, which has no sum")
    if operation is Operation.LAST and bound.optional and not field.optional:
        raise DefinitionError(
            f"column {field.name}: {summary!r} may be None and the column may not"
        )
    if operation not in {Operation.SUM, Operation.LAST} and not field.optional:
        raise DefinitionError(
            f"column {field.name}: {summary!r} needs a column that may be None, for rows without"
            f" such an event; annotate it as {field.kind.value} or None"
        )


def _check_values(summary: Summary, field: RowField, bound: Bound) -> None:
    """Refuses what has the right kind and yields values that the column's type does not take."""
    operation = summary.operation
    if field.enum is not None and bound.of is not field.enum:
        raise DefinitionError(
            f"column {field.name} is {field.enum.__name__}, and {summary!r} is not"
        )
    if field.kind is ColumnKind.JSON and column_type(bound.of).structure != field.structure:
        raise DefinitionError(
            f"column {field.name} and {summary!r} are both kept as JSON, and are of other types"
        )
    if field.choices and not (bound.choices and bound.choices <= field.choices):
        raise DefinitionError(
            f"column {field.name} takes {', '.join(map(repr, sorted(field.choices)))}, and {summary!r}"
            " may be another value"
        )
    odd = field.enum is not None or field.choices or field.kind is ColumnKind.JSON
    if odd and operation not in {Operation.FIRST, Operation.LAST}:
        raise DefinitionError(
            f"column {field.name}: its values have no order and no sum; use first or last"
        )


def _members(enum: type[Enum], read: Any) -> Any:
    members = enum._value2member_map_
    return lambda event, context: members.get(read(event, context))


def _always_adds(summary: Summary, field: RowField) -> bool:
    """Whether it is a count, or something like it, in a column that is never None."""
    return (
        summary.operation is Operation.SUM
        and isinstance(summary.term, Literal)
        and field.kind is not ColumnKind.DECIMAL
        and not field.optional
    )


def _add(before: Any, value: Any) -> Any:
    return before + value


def _keep(before: Any, _value: Any) -> Any:
    return before


def _smaller(before: Any, value: Any) -> Any:
    return value if value < before else before


def _larger(before: Any, value: Any) -> Any:
    return value if value > before else before


_CHOOSERS: Final[Mapping[Operation, Callable[[Any, Any], Any]]] = {
    Operation.SUM: _add,
    Operation.FIRST: _keep,
    Operation.MIN: _smaller,
    Operation.MAX: _larger,
}
