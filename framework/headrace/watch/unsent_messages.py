"""
Finds handlers of messages that nothing sends, before the application runs.

Used by `App`; reads the declarations of handlers, processes and projections. Pure.
"""

from collections.abc import Collection, Iterable
from typing import Any

from headrace.domain.message import Command, DomainEvent
from headrace.errors import DefinitionError
from headrace.handlers.event_handlers import EventHandlers
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.projections.definition.projection import Projection

__all__ = ["check_listeners"]


def check_listeners(
    app_name: str,
    listeners: Iterable[Projection[Any] | ProcessManager | Process[Any] | EventHandlers],
    *,
    events: Collection[type[DomainEvent]],
    commands: Collection[type[Command]],
) -> None:
    """Returns if every listener can meet everything that it waits for.

    Args:
        app_name: for the sentence.
        listeners: what events and rejections go to.
        events: those that aggregates apply.
        commands: those that have a handler.

    Raises:
        DefinitionError: says which part waits in vain, and for what.
    """
    for listener in listeners:
        if isinstance(listener, Projection):
            for event_type in listener.event_types:
                doing = f"projection {listener.name} folds"
                for each in _met(app_name, doing, event_type, events):
                    listener.check(each)
        elif isinstance(listener, EventHandlers):
            for event_type in listener.event_types:
                doing = f"an event handler of {listener.name} waits for"
                _met(app_name, doing, event_type, events)
        else:
            _check_manager(app_name, listener, events, commands)


def _met(
    app_name: str, doing: str, event_type: type[DomainEvent], events: Iterable[type[DomainEvent]]
) -> list[type[DomainEvent]]:
    met = [each for each in events if issubclass(each, event_type)]
    if not met:
        raise DefinitionError(
            f"{doing} {event_type.__name__}, which no aggregate of {app_name} applies; add its"
            " aggregate with app.add(…)"
        )
    return met


def _check_manager(
    app_name: str,
    manager: ProcessManager | Process[Any],
    events: Collection[type[DomainEvent]],
    commands: Collection[type[Command]],
) -> None:
    for event_type in manager.event_types:
        _met(app_name, f"process manager {manager.name} reacts to", event_type, events)
    for command_type in manager.rejected_types.difference(commands):
        raise DefinitionError(
            f"process manager {manager.name} reacts to the rejection of"
            f" {command_type.__name__}, which has no handler; add one with @app.handles"
        )
