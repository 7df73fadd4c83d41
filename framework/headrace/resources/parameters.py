"""
The further parameters of handlers: their types, and the values that take their places.

Used where handlers are registered and bound. Pure.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any, Final, TypeVar, cast, get_type_hints

from headrace.errors import DefinitionError

__all__ = ["GIVEN", "Bind", "bound_to", "name_of", "shown", "wanted_by"]

H = TypeVar("H", bound=Callable[..., Any])

# Returns a handler with its further parameters.
Bind = Callable[[Callable[..., Any]], Callable[..., Any]]

# What every handler gets from Headrace: a message and its context.
GIVEN: Final = 2


def wanted_by(handler: Callable[..., Any], *, after: int = GIVEN) -> dict[str, Any]:
    """Returns the further parameters of a function with the types that they are annotated with.

    Args:
        handler: the function.
        after: how many parameters it gets anyway.

    Raises:
        DefinitionError: a further parameter has no annotation, or is `*args` or `**kwargs`.
    """
    further = list(inspect.signature(handler).parameters.values())[after:]
    if not further:
        return {}
    hints = get_type_hints(handler)
    for each in further:
        if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY}:
            raise DefinitionError(
                f"{name_of(handler)} takes {each.name} without a name of its own: give each further"
                " parameter a name and a type"
            )
        if each.name not in hints:
            raise DefinitionError(
                f"{name_of(handler)}: annotate its parameter {each.name} with the type of a resource"
            )
    return {each.name: hints[each.name] for each in further}


def bound_to(handler: H, found: Mapping[Any, Any]) -> H:
    """Returns a handler whose further parameters have their values.

    Args:
        handler: the function; the same is returned if it has no further parameters.
        found: values by type.

    Raises:
        DefinitionError: a type is not among them; names handler, parameter, and what is provided.
    """
    values: dict[str, Any] = {}
    for parameter, wanted in wanted_by(handler).items():
        if wanted not in found:
            provided = ", ".join(sorted(map(shown, found)))
            raise DefinitionError(
                f"{name_of(handler)}: nothing provides its parameter {parameter}: {shown(wanted)};"
                f" provided are {provided or 'none'}. Write an @app.resource that yields one, or"
                f" app.provide({shown(wanted)}, …)"
            )
        values[parameter] = found[wanted]
    if not values:
        return handler
    return cast("H", update_wrapper(partial(handler, **values), handler))


def name_of(function: Any) -> str:
    """Returns what a function is called in sentences."""
    return str(getattr(function, "__qualname__", repr(function)))


def shown(kind: Any) -> str:
    """Returns what a type is called in sentences."""
    return str(getattr(kind, "__name__", kind))
