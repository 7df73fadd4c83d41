"""
CQRS and event sourcing: commands change aggregates, events are the truth, projections are read.

Reads top to bottom: `app` (the composition root) -> `bus` (commands in, results out) ->
`commands` (a mailbox per aggregate) -> `events` (group commit, publishing) -> `stores` and
`transports` (ports and adapters) -> `projections` (read models, process managers) -> `spark`
(rebuilds).

Used by applications: their aggregates, handlers and projections; uses `headrace_mq` and a database.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded when a name is first used: the command line needs none of them
    from headrace.access.principal import Principal
    from headrace.app import App
    from headrace.bus import CommandBus, CommandResult
    from headrace.commands.command_handlers import CommandContext
    from headrace.commands.middleware import Next
    from headrace.domain.aggregate import Aggregate, applies
    from headrace.domain.decider import Decider
    from headrace.domain.message import (
        AggregateId,
        AggregateIdOf,
        ApplicationMessage,
        Command,
        DomainEvent,
        EventContext,
        MessageContext,
    )
    from headrace.domain.stream import EventStream, Rejection
    from headrace.domain.value import ValueObject
    from headrace.errors import DomainError, HeadraceError
    from headrace.processes.process import Compensate, End, Process, Undo
    from headrace.processes.process_manager import Later, ProcessManager
    from headrace.projections.definition.index import Index
    from headrace.projections.definition.projection import Projection
    from headrace.settings import Settings
    from headrace.stores.base import EventStore
    from headrace.subjects.personal import Personal

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
    "Index",
    "Later",
    "MessageContext",
    "Next",
    "Personal",
    "Principal",
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
        "Aggregate": "headrace.domain.aggregate",
        "AggregateId": "headrace.domain.message",
        "AggregateIdOf": "headrace.domain.message",
        "App": "headrace.app",
        "ApplicationMessage": "headrace.domain.message",
        "applies": "headrace.domain.aggregate",
        "Command": "headrace.domain.message",
        "CommandBus": "headrace.bus",
        "CommandContext": "headrace.commands.command_handlers",
        "CommandResult": "headrace.bus",
        "Compensate": "headrace.processes.process",
        "Decider": "headrace.domain.decider",
        "DomainError": "headrace.errors",
        "DomainEvent": "headrace.domain.message",
        "End": "headrace.processes.process",
        "EventContext": "headrace.domain.message",
        "EventStore": "headrace.stores.base",
        "EventStream": "headrace.domain.stream",
        "HeadraceError": "headrace.errors",
        "Index": "headrace.projections.definition.index",
        "Later": "headrace.processes.process_manager",
        "MessageContext": "headrace.domain.message",
        "Next": "headrace.commands.middleware",
        "Personal": "headrace.subjects.personal",
        "Principal": "headrace.access.principal",
        "Process": "headrace.processes.process",
        "ProcessManager": "headrace.processes.process_manager",
        "Projection": "headrace.projections.definition.projection",
        "Rejection": "headrace.domain.stream",
        "Settings": "headrace.settings",
        "Undo": "headrace.processes.process",
        "ValueObject": "headrace.domain.value",
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
