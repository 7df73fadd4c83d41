"""
A projection of declared folds as one Spark SQL aggregation; no Python per event but the reading.

    read_typed ─▶ the rows that each event touches ─▶ group by key, aggregate ─▶ finish_rows

What the gate found travels along as groups of its own. A group yields per column the sums, the
smallest and largest, the first and last values of its events; `finish_rows` adds what a row begins
with and makes the records of `executor.fold`, so that all that follows is the same as for folds in Python.

What `declared_folds` refuses is not here, but folded in Python.

Used by `job`, which has a session; uses the rules of a projection. Pure, but for `finish_rows`,
which runs on executors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from headrace.errors import ProjectionError
from headrace.projections.definition.declared import (
    EXACT,
    DeclaredFolds,
    NotInColumns,
    declared_folds,
    joined,
)
from headrace.projections.definition.expressions import CONTEXT, Term
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.rules import SummaryRule
from headrace.projections.definition.shape import ColumnKind
from headrace.projections.definition.summaries import Operation
from headrace.serialization import JsonSerializer
from headrace.spark.executor.decode import DECIMAL_PLACES_MAX, EventField, fields_of
from headrace.spark.executor.event_reader import EVENT, ChosenType, Reading
from headrace.spark.executor.fold import MISSING, ROW, Batches, Record, batched
from headrace.spark.executor.plan import FoldPlan, load_application
from headrace.spark.rows import RowCodec
from headrace.spark.sql import Sql, to_sql

__all__ = ["ColumnResult", "NativeFold", "TypedFiles", "finish_rows", "plan_native"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
# By places, what a decimal with so many of them is a multiple of.
_UNITS: Final = [Decimal(1).scaleb(-places) for places in range(DECIMAL_PLACES_MAX + 1)]
# Events of an aggregate in order: its version, and the place among the events of one command, of which
# there is room for a million.
_VERSION_ORDER: Final = "(shiftleft(c_version, 20) + c_sequence)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnResult:
    """How a column of the read model comes from what a group yields.

    Attributes:
        name: of the column.
        kind: of the column.
        start: what a row begins with.
        operation: what the column keeps of events; None: what it began with.
        parts: per part of the column the names of its aggregates: the value; of a decimal also how many
            places it has; of a last value also how many events there were.
    """

    name: str
    kind: ColumnKind
    start: Any
    operation: Operation | None = None
    parts: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedFiles:
    """What a query reads of an export.

    Attributes:
        events: paths by the place of their type in the reading; each executor has them.
        versions: paths of files with the last versions of aggregates.
        parts: the number of the last part.
    """

    events: Mapping[int, tuple[str, ...]]
    versions: tuple[str, ...]
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFold:
    """A projection as SQL.

    Attributes:
        reading: what to read of the events.
        keys: expressions for the keys that an event may touch.
        touches: a condition over an event and `place`, the place of a key among them.
        values: by name, expressions over such a row; null where an event has no part in them.
        aggregates: by name, expressions over the values of a group.
        columns: of the read model, in order.
        files: that hold what is before the topic's slices; None: nothing is.
    """

    reading: Reading
    keys: tuple[str, ...]
    touches: str
    values: Mapping[str, str]
    aggregates: Mapping[str, str]
    columns: tuple[ColumnResult, ...]
    files: TypedFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """What one rule does with events of some types, between which SQL sees no difference."""

    types: frozenset[int]
    place: int
    key: str
    where: str
    values: Mapping[str, Sql]

    @property
    def condition(self) -> str:
        types = ", ".join(map(str, sorted(self.types)))
        return f"(place = {self.place} and type in ({types}) and {self.where})"

    def excludes(self, other: "_Branch") -> bool:
        """Whether no row is in both."""
        return self.place != other.place or self.types.isdisjoint(other.types)


def plan_native(
    serializer: JsonSerializer, projection: Projection[Any], *, files: TypedFiles | None = None
) -> NativeFold | None:
    """Returns a projection as SQL; None where it has to be folded in Python.

    Args:
        serializer: of the application.
        projection: which one.
        files: to be read, too. Then the events of an aggregate have the order of their versions: turns
            of files and of queues cannot be compared.
    """
    try:
        folds = declared_folds(projection, serializer.events.types.values())
    except NotInColumns:
        return None
    keys = list(dict.fromkeys(repr(rule.key) for rule in folds.rules))
    branches = [branch for rule in folds.rules for branch in _branches(folds, rule, keys)]
    by_version = files is not None and projection.keyed_by_aggregate
    query = _Query(by_aggregate=projection.keyed_by_aggregate, by_version=by_version)
    columns: list[ColumnResult] = []
    start = projection.shape.to_stored(dict(folds.start))
    for field in projection.shape.fields:
        kept = ColumnResult(name=field.name, kind=field.kind, start=start.get(field.name))
        operation = folds.operations.get(field.name)
        of = [branch for branch in branches if field.name in branch.values]
        if operation is not None and of:
            kept = replace(kept, operation=operation, parts=tuple(query.add(kept, operation, of)))
        columns.append(kept)
    return NativeFold(
        reading=_reading(folds, {"version", "sequence"} if by_version else set()),
        keys=tuple(_key(branches, place) for place in range(len(keys))),
        touches=" or ".join(branch.condition for branch in branches),
        values=query.values,
        aggregates=query.aggregates,
        columns=tuple(columns),
        files=files,
    )


def finish_rows(plan: FoldPlan, native: NativeFold, batches: Batches) -> Batches:
    """Makes records of groups.

    Raises:
        ProjectionError: a key is too long, or not of its type.
    """
    projection = load_application(plan.app, plan.folder).projection(plan.projection)
    codec: RowCodec[Any] = RowCodec(projection)

    def records() -> Iterator[Record]:
        for batch in batches:
            groups = batch.to_pydict()
            keys = dict(
                zip(projection.key_form.names, _keys(plan, projection, groups), strict=True)
            )
            columns = [
                keys[kept.name] if kept.name in keys else _column(kept, groups)
                for kept in native.columns
            ]
            for kind, key, told, *values in zip(
                groups["kind"], groups["key"], groups["number"], *columns, strict=True
            ):
                if kind != EVENT:
                    data = key.encode() if kind == MISSING else b""
                    yield Record.known(kind, key, number=told or 0, data=data)
                else:
                    yield Record.known(ROW, key, data=codec.encode_values(values))

    yield from batched(records())


def _branches(
    folds: DeclaredFolds, rule: SummaryRule[Any], keys: Sequence[str]
) -> Iterator[_Branch]:
    alike: dict[tuple[str, tuple[Sql, ...]], set[int]] = {}
    for place, event_type in enumerate(folds.types):
        if rule in folds.rules_for(event_type):
            terms = [rule.key, *(summary.term for summary in rule.columns.values())]
            found = tuple(to_sql(term, event_type) for term in terms if isinstance(term, Term))
            where = "true" if rule.where is None else to_sql(rule.where, event_type).text
            alike.setdefault((where, found), set()).add(place)
    for (where, (key, *values)), places in alike.items():
        yield _Branch(
            types=frozenset(places),
            place=keys.index(repr(rule.key)),
            key=key.text,
            where=where,
            values=dict(zip(rule.columns, values, strict=True)),
        )


def _key(branches: Sequence[_Branch], place: int) -> str:
    texts = dict.fromkeys(
        f"when type in ({', '.join(map(str, sorted(branch.types)))}) then {branch.key}"
        for branch in branches
        if branch.place == place
    )
    return f"case {' '.join(texts)} end"


def _reading(folds: DeclaredFolds, context: set[str]) -> Reading:
    chosen: list[ChosenType] = []
    for event_type in folds.types:
        paths = folds.paths_of(event_type)
        context |= {path.removeprefix(CONTEXT) for path in paths if path.startswith(CONTEXT)}
        fields: list[EventField] = [each for each in fields_of(event_type) if each.name in paths]
        chosen.append(
            ChosenType(
                name=event_type.message_name,
                version=event_type.message_version,
                fields=tuple(fields),
            )
        )
    return Reading(types=tuple(chosen), context=tuple(sorted(context)))


class _Query:
    """The values and aggregates of a query, as columns are added to it.

    Args:
        by_aggregate: whether the events of a row are all of one aggregate.
        by_version: whether they have the order of its versions then, or that of one queue.
    """

    def __init__(self, *, by_aggregate: bool, by_version: bool) -> None:
        self.values: dict[str, str] = {}
        self.aggregates: dict[str, str] = {}
        # A number is compared and kept at less cost than a struct.
        turn = _VERSION_ORDER if by_version else "turn"
        self._order = turn if by_aggregate else "struct(moment, part, turn)"
        self._back = f"(- {turn})" if by_aggregate else "struct(- moment, - part, - turn)"

    def add(
        self, kept: ColumnResult, operation: Operation, branches: Sequence[_Branch]
    ) -> Iterator[tuple[str, ...]]:
        """Adds a column; yields its parts."""
        if operation is Operation.LAST:
            yield self._last(kept, branches)
        elif operation is Operation.FIRST:
            yield self._first(kept, branches)
        else:
            for some in _exclusive(branches):
                value = self._value(_choice(some, kept.name))
                if kept.kind is ColumnKind.DECIMAL:
                    yield self._decimals(value, self._value(_places(some, kept.name)), operation)
                else:
                    yield (self._aggregate(f"{_WORDS[operation]}({value})"),)

    def _last(self, kept: ColumnResult, branches: Sequence[_Branch]) -> tuple[str, ...]:
        touched = " or ".join(branch.condition for branch in branches)
        order = self._value(f"case when {touched} then {self._order} end")
        # Of an event's own rules the last one decides.
        values = self._value_and_places(kept, branches[::-1])
        found = [self._aggregate(f"max_by({value}, {order})") for value in values]
        return *found, self._aggregate(f"count({order})")

    def _first(self, kept: ColumnResult, branches: Sequence[_Branch]) -> tuple[str, ...]:
        choices = [_choice([each], kept.name) for each in branches]
        values = [self._value(f"coalesce({', '.join(choices)})")]
        if kept.kind is ColumnKind.DECIMAL:
            # Null where the value is, so it is that of the same rule.
            choices = [_places([each], kept.name) for each in branches]
            values.append(self._value(f"coalesce({', '.join(choices)})"))
        order = self._value(f"if({values[0]} is null, null, {self._order})")
        return tuple(self._aggregate(f"min_by({value}, {order})") for value in values)

    def _decimals(self, value: str, places: str, operation: Operation) -> tuple[str, ...]:
        if operation is Operation.SUM:
            # A sum has as many places as the number with the most of them; none is lost or added.
            return self._aggregate(f"sum({value})"), self._aggregate(f"max({places})")
        # Of equal ones, which may differ in their places, the first is kept.
        order = self._value(self._order if operation is Operation.MIN else self._back)
        by = f"if({value} is null, null, struct({value}, {order}))"
        word = _WORDS[operation]
        return self._aggregate(f"{word}({value})"), self._aggregate(f"{word}_by({places}, {by})")

    def _value_and_places(self, kept: ColumnResult, branches: Sequence[_Branch]) -> list[str]:
        values = [self._value(_choice(branches, kept.name))]
        if kept.kind is ColumnKind.DECIMAL:
            values.append(self._value(_places(branches, kept.name)))
        return values

    def _value(self, text: str) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = text
        return name

    def _aggregate(self, text: str) -> str:
        name = f"a{len(self.aggregates)}"
        self.aggregates[name] = text
        return name


_WORDS: Final = {Operation.SUM: "sum", Operation.MIN: "min", Operation.MAX: "max"}


def _choice(branches: Sequence[_Branch], column: str) -> str:
    whens = " ".join(f"when {each.condition} then {each.values[column].text}" for each in branches)
    return f"case {whens} end"


def _places(branches: Sequence[_Branch], column: str) -> str:
    whens = " ".join(
        f"when {each.condition} then {each.values[column].places}" for each in branches
    )
    return f"case {whens} end"


def _exclusive(branches: Sequence[_Branch]) -> list[list[_Branch]]:
    """Returns the branches in groups, within each of which no event is in two of them."""
    groups: list[list[_Branch]] = []
    for branch in branches:
        for group in groups:
            if all(branch.excludes(each) for each in group):
                group.append(branch)
                break
        else:
            groups.append([branch])
    return groups


def _keys(
    plan: FoldPlan, projection: Projection[Any], groups: Mapping[str, Sequence[Any]]
) -> list[Sequence[Any]]:
    """Returns the values of each field of the key, one per group; of groups without a row any.

    Raises:
        ProjectionError: a key is too long, or not of its type.
    """
    form = projection.key_form
    rows = zip(groups["kind"], groups["key"], strict=True)
    none = (None,) * len(form.names)
    try:
        found = [form.values(form.fitting(key)) if kind == EVENT else none for kind, key in rows]
    except ValueError as error:
        raise ProjectionError(f"projection {plan.projection}: {error}") from error
    if form.is_text:
        return [groups["key"]]
    return list(zip(*found, strict=True)) if found else [()] * len(form.names)


def _column(kept: ColumnResult, groups: Mapping[str, Sequence[Any]]) -> Sequence[Any]:
    """Returns the values of a column, one per group."""
    start, kind = kept.start, kept.kind
    count = len(groups["key"])
    if kept.operation is None or (kept.operation is Operation.FIRST and start is not None):
        return [start] * count
    if kept.operation is Operation.LAST:
        *names, told = kept.parts[0]
        values = _part(kind, [groups[name] for name in names])
        return [
            value if events else start for value, events in zip(values, groups[told], strict=True)
        ]
    parts = [_part(kind, [groups[name] for name in names]) for names in kept.parts]
    return [joined(kept.operation, (start, *found)) for found in zip(*parts, strict=True)]


def _part(kind: ColumnKind, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Returns what plain values stand for."""
    match kind:
        case ColumnKind.DECIMAL:
            return [
                None if value is None else value.quantize(_UNITS[places], context=EXACT)
                for value, places in zip(*columns, strict=True)
            ]
        case ColumnKind.DATE:
            return [
                None if days is None else date.fromordinal(days + _EPOCH_DAY) for days in columns[0]
            ]
        case ColumnKind.TIMESTAMP:
            return [
                None if moment is None else _EPOCH + timedelta(microseconds=moment)
                for moment in columns[0]
            ]
    return columns[0]
