"""
The rules of a projection: which rows an event touches, and how it changes each of them.

    FoldRule      your function, called with row and event
    SummaryRule   columns that keep summaries, compiled into one function per event type

Used by `Projection`, which collects rules, and by `fold`, which runs what they compile to. Pure.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import BaseModel

from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.unchecked import make_unchecked
from headrace.errors import DefinitionError
from headrace.projections.definition.expressions import (
    IN_MODELS,
    IN_STRUCTS,
    Access,
    Term,
    bind,
    fields_in,
)
from headrace.projections.definition.key_form import KeyForm
from headrace.projections.definition.keys import AGGREGATE_KEY, Key, compile_key
from headrace.projections.definition.shape import ColumnKind, RowShape
from headrace.projections.definition.summaries import Step, Summary, compile_summary
from headrace.subscriptions.handler_match import refuse_async, types_in

__all__ = ["CompiledRule", "FoldRule", "Rule", "SummaryRule", "event_types_of"]

R = TypeVar("R", bound=BaseModel)

_TAKES_KEY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRule(Generic[R]):
    """A rule for the events of one type.

    Attributes:
        keys: of the rows that an event touches.
        by_aggregate: whether that is the aggregate's id, and `keys` need not be asked.
        next_row: given the row or None, the event, its context and the key, returns the row after
            it in its one form, or None for no row.
    """

    keys: Callable[[Any, EventContext], tuple[str, ...]]
    next_row: Callable[[R | None, Any, EventContext, str], R | None]
    by_aggregate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldRule(Generic[R]):
    """A fold in Python."""

    projection: str
    shape: RowShape[R]
    form: KeyForm
    key: Key
    fold: Callable[..., Any]

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.fold, "__name__", repr(self.fold))

    def check(self, event_types: Iterable[type[DomainEvent]]) -> None:
        """Raises DefinitionError where a declared key does not fit an event."""
        for event_type in event_types:
            _named(self.projection, partial(compile_key, self.key, event_type, self.form))

    def compile(self, event_type: type[DomainEvent]) -> CompiledRule[R]:
        """Returns the rule for events of one type."""
        fold, takes_key = self.fold, len(inspect.signature(self.fold).parameters) == _TAKES_KEY
        row_type, form, canonical = self.shape.model, self.form, self.shape.canonical

        def next_row(row: R | None, event: Any, context: EventContext, key: str) -> R | None:
            after = (
                fold(row, event, context, form.value(key))
                if takes_key
                else fold(row, event, context)
            )
            if after is None:
                return None
            # A model's `isinstance` costs several times as much as the look at its type.
            fits = type(after) is row_type or isinstance(after, row_type)
            if not fits or form.text_of(after) != key:
                raise DefinitionError(
                    f"projection {self.projection}: the fold for {event_type.__name__} must return"
                    f" a {row_type.__name__} with {form.named(key)}, or None"
                )
            return canonical(after)

        return CompiledRule(
            keys=compile_key(self.key, event_type, self.form),
            next_row=next_row,
            by_aggregate=self.key is AGGREGATE_KEY,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummaryRule(Generic[R]):
    """Columns that keep summaries of the events for which a condition holds."""

    projection: str
    shape: RowShape[R]
    form: KeyForm
    key: Key
    where: Term | None
    columns: Mapping[str, Summary]

    def check(self, event_types: Iterable[type[DomainEvent]]) -> None:
        """Compiles for each event type.

        Raises:
            DefinitionError: the rule does not fit the row or an event.
        """
        owner = f"projection {self.projection}"
        fields = {field.name for field in self.shape.fields}
        unknown = sorted(self.columns.keys() - (fields - set(self.form.names)))
        if unknown:
            raise DefinitionError(
                f"{owner}: {self.shape.model.__name__} has no column {', '.join(unknown)} to keep"
                f" something in (the key {', '.join(self.form.names)} is filled by itself)"
            )
        for name, summary in self.columns.items():
            if not isinstance(summary, Summary):
                raise DefinitionError(
                    f"{owner}: {name}={summary!r} is no summary; use count, sum_, first, last,"
                    " min_ or max_"
                )
        types = list(event_types)
        for event_type in types:
            if not (isinstance(event_type, type) and issubclass(event_type, DomainEvent)):
                raise DefinitionError(
                    f"{owner}: on takes event classes, not {event_type!r}; for a function there is"
                    " @projection.fold"
                )
            self.compile(event_type)
        if not types:
            raise DefinitionError(f"{owner}: on takes one event class or several")

    @property
    def fields_read(self) -> set[str] | None:
        """The paths of the fields that it reads; None where its key is a function."""
        if not isinstance(self.key, Term):
            return None
        terms = [self.key, self.where, *(each.term for each in self.columns.values())]
        return set().union(*(fields_in(term) for term in terms if term is not None))

    def start(self) -> dict[str, Any]:
        """Returns the values of a new row, without its key.

        Raises:
            DefinitionError: a column has none.
        """
        values: dict[str, Any] = {}
        for field in self.shape.fields:
            info = self.shape.model.model_fields[field.name]
            if field.name in self.form.names:
                continue
            if not info.is_required():
                # Of what may be changed where it is, `canonical` makes each row one of its own.
                values[field.name] = info.get_default(call_default_factory=True)
            elif field.optional:
                values[field.name] = None
            elif field.kind in _ZEROS:
                values[field.name] = _ZEROS[field.kind]
            else:
                raise DefinitionError(
                    f"projection {self.projection}: {self.shape.model.__name__}.{field.name} needs"
                    " a default, or to admit None, for a row that an event makes"
                )
        return values

    def compile(self, event_type: type[DomainEvent]) -> CompiledRule[R]:
        """Returns the rule for events of one type.

        Raises:
            DefinitionError: the rule does not fit the row or the event.
        """
        return _named(self.projection, partial(self._compile, event_type))

    def compile_in_place(self, event_type: type[DomainEvent], *, stored: bool) -> CompiledRule[R]:
        """Returns the rule for rows with no other holder: `next_row` changes them where they are.

        Args:
            event_type: whose fields the rule reads.
            stored: whether events come as their stored fields instead of as models; contexts may
                come as either.
        """
        events = IN_STRUCTS if stored else IN_MODELS
        access = Access(event=events.event, context=IN_STRUCTS.context)
        one_form, canonical = self.shape.one_form, self.shape.canonical
        steps = [(name, step, one_form[name]) for name, step in self._steps(event_type, access)]
        start, names = self._begin()
        columns_of, model = self.form.columns, self.shape.model

        def next_row(row: R | None, event: Any, context: Any, key: str) -> R:
            known = row is not None
            if row is None:
                row = make_unchecked(model, {**start, **columns_of(key)}, names)
            values = row.__dict__
            for name, step, types in steps:
                values[name] = value = step(values[name], event, context)
                known = known and type(value) in types
            return row if known else canonical(row)

        return CompiledRule(
            keys=self._compile_keys(event_type, access),
            next_row=next_row,
            by_aggregate=self._by_aggregate,
        )

    def _compile(self, event_type: type[DomainEvent]) -> CompiledRule[R]:
        steps = self._steps(event_type, IN_MODELS)
        start, names = self._begin()
        columns_of, model, canonical = self.form.columns, self.shape.model, self.shape.canonical

        def next_row(row: R | None, event: Any, context: EventContext, key: str) -> R:
            values = {**start, **columns_of(key)} if row is None else row.__dict__.copy()
            for name, step in steps:
                values[name] = step(values[name], event, context)
            # Complete and of the right types: nothing would be found by validating it.
            return canonical(make_unchecked(model, values, names))

        return CompiledRule(
            keys=self._compile_keys(event_type, IN_MODELS),
            next_row=next_row,
            by_aggregate=self._by_aggregate,
        )

    @property
    def _by_aggregate(self) -> bool:
        return self.key is AGGREGATE_KEY and self.where is None

    def _steps(self, event_type: type[DomainEvent], access: Access) -> list[tuple[str, Step]]:
        fields = {field.name: field for field in self.shape.fields}
        return [
            (name, compile_summary(summary, fields[name], event_type, access))
            for name, summary in self.columns.items()
        ]

    def _begin(self) -> tuple[dict[str, Any], set[str]]:
        """Returns what every column of a new row holds, in order, and their names."""
        values = self.start()
        begin = {field.name: values.get(field.name) for field in self.shape.fields}
        return begin, set(begin)

    def _compile_keys(
        self, event_type: type[DomainEvent], access: Access
    ) -> Callable[[Any, EventContext], tuple[str, ...]]:
        keys = compile_key(self.key, event_type, self.form, access)
        if self.where is None:
            return keys
        bound = bind(self.where, event_type, access)
        if bound.kind is not ColumnKind.BOOLEAN:
            raise DefinitionError(f"where={self.where!r} is no condition")
        holds = bound.read
        return lambda event, context: keys(event, context) if holds(event, context) else ()


Rule = FoldRule[R] | SummaryRule[R]
T = TypeVar("T")
_ZEROS = MappingProxyType(
    {ColumnKind.INTEGER: 0, ColumnKind.FLOAT: 0.0, ColumnKind.DECIMAL: Decimal(0)}
)


def event_types_of(
    projection: str, what: str, function: Callable[..., Any], arguments: Collection[int]
) -> tuple[type[DomainEvent], ...]:
    """Returns the event types that a function's second argument is annotated with.

    Args:
        projection: the name, for sentences.
        what: a word for the function.
        function: a fold or a handler.
        arguments: how many it may take.

    Raises:
        DefinitionError: it takes others.
    """
    names = list(inspect.signature(function).parameters)
    hints = get_type_hints(function)
    members = types_in(hints.get(names[1]), DomainEvent) if len(names) in arguments else ()
    # A fourth is the row's key, and not a resource by chance.
    if not members or any(name != "key" and hints.get(name) is not str for name in names[3:]):
        first = "row" if what == "fold" else "session"
        raise DefinitionError(
            f"projection {projection}: {what} {getattr(function, '__name__', function)} takes"
            f" ({first}, event, context) and annotates event with a DomainEvent class; it gets no"
            " resources, because a rebuild must give the same rows"
        )
    refuse_async(f"projection {projection}", function)
    return members


def _named(projection: str, work: Callable[[], T]) -> T:
    """Adds the projection's name to an error of its definition."""
    try:
        return work()
    except DefinitionError as error:
        sentence = str(error)
        owner = f"projection {projection}: "
        raise DefinitionError(owner + sentence.removeprefix(owner)) from error
