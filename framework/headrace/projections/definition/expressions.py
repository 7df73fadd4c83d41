"""
Expressions: what a declared fold reads from an event; Python and SQL compute the same value.

    field("amount")                  a field of the event
    field("context.recorded_at")     a field of its context
    -field("amount")                 a number with the other sign
    day("context.recorded_at")       the day of a moment in UTC, as text: "2026-01-31"
    field("amount") >= 1_000         a condition; also ==, !=, <, <=, >, &, |, ~, is_in, is_none

A comparison with None is None, as in SQL, and a condition that is None does not hold.

Used in definitions of projections. `bind` computes an expression in Python; Spark computes it in SQL. Pure.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.projections.definition.column_types import (
    ColumnKind,
    ColumnType,
    NoColumn,
    column_type,
)
from headrace.projections.definition.key_form import key_text

__all__ = [
    "COMPARISONS",
    "CONTEXT",
    "IN_MODELS",
    "IN_STRUCTS",
    "Access",
    "Bound",
    "Compared",
    "Connected",
    "Day",
    "Field",
    "Inverted",
    "KeyText",
    "Literal",
    "Missing",
    "Negated",
    "Term",
    "as_term",
    "bind",
    "day",
    "field",
    "fields_in",
    "literal",
]

Value = str | int | float | bool | Decimal | date | datetime | UUID | bytes | Enum
Read = Callable[[Any, EventContext], Any]

# How a path into the context of an event begins; a field of an event has no dot in its name.
CONTEXT: Final = "context."
_CONTEXT_KINDS: Final[Mapping[str, ColumnKind]] = {
    "aggregate_type": ColumnKind.TEXT,
    "aggregate_id": ColumnKind.TEXT,
    "version": ColumnKind.INTEGER,
    "sequence": ColumnKind.INTEGER,
    "command_id": ColumnKind.TEXT,
    "correlation_id": ColumnKind.TEXT,
    "recorded_at": ColumnKind.TIMESTAMP,
}
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBERS: Final = frozenset({ColumnKind.INTEGER, ColumnKind.FLOAT, ColumnKind.DECIMAL})


class Term:
    """A value that is computed from an event and its context.

    Operators make new terms, even `==`; to compare two terms, compare their `repr`.
    """

    __slots__ = ()

    def __neg__(self) -> "Term":
        return Negated(self)

    def __eq__(self, other: object) -> "Term":  # type: ignore[override]  # makes a condition, as in SQL
        return Compared("=", self, literal(other))

    def __ne__(self, other: object) -> "Term":  # type: ignore[override]  # makes a condition, as in SQL
        return Compared("<>", self, literal(other))

    def __lt__(self, other: object) -> "Term":
        return Compared("<", self, literal(other))

    def __le__(self, other: object) -> "Term":
        return Compared("<=", self, literal(other))

    def __gt__(self, other: object) -> "Term":
        return Compared(">", self, literal(other))

    def __ge__(self, other: object) -> "Term":
        return Compared(">=", self, literal(other))

    def __and__(self, other: "Term") -> "Term":
        return Connected(self, other, deciding=False)

    def __or__(self, other: "Term") -> "Term":
        return Connected(self, other, deciding=True)

    def __invert__(self) -> "Term":
        return Inverted(self)

    def __bool__(self) -> bool:
        raise DefinitionError(
            f"{self!r} is neither true nor false before there is an event; join conditions with"
            " &, | and ~, each in parentheses"
        )

    __hash__ = object.__hash__

    def is_in(self, *values: Value) -> "Term":
        """A condition: the term is one of these values."""
        found = literal(value=False)
        for value in values:
            found = found | (self == value)
        return found

    def is_none(self) -> "Term":
        """A condition: the term is None."""
        return Missing(self)


@dataclass(frozen=True, slots=True, eq=False)
class Field(Term):
    """A field of the event; with the prefix `context.`, a field of its context."""

    path: str


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Term):
    """The same value for every event."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Negated(Term):
    """A number with the other sign."""

    number: Term


@dataclass(frozen=True, slots=True, eq=False)
class Day(Term):
    """The day of a moment, or a date, as text."""

    moment: Term


@dataclass(frozen=True, slots=True, eq=False)
class Compared(Term):
    """A comparison of two expressions; None where either is None."""

    sign: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True, eq=False)
class Connected(Term):
    """Two conditions: with `deciding` true either must hold, with it false both must."""

    left: Term
    right: Term
    deciding: bool


@dataclass(frozen=True, slots=True, eq=False)
class Inverted(Term):
    """The opposite of a condition."""

    condition: Term


@dataclass(frozen=True, slots=True, eq=False)
class Missing(Term):
    """Whether a term is None."""

    term: Term


@dataclass(frozen=True, slots=True, eq=False)
class KeyText(Term):
    """Terms as the text of one key, see `key_form`; None where one of them is None."""

    parts: tuple[Term, ...]


def field(path: str) -> Term:
    """Returns a field of the event; with the prefix `context.`, a field of its context."""
    return Field(path)


def literal(value: object) -> Term:
    """Returns a value as a term; a term stays what it is.

    Raises:
        DefinitionError: no column holds a value of this type.
    """
    if isinstance(value, Term):
        return value
    if _type_of(value) is None:
        raise DefinitionError(
            f"{value!r} is no value of a column that a term can give: str, int, float, bool, Decimal,"
            " date, datetime, UUID, bytes or a member of an Enum (for None there is is_none)"
        )
    return Literal(value)


def _type_of(value: object) -> ColumnType | None:
    try:
        found = column_type(type(value))
    except NoColumn:
        return None
    return None if found.kind is ColumnKind.JSON else found


def day(moment: str | Term) -> Term:
    """Returns the day of a moment in UTC, or of a date, as text such as "2026-01-31"."""
    return Day(as_term(moment))


def as_term(what: str | Term) -> Term:
    """Returns a term; a text names a field."""
    return Field(what) if isinstance(what, str) else what


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A term for the events of one type.

    Attributes:
        kind: what it yields.
        optional: whether it may yield None.
        read: computes it; of an enum its value.
        of: the type of the values, where that is an enum, or kept as JSON; else None.
        choices: the only values that it may yield; empty for any.
    """

    kind: ColumnKind
    optional: bool
    read: Read
    of: Any = None
    choices: frozenset[Any] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a field is read: by its name, of an event and of its context."""

    event: Callable[[str], Read]
    context: Callable[[str], Read]


def fields_in(term: Term) -> set[str]:
    """Returns the paths of the fields that a term reads."""
    match term:
        case Field(path):
            return {path}
        case Negated(inner) | Day(inner) | Inverted(inner) | Missing(inner):
            return fields_in(inner)
        case Compared(_, left, right) | Connected(left, right, _):
            return fields_in(left) | fields_in(right)
        case KeyText(parts):
            return set().union(*map(fields_in, parts))
    return set()


def bind(term: Term, event_type: type[DomainEvent], access: "Access | None" = None) -> Bound:
    """Returns a term as a function of events of a type and their contexts.

    Args:
        term: what to compute.
        event_type: decides which fields there are.
        access: how they are read; of models if it is left out.

    Raises:
        DefinitionError: the event has no such field, or one of a type that does not fit.
    """
    access = access or IN_MODELS
    match term:
        case Field(path):
            return _bind_field(path, event_type, access)
        case Literal(value):
            return _bind_literal(value)
        case KeyText(parts):
            return _bind_key_text(parts, event_type, access)
        case Negated(number):
            return _bind_negated(number, event_type, access)
        case Day(moment):
            return _bind_day(moment, event_type, access)
        case Compared():
            return _bind_compared(term, event_type, access)
        case Connected():
            return _bind_connected(term, event_type, access)
        case Inverted(condition):
            inner = _condition(condition, event_type, access)
            return _truth(
                lambda event, context: None if (it := inner(event, context)) is None else not it
            )
        case Missing(inside):
            tried = bind(inside, event_type, access).read
            return Bound(
                kind=ColumnKind.BOOLEAN,
                optional=False,
                read=lambda event, context: tried(event, context) is None,
            )
    raise DefinitionError(f"{term!r} is no term; use field, literal or day")


def _bind_field(path: str, event_type: type[DomainEvent], access: Access) -> Bound:
    if path.startswith(CONTEXT):
        name = path.removeprefix(CONTEXT)
        kind = _CONTEXT_KINDS.get(name)
        if kind is None:
            known = ", ".join(CONTEXT + each for each in _CONTEXT_KINDS)
            raise DefinitionError(f"there is no {path!r}; there are {known}")
        return Bound(kind=kind, optional=False, read=access.context(name))
    info = event_type.model_fields.get(path)
    if info is None:
        raise DefinitionError(f"{event_type.__name__} has no field {path!r}")
    try:
        found = column_type(info.annotation)
    except NoColumn as error:
        raise DefinitionError(
            f"{event_type.__name__}.{path} is a {info.annotation!r}, which no declared fold reads:"
            f" {error}"
        ) from error
    read = access.event(path)
    return Bound(
        kind=found.kind,
        optional=found.optional,
        read=read if found.enum is None else lambda event, context: _value_of(read(event, context)),
        of=found.enum or (info.annotation if found.structure else None),
        choices=found.choices,
    )


def _bind_literal(value: Any) -> Bound:
    found = _type_of(value)
    assert found is not None, "checked when the literal was made"
    value = _value_of(value)
    return Bound(
        kind=found.kind,
        optional=False,
        read=lambda _event, _context: value,
        of=found.enum,
        choices=frozenset({value}),
    )


def _bind_key_text(parts: tuple[Term, ...], event_type: type[DomainEvent], access: Access) -> Bound:
    reads = [bind(part, event_type, access).read for part in parts]

    def joined(event: Any, context: EventContext) -> str | None:
        values = [read(event, context) for read in reads]
        return None if None in values else key_text(values)

    return Bound(kind=ColumnKind.TEXT, optional=True, read=joined)


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _in_model(path: str) -> Read:
    return lambda event, _context: event.__dict__[path]


def _in_struct(path: str) -> Read:
    read = attrgetter(path)
    return lambda event, _context: read(event)


def _in_models_context(name: str) -> Read:
    read = attrgetter(name)
    return lambda _event, context: read(context)


def _in_stored_context(name: str) -> Read:
    read = attrgetter(name)
    if _CONTEXT_KINDS[name] is not ColumnKind.TIMESTAMP:
        return lambda _event, context: read(context)
    # An `EventContext` has it in UTC.
    return lambda _event, context: read(context).astimezone(UTC)


# Events and contexts as everybody sees them; or as they are stored.
IN_MODELS: Final = Access(event=_in_model, context=_in_models_context)
IN_STRUCTS: Final = Access(event=_in_struct, context=_in_stored_context)


def _bind_negated(number: Term, event_type: type[DomainEvent], access: Access) -> Bound:
    inner = bind(number, event_type, access)
    if inner.kind not in _NUMBERS:
        raise DefinitionError(f"{number!r} of {event_type.__name__} is no number")
    read = inner.read

    def negated(event: Any, context: EventContext) -> Any:
        value = read(event, context)
        # A Decimal's minus would round to 28 digits.
        return value if value is None else _MINUS.get(type(value), operator.neg)(value)

    return Bound(kind=inner.kind, optional=inner.optional, read=negated)


_MINUS: Final[Mapping[type, Callable[[Any], Any]]] = {Decimal: Decimal.copy_negate}


def _bind_day(moment: Term, event_type: type[DomainEvent], access: Access) -> Bound:
    inner = bind(moment, event_type, access)
    if inner.kind not in {ColumnKind.TIMESTAMP, ColumnKind.DATE}:
        raise DefinitionError(f"{moment!r} of {event_type.__name__} is no moment and no date")
    read = inner.read

    def to_day(event: Any, context: EventContext) -> str | None:
        value = read(event, context)
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError(f"{value!r} has no time zone, so its day is unknown")
            value = value.astimezone(UTC).date()
        return None if value is None else value.isoformat()

    return Bound(kind=ColumnKind.TEXT, optional=inner.optional, read=to_day)


def _bind_compared(term: Compared, event_type: type[DomainEvent], access: Access) -> Bound:
    sign, left, right = term.sign, term.left, term.right
    one, other = bind(left, event_type, access), bind(right, event_type, access)
    if one.kind is not other.kind and {one.kind, other.kind} != {
        ColumnKind.INTEGER,
        ColumnKind.DECIMAL,
    }:
        raise DefinitionError(
            f"{left!r} of {event_type.__name__} is {one.kind.value} and {right!r} is"
            f" {other.kind.value}: they cannot be compared"
        )
    if ColumnKind.JSON in {one.kind, other.kind}:
        raise DefinitionError(
            f"{left!r} of {event_type.__name__} is kept as JSON, which is not compared"
        )
    a, b, compare = one.read, other.read, COMPARISONS[sign]

    def compared(event: Any, context: EventContext) -> bool | None:
        x, y = a(event, context), b(event, context)
        return None if x is None or y is None else compare(x, y)

    return _truth(compared)


def _bind_connected(term: Connected, event_type: type[DomainEvent], access: Access) -> Bound:
    deciding = term.deciding
    a = _condition(term.left, event_type, access)
    b = _condition(term.right, event_type, access)

    def connected(event: Any, context: EventContext) -> Any:
        x = a(event, context)
        if x is deciding:
            return deciding
        y = b(event, context)
        return y if y is deciding or x is not None else None

    return _truth(connected)


def _condition(term: Term, event_type: type[DomainEvent], access: Access) -> Read:
    bound = bind(term, event_type, access)
    if bound.kind is not ColumnKind.BOOLEAN:
        raise DefinitionError(f"{term!r} of {event_type.__name__} is no condition")
    return bound.read


def _truth(read: Read) -> Bound:
    return Bound(kind=ColumnKind.BOOLEAN, optional=True, read=read)
