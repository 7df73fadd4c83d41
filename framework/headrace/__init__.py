"""
CQRS and event sourcing: commands change aggregates, events are the truth, projections are read.

Reads top to bottom: `app` (the composition root) -> `bus` (commands in, results out) ->
`_commanding` (a mailbox per aggregate) -> `_eventing` (group commit, publishing) -> `stores` and
`transports` (ports and adapters) -> `_projecting` (read models, process managers) -> `spark`
(rebuilds).

Sits between: the user's aggregates, handlers and projections, and `headrace_mq` and a database.
"""

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
