"""
CQRS and event sourcing: commands change aggregates, events are the truth, projections are read.

Reads top to bottom: `app` (the composition root) -> `bus` (commands in, results out) ->
`_commanding` (a mailbox per aggregate) -> `_eventing` (group commit, publishing) -> `stores` and
`transports` (ports and adapters) -> `_projecting` (read models, process managers) -> `spark`
(rebuilds).

Sits between: the user's aggregates, handlers and projections, and `headrace_mq` and a database.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded when a name is first used: the command line needs none of them
    from headrace._commanding.handling import CommandContext
    from headrace._commanding.middleware import Next
    from headrace._domain.aggregate import Aggregate, applies
    from headrace._domain.decider import Decider
    from headrace._domain.message import (
        AggregateId,
        AggregateIdOf,
        ApplicationMessage,
        Command,
        DomainEvent,
        EventContext,
        MessageContext,
    )
    from headrace._domain.stream import EventStream, Rejection
    from headrace._domain.value import ValueObject
    from headrace._projecting.process import Compensate, End, Process, Undo
    from headrace._projecting.projection import Projection
    from headrace._projecting.workflows import Later, ProcessManager
    from headrace.app import App
    from headrace.bus import CommandBus, CommandResult
    from headrace.errors import DomainError, HeadraceError
    from headrace.settings import Settings
    from headrace.stores.base import EventStore

__all__ = [
    "Aggregate",
    "AggregateId",
    "AggregateIdOf",
    "App",
    "ApplicationMessage",
    "Command",
    "CommandBus",
    "CommandContext",
    "CommandResult",
    "Compensate",
    "Decider",
    "DomainError",
    "DomainEvent",
    "End",
    "EventContext",
    "EventStore",
    "EventStream",
    "HeadraceError",
    "Later",
    "MessageContext",
    "Next",
    "Process",
    "ProcessManager",
    "Projection",
    "Rejection",
    "Settings",
    "Undo",
    "ValueObject",
    "applies",
]

_HOMES = MappingProxyType(
    {
        "Aggregate": "headrace._domain.aggregate",
        "AggregateId": "headrace._domain.message",
        "AggregateIdOf": "headrace._domain.message",
        "App": "headrace.app",
        "ApplicationMessage": "headrace._domain.message",
        "applies": "headrace._domain.aggregate",
        "Command": "headrace._domain.message",
        "CommandBus": "headrace.bus",
        "CommandContext": "headrace._commanding.handling",
        "CommandResult": "headrace.bus",
        "Compensate": "headrace._projecting.process",
        "Decider": "headrace._domain.decider",
        "DomainError": "headrace.errors",
        "DomainEvent": "headrace._domain.message",
        "End": "headrace._projecting.process",
        "EventContext": "headrace._domain.message",
        "EventStore": "headrace.stores.base",
        "EventStream": "headrace._domain.stream",
        "HeadraceError": "headrace.errors",
        "Later": "headrace._projecting.workflows",
        "MessageContext": "headrace._domain.message",
        "Next": "headrace._commanding.middleware",
        "Process": "headrace._projecting.process",
        "ProcessManager": "headrace._projecting.workflows",
        "Projection": "headrace._projecting.projection",
        "Rejection": "headrace._domain.stream",
        "Settings": "headrace.settings",
        "Undo": "headrace._projecting.process",
        "ValueObject": "headrace._domain.value",
    }
)


def __getattr__(name: str) -> Any:
    """Loads a name of the face from its home."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names every export, loaded or not."""
    return sorted({*globals(), *__all__})
