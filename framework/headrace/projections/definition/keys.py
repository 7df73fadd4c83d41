"""
Keys: which rows an event touches. There are four ways to say it.

    nothing                         the aggregate's id
    "partner", an expression        a field of the event, or what is computed from it; None: no row
    lambda event: …                 a key, or several; none is no row
    lambda event, context: …        the same

Used by `Projection` and its rules. Pure.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.projections.definition.expressions import CONTEXT, Access, Field, Term, as_term, bind
from headrace.projections.definition.shape import ColumnKind

__all__ = ["AGGREGATE_KEY", "KEY_CHARACTERS_MAX", "Key", "KeyOf", "as_key", "compile_key"]

# What the key column holds; the same as an aggregate's id.
KEY_CHARACTERS_MAX: Final = 255

# What a user may write as a key.
KeyOf = str | Term | Callable[..., str | Iterable[str]]
Key = Term | Callable[..., str | Iterable[str]]
Keys = Callable[[Any, EventContext], tuple[str, ...]]

AGGREGATE_KEY: Final = Field(CONTEXT + "aggregate_id")


def as_key(key: KeyOf | None) -> Key:
    """Returns a key as a term or a function.

    Raises:
        DefinitionError: it is neither.
    """
    if key is None:
        return AGGREGATE_KEY
    if not isinstance(key, str | Term):
        if not callable(key):
            raise DefinitionError(f"{key!r} is no key; name a field, or give a term or a function")
        return key
    term = as_term(key)
    return AGGREGATE_KEY if repr(term) == repr(AGGREGATE_KEY) else term


def compile_key(key: Key, event_type: type[DomainEvent], access: Access | None = None) -> Keys:
    """Returns a key as a function of events of a type: the keys of the rows, each once, in order.

    The function raises ValueError for a key that no key column holds. `access` is for a term, as in
    `bind`; a function is called with what it is given.

    Raises:
        DefinitionError: the event has no such field, or one that is no text.
    """
    if not isinstance(key, Term):
        return _called(key)
    if key is AGGREGATE_KEY:
        # Checked when the aggregate was made.
        return lambda _event, context: (context.aggregate_id,)
    bound = bind(key, event_type, access)
    if bound.kind is not ColumnKind.TEXT:
        raise DefinitionError(f"a key is text, and {key!r} of {event_type.__name__} is not")
    read = bound.read

    def keys(event: Any, context: EventContext) -> tuple[str, ...]:
        found = read(event, context)
        return () if found is None else (_checked(found),)

    return keys


def _called(function: Callable[..., str | Iterable[str]]) -> Keys:
    takes_context = len(inspect.signature(function).parameters) != 1

    def keys(event: Any, context: EventContext) -> tuple[str, ...]:
        found = function(event, context) if takes_context else function(event)
        if isinstance(found, str):
            return (_checked(found),)
        if not isinstance(found, Iterable):
            raise _unusable(found)
        return tuple(map(_checked, dict.fromkeys(found)))

    return keys


def _checked(key: Any) -> str:
    if not isinstance(key, str) or len(key) > KEY_CHARACTERS_MAX:
        raise _unusable(key)
    return key


def _unusable(key: Any) -> ValueError:
    return ValueError(f"a key is a str of at most {KEY_CHARACTERS_MAX} characters: {key!r}")
