"""
Keys: which rows an event touches. You can define a key in five ways.

    nothing                         the aggregate's id
    "partner", an expression        a field of the event, or a value computed from it; None: no row
    ("account_id", day(…))          one for each field of the key
    lambda event: …                 a key, or several; none is no row
    lambda event, context: …        the same

A key is a value of the key field's type, or a tuple of them where the key has several fields. What
comes out is the text of `key_form`. Used by `Projection` and its rules. Pure.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.projections.definition.expressions import (
    CONTEXT,
    Access,
    Field,
    KeyText,
    Term,
    as_term,
    bind,
)
from headrace.projections.definition.key_form import KeyForm

__all__ = ["AGGREGATE_KEY", "Key", "KeyOf", "as_key", "compile_key"]

# What a user may write as a key.
KeyOf = str | Term | tuple[str | Term, ...] | Callable[..., Any]
Key = Term | Callable[..., Any]
Keys = Callable[[Any, EventContext], tuple[str, ...]]

AGGREGATE_KEY: Final = Field(CONTEXT + "aggregate_id")


def as_key(key: KeyOf | None, form: KeyForm) -> Key:
    """Returns a key as a term for its text, or a function.

    Raises:
        DefinitionError: it is neither, or has a term too few or too many.
    """
    several = len(form.names) > 1
    if not isinstance(key, str | Term | tuple | None):
        if not callable(key):
            raise DefinitionError(f"{key!r} is no key; name a field, or give a term or a function")
        return key
    parts = key if isinstance(key, tuple) else (AGGREGATE_KEY if key is None else key,)
    if len(parts) != len(form.names):
        raise DefinitionError(
            f"the key has the fields {', '.join(form.names)}, and key_of has {len(parts)} of them; give a"
            " tuple with a field of the event, or a term, for each, or a function"
            if several
            else f"key_of={key!r} has several terms, and the key is one field, {form.names[0]}"
        )
    terms = tuple(as_term(part) for part in parts)
    if not several and repr(terms[0]) == repr(AGGREGATE_KEY):
        return AGGREGATE_KEY
    return terms[0] if form.is_text else KeyText(terms)


def compile_key(
    key: Key, event_type: type[DomainEvent], form: KeyForm, access: Access | None = None
) -> Keys:
    """Returns a key as a function of events of a type: the keys of the rows, each once, in order.

    The function raises ValueError for a key that no key column holds. `access` is for a term, as in
    `bind`; a function is called with what it is given.

    Raises:
        DefinitionError: the event has no such field, or one of another type than the key's.
    """
    if not isinstance(key, Term):
        return _called(key, form)
    if key is AGGREGATE_KEY:
        # Checked when the aggregate was made; a row's maker sees whether it is a number or UUID.
        return lambda _event, context: (context.aggregate_id,)
    _check_parts(key, event_type, form)
    read = bind(key, event_type, access).read
    checked = form.text if form.is_text else form.fitting

    def keys(event: Any, context: EventContext) -> tuple[str, ...]:
        found = read(event, context)
        return () if found is None else (checked(found),)

    return keys


def _check_parts(key: Term, event_type: type[DomainEvent], form: KeyForm) -> None:
    parts = key.parts if isinstance(key, KeyText) else (key,)
    for part, name, kind in zip(parts, form.names, form.kinds, strict=True):
        found = bind(part, event_type)
        if found.kind is kind:
            continue
        if form.is_text:
            raise DefinitionError(f"a key is text, and {part!r} of {event_type.__name__} is not")
        raise DefinitionError(
            f"the key field {name} is {kind.value}, and {part!r} of {event_type.__name__} is"
            f" {found.kind.value}"
        )


def _called(function: Callable[..., Any], form: KeyForm) -> Keys:
    takes_context = len(inspect.signature(function).parameters) != 1

    def keys(event: Any, context: EventContext) -> tuple[str, ...]:
        found = function(event, context) if takes_context else function(event)
        if isinstance(found, form.one) or not isinstance(found, Iterable):
            return (form.text(found),)
        return tuple(dict.fromkeys(map(form.text, found)))

    return keys
