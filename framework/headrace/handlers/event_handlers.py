"""
Event handlers: functions that do something outside when an event has happened, for example send a mail.

    event ──▶ the handlers of the lowest priority, all at once ──▶ those of the next one ──▶ …

Use projections to store rows, and process managers to send commands. The handlers of one *processor*
share a consumer group, and the versions that they have handled.

Used by `App.on_event`, which registers handlers, and by the runner. Pure.
"""

import inspect
import re
from collections.abc import Callable, Coroutine, Iterable
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError
from headrace.resources.parameters import GIVEN, Bind, wanted_by

__all__ = ["EventHandler", "EventHandlers"]

# It may have further parameters, which are resources.
EventHandler = Callable[..., Coroutine[Any, Any, None]]

# Short enough for the columns that hold names of projections, too, and for a group's name.
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,29}")


class EventHandlers:
    """The handlers of one processor.

    Args:
        name: stable; part of its consumer group's name.

    Raises:
        DefinitionError: the name is malformed.
    """

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f"event handlers {name!r}: start with a lower-case letter and use lower-case"
                " letters, digits and '_' (at most 30 characters)"
            )
        self.name = name
        self._handlers: list[tuple[int, tuple[type[DomainEvent], ...], EventHandler]] = []
        # What `levels` found, per type of event.
        self._levels: dict[type[DomainEvent], tuple[tuple[EventHandler, ...], ...]] = {}

    def add(self, handler: EventHandler, *, priority: int) -> None:
        """Adds a handler; see `App.on_event`.

        Raises:
            DefinitionError: it is not `async def f(event: SomeEvent, context: EventContext)`.
        """
        self._handlers.append((priority, _event_types_of(handler), handler))
        self._levels.clear()

    def bound(self, bind: Bind) -> "EventHandlers":
        """Returns the processor with its resources; itself if no handler has any.

        Args:
            bind: returns a handler with its further parameters.
        """
        bound = [(priority, types, bind(one)) for priority, types, one in self._handlers]
        if bound == self._handlers:
            return self
        found = EventHandlers(self.name)
        found._handlers = bound
        return found

    @property
    def functions(self) -> list[EventHandler]:
        """The handlers, in the order in which they were added."""
        return [handler for _, _, handler in self._handlers]

    @property
    def event_types(self) -> frozenset[type[DomainEvent]]:
        """The event types in the handlers' annotations; base classes among them."""
        return frozenset(each for _, types, _ in self._handlers for each in types)

    def levels(self, event_type: type[DomainEvent]) -> tuple[tuple[EventHandler, ...], ...]:
        """Returns the handlers of an event by priority, the lowest first.

        A handler comes once, even if the event matches several of its types.
        """
        found = self._levels.get(event_type)
        if found is None:
            by_priority: dict[int, list[EventHandler]] = {}
            for priority, types, handler in self._handlers:
                if issubclass(event_type, types):
                    by_priority.setdefault(priority, []).append(handler)
            found = tuple(tuple(by_priority[each]) for each in sorted(by_priority))
            self._levels[event_type] = found
        return found

    def __repr__(self) -> str:
        return f"<EventHandlers {self.name!r}>"


def _event_types_of(handler: Any) -> tuple[type[DomainEvent], ...]:
    arguments = list(inspect.signature(handler).parameters)
    hint = get_type_hints(handler).get(arguments[0]) if arguments else None
    types: Iterable[Any] = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    if (
        not inspect.iscoroutinefunction(handler)
        or len(arguments) < GIVEN
        or not all(isinstance(each, type) and issubclass(each, DomainEvent) for each in types)
    ):
        name = getattr(handler, "__qualname__", repr(handler))
        raise DefinitionError(
            f"event handler {name}: write it as"
            " `async def f(event: SomeEvent, context: EventContext) -> None`;"
            " `SomeEvent | AnotherEvent` and base classes are fine"
        )
    wanted_by(handler)
    return tuple(types)
