"""
What the declared folds of a projection ask of its events, for all who compute them in columns.

    projection ─▶ declared_folds ─▶ which events, which of their fields, what each column keeps

Not in columns, but event by event: folds that are functions, keys that are functions, columns that mix
sums with something else, and sums of floats, which depend on the order of adding.

Used by engines that fold many events at once, in SQL or in arrays. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import reduce
from typing import Any, Final

from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError
from headrace.projections.definition.expressions import Term
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.rules import SummaryRule
from headrace.projections.definition.shape import ColumnKind, RowField, kind_of
from headrace.projections.definition.summaries import DECIMAL_DIGITS_MAX, Operation

__all__ = ["EXACT", "DeclaredFolds", "NotInColumns", "declared_folds", "joined"]

# A sum that would be rounded is an error.
EXACT: Final = Context(prec=DECIMAL_DIGITS_MAX, traps=[Inexact, InvalidOperation])


class NotInColumns(DefinitionError):
    """A projection has to be folded event by event; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFolds:
    """The declared folds of a projection.

    Attributes:
        types: of the events that touch its rows, in the order in which they were asked about.
        rules: that these events meet, in order of definition.
        operations: what each column keeps; columns that no event changes are left out.
        start: the values of a new row, without its key.
    """

    types: tuple[type[DomainEvent], ...]
    rules: tuple[SummaryRule[Any], ...]
    operations: Mapping[str, Operation]
    start: Mapping[str, Any]
    _of_type: Mapping[type[DomainEvent], Sequence[Any]]

    def rules_for(self, event_type: type[DomainEvent]) -> list[SummaryRule[Any]]:
        """Returns the rules for events of exactly this type, in order of definition."""
        of_type = self._of_type[event_type]
        return [rule for rule in self.rules if rule in of_type]

    def paths_of(self, event_type: type[DomainEvent]) -> set[str]:
        """Returns the fields that are read of an event, and those of its context with `context.`."""
        read = (rule.fields_read for rule in self.rules_for(event_type))
        return set().union(*(each for each in read if each is not None))


def declared_folds(
    projection: Projection[Any], event_types: Iterable[type[DomainEvent]]
) -> DeclaredFolds:
    """Returns the declared folds of a projection.

    Args:
        projection: whose.
        event_types: all that the application has.

    Raises:
        NotInColumns: it has to be folded event by event.
    """
    declared = projection.summary_rules
    if declared is None:
        raise _refused(projection, "has folds that are Python functions")
    of_type = {each: found for each in event_types if (found := projection.declared_for(each))}
    # Those for a base class may have no event left that has no rules of its own.
    met = {rule for found in of_type.values() for rule in found}
    rules = tuple(rule for rule in declared if rule in met)
    if not rules:
        raise _refused(projection, "is touched by no event of the application")
    operations = _operations(projection, rules)
    for event_type, own in of_type.items():
        if event_type.message_personal:
            raise _refused(
                projection, f"reacts to {event_type.__name__}, which has personal fields"
            )
        _check_fields(projection, event_type, own)
    return DeclaredFolds(
        types=tuple(of_type),
        rules=rules,
        operations=operations,
        start=rules[0].start(),
        _of_type=of_type,
    )


def joined(operation: Operation, values: Iterable[Any]) -> Any:
    """Returns what a column keeps that began with the first value and met the others; None is left out.

    Raises:
        Inexact: a sum of decimals has more digits than are kept.
    """
    return reduce(_CHOOSERS[operation], [each for each in values if each is not None], None)


def _operations(
    projection: Projection[Any], rules: Sequence[SummaryRule[Any]]
) -> dict[str, Operation]:
    fields = {field.name: field for field in projection.shape.fields}
    found: dict[str, Operation] = {}
    for rule in rules:
        if not isinstance(rule.key, Term):
            raise _refused(projection, "has a key that is a Python function")
        for name, summary in rule.columns.items():
            if found.setdefault(name, summary.operation) is not summary.operation:
                both = f"{found[name].value} and {summary.operation.value}"
                raise _refused(projection, f"keeps two things in column {name}: {both}")
            if not _is_plain(fields[name]):
                raise _refused(projection, f"keeps values in column {name} that only Python makes")
            if summary.operation is Operation.SUM and fields[name].kind is ColumnKind.FLOAT:
                raise _refused(
                    projection,
                    f"adds up floats in column {name}, whose sum depends on the order of adding",
                )
    return found


def _is_plain(field: RowField) -> bool:
    made_here = field.kind in {ColumnKind.UUID, ColumnKind.BYTES, ColumnKind.JSON}
    return not made_here and field.enum is None


def _check_fields(
    projection: Projection[Any], event_type: type[DomainEvent], rules: Iterable[Any]
) -> None:
    """Refuses fields of events that have no column of their type in frames and files."""
    for path in sorted(set().union(*(rule.fields_read or () for rule in rules))):
        info = event_type.model_fields.get(path)
        if info is not None and kind_of(info.annotation)[0] is None:
            read = f"{event_type.__name__}.{path}"
            raise _refused(projection, f"reads {read}, whose values only Python makes")


def _refused(projection: Projection[Any], why: str) -> NotInColumns:
    return NotInColumns(f"projection {projection.name} {why}, so it is folded event by event")


def _added(one: Any, other: Any) -> Any:
    if one is None:
        return other
    return EXACT.add(one, other) if isinstance(one, Decimal) else one + other


_CHOOSERS: Final[Mapping[Operation, Callable[[Any, Any], Any]]] = {
    Operation.SUM: _added,
    Operation.FIRST: lambda one, other: other if one is None else one,
    Operation.MIN: lambda one, other: other if one is None or other < one else one,
    Operation.MAX: lambda one, other: other if one is None or other > one else one,
}
