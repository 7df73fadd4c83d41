"""
Which handler takes an event: that of its own type, or else that of its nearest base class.

Used by projections, processes and process managers, which register handlers by type. Pure.
"""

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from headrace.errors import DefinitionError

__all__ = ["nearest", "refuse_async", "types_in"]

T = TypeVar("T")


def nearest(table: Mapping[type, T], message_type: type) -> T | None:
    """Returns the entry of a type, or else of its nearest base class; None: there is no entry."""
    for each in message_type.__mro__:
        if each in table:
            return table[each]
    return None


def types_in(hint: Any, kind: type) -> tuple[type, ...]:
    """Returns the classes of an annotation, several for `A | B`; none unless all are of this kind."""
    members = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    if all(isinstance(each, type) and issubclass(each, kind) for each in members):
        return members
    return ()


def refuse_async(owner: str, handler: Callable[..., Any]) -> None:
    """Refuses a handler that would return a coroutine where rows or commands are expected.

    Raises:
        DefinitionError: it is declared with `async def`.
    """
    if inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler):
        raise DefinitionError(
            f"{owner}: {handler.__name__} is async; write `def`, since it may depend on nothing"
            " but its arguments. What asks others belongs into an event handler"
        )
