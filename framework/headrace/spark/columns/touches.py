"""
Typed events to contributions: which rows they touch, and what they bring to each column.

    events of one type ─▶ per rule: does it hold? which key? ─▶ values per column, with their order

Used by `fold`, which reads files; uses `terms`. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.domain.message import DomainEvent
from headrace.errors import ProjectionError
from headrace.projections.definition.declared import DeclaredFolds, declared_folds
from headrace.projections.definition.expressions import CONTEXT, Term
from headrace.projections.definition.key_form import KEY_CHARACTERS_MAX
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.rules import SummaryRule
from headrace.projections.definition.shape import ColumnKind
from headrace.projections.definition.summaries import Operation
from headrace.spark.analysis.export import ORDER, PLACES
from headrace.spark.columns.groups import Brought, ColumnAim, Groups, Numbers
from headrace.spark.columns.terms import Values, evaluate, spread
from headrace.spark.executor.decode import fields_of

__all__ = ["ColumnPlan", "EventTable", "plan_columns"]

# How an event's place among all becomes two numbers of 64 bits: its part and moment, its queue and turn.
_MOMENT_BITS: Final = 44
_TURN_BITS: Final = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """A projection as columns.

    Attributes:
        projection: whose rows are made.
        folds: what they are made of.
        aims: what its columns keep.
    """

    projection: Projection[Any]
    folds: DeclaredFolds
    aims: tuple[ColumnAim, ...]

    @property
    def by_topic(self) -> bool:
        """Whether the order of events in the topic matters; else that of each aggregate is enough."""
        ordered = any(aim.ordered for aim in self.aims)
        return ordered and not self.projection.keyed_by_aggregate

    def paths(self, event_type: type[DomainEvent]) -> list[str]:
        """Returns what is read of a type's files: columns, and members of columns after a point."""
        paths = self.folds.paths_of(event_type)
        decimals = {f"{PLACES}.{each}" for each in self.decimals(event_type)}
        order = {ORDER} if self.by_topic else {f"{CONTEXT}version", f"{CONTEXT}sequence"}
        ordered = any(aim.ordered for aim in self.aims)
        return sorted(paths | decimals | (order if ordered else set()))

    def decimals(self, event_type: type[DomainEvent]) -> set[str]:
        """Returns the fields that are read of a type and are decimals."""
        kinds = {each.name: each.kind for each in fields_of(event_type)}
        paths = self.folds.paths_of(event_type)
        return {name for name in paths if kinds.get(name) is ColumnKind.DECIMAL}

    def touches(self, event_type: type[DomainEvent], events: "EventTable") -> Iterator[Groups]:
        """Yields what events contribute, for each rule that they meet.

        Raises:
            ProjectionError: a key is too long.
        """
        for rule in self.folds.rules_for(event_type):
            yield from self._touches(rule, event_type, events)

    def _touches(
        self, rule: SummaryRule[Any], event_type: type[DomainEvent], events: "EventTable"
    ) -> Iterator[Groups]:
        length = len(events)
        assert isinstance(rule.key, Term), "others are no columns"
        keys = spread(evaluate(rule.key, event_type, events).values, length)
        touched = pc.is_valid(keys)
        if rule.where is not None:
            holds = spread(evaluate(rule.where, event_type, events).values, length)
            touched = pc.and_(touched, pc.fill_null(holds, fill_value=False))
        rows = (
            None
            if pc.all(touched).as_py()
            else np.flatnonzero(touched.to_numpy(zero_copy_only=False))
        )
        keys = keys if rows is None else keys.take(pa.array(rows))
        if not len(keys):
            return
        self._check_keys(keys)
        order: tuple[Numbers, Numbers] | None = None
        if any(aim.ordered for aim in self.aims if aim.name in rule.columns):
            place, places = self.folds.rules.index(rule), len(self.folds.rules)
            order = events.order(place, places, by_topic=self.by_topic)
            if rows is not None:
                order = (order[0][rows], order[1][rows])
        kept: dict[str, Brought] = {}
        for aim in self.aims:
            summary = rule.columns.get(aim.name)
            if summary is not None:
                brought = evaluate(summary.term, event_type, events)
                kept[aim.name] = _kept(aim, brought, rows, order, len(keys))
        yield Groups(keys=keys, kept=kept)

    def _check_keys(self, keys: pa.Array) -> None:
        lengths = pc.utf8_length(keys)
        longest = pc.max(lengths).as_py()
        if longest > KEY_CHARACTERS_MAX:
            key = keys[pc.index(lengths, longest).as_py()].as_py()
            try:
                self.projection.key_form.fitting(key)
            except ValueError as error:
                raise ProjectionError(f"projection {self.projection.name}: {error}") from error


class EventTable:
    """Some events of one type, of one queue and one part, in the order of the queue.

    Args:
        columns: of the file: those that `ColumnPlan.paths` names.
        queue_id: of the queue.
        part: number of the exported part.
    """

    def __init__(self, columns: pa.Table, *, queue_id: int, part: int) -> None:
        self._columns = {name: columns[name].combine_chunks() for name in columns.column_names}
        self._length: int = columns.num_rows
        self._queue_id, self._part = queue_id, part

    def __len__(self) -> int:
        return self._length

    def field(self, path: str) -> pa.Array:
        """Returns a field of the events, or with `context.` one of their contexts."""
        name, _, member = path.partition(".")
        column = self._columns[name]
        return column.field(member) if member else column

    def places(self, name: str) -> pa.Array:
        """Returns how many places a decimal field was written with."""
        return self._columns[PLACES].field(name)

    def order(self, rule: int, rules: int, *, by_topic: bool) -> tuple[Numbers, Numbers]:
        """Returns where each event stands, and a rule of it, as two numbers.

        Args:
            rule: its place among the rules.
            rules: how many there are.
            by_topic: among all events; else among those of its aggregate.
        """
        if not by_topic:
            version, sequence = (_numbers(self.field(CONTEXT + n)) for n in ("version", "sequence"))
            return version, sequence * rules + rule
        moment, turn = (_numbers(self.field(f"{ORDER}.{name}")) for name in ("moment", "turn"))
        # What a part holds was stored before what the next one holds, also where a clock was set back.
        major = moment | (self._part << _MOMENT_BITS)
        return major, (turn * rules + rule) | (self._queue_id << _TURN_BITS)


def plan_columns(
    projection: Projection[Any], event_types: Iterable[type[DomainEvent]]
) -> ColumnPlan:
    """Returns a projection as columns.

    Args:
        projection: which one.
        event_types: all that the application has.

    Raises:
        NotInColumns: it has to be folded event by event.
    """
    folds = declared_folds(projection, event_types)
    aims = tuple(
        ColumnAim(name=field.name, kind=field.kind, operation=folds.operations[field.name])
        for field in projection.shape.fields
        if field.name in folds.operations
    )
    return ColumnPlan(projection=projection, folds=folds, aims=aims)


def _kept(
    aim: ColumnAim,
    brought: Values,
    rows: Numbers | None,
    order: tuple[Numbers, Numbers] | None,
    length: int,
) -> Brought:
    values, places = (
        _at(each, rows, length) if each is not None else None
        for each in (brought.values, brought.places)
    )
    assert values is not None, "every term yields something"
    has = np.ones(length, np.bool_)
    if aim.operation is not Operation.LAST:
        has = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return Brought(
        values=values,
        has=has,
        places=None if places is None else _numbers(pc.fill_null(places, 0)),
        order=order if aim.ordered else None,
    )


def _at(value: Any, rows: Numbers | None, length: int) -> pa.Array:
    if isinstance(value, pa.Scalar):
        return spread(value, length)
    return value if rows is None else value.take(pa.array(rows))


def _numbers(column: pa.Array) -> Numbers:
    numbers: Numbers = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
