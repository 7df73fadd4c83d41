"""
Which runner feeds what reacts to events: process managers with states or without, and event handlers.

Sits between: the application and the runners.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.runner import EventHandlerRunner
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.processes.process_manager_runner import ProcessManagerRunner
from headrace.processes.process_runner import ProcessRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.base import EventStore

__all__ = ["reaction"]


def reaction(
    reacting: ProcessManager | Process[Any] | EventHandlers,
    *,
    read_models: ReadModels,
    store: EventStore,
    **parts: Any,
) -> Callable[[], Awaitable[None]]:
    """Returns the loop of what reacts to events.

    Args:
        reacting: whose.
        read_models: the database that keeps instances, and versions that were handled.
        store: has what instances have seen, and what is missing in the topic.
        parts: what all kinds of loops take, and the bus that process managers take as well.
    """
    parts["read_models"] = read_models
    if isinstance(reacting, ProcessManager):
        return ProcessManagerRunner(manager=reacting, **parts).run
    parts["store"] = store
    if isinstance(reacting, EventHandlers):
        return EventHandlerRunner(handlers=reacting, **parts).run
    return ProcessRunner(process=reacting, **parts).run
