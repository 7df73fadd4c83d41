"""
Makes the runner of each reader of events: of processes, process managers and event handlers.

Used by `App`.
"""

from typing import Any, Protocol

from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.runner import EventHandlerRunner
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.processes.process_manager_runner import ProcessManagerRunner
from headrace.processes.process_runner import ProcessRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.base import EventStore
from headrace.subscriptions.reader import Reader

__all__ = ["EventRunner", "event_runner"]


class EventRunner(Protocol):
    """The loop of what reacts to events.

    Attributes:
        reader: tells how it is doing in its `status`.
    """

    reader: Reader

    async def run(self) -> None:
        """Works until cancelled."""
        ...


def event_runner(
    reacting: ProcessManager | Process[Any] | EventHandlers,
    *,
    read_models: ReadModels,
    store: EventStore,
    **parts: Any,
) -> EventRunner:
    """Returns the loop of what reacts to events.

    Args:
        reacting: whose.
        read_models: the database that keeps instances, and versions that were handled.
        store: has what instances have seen, and what is missing in the topic.
        parts: what all kinds of loops take, and the bus that process managers take as well.
    """
    parts["read_models"] = read_models
    if isinstance(reacting, ProcessManager):
        return ProcessManagerRunner(manager=reacting, **parts)
    parts["store"] = store
    if isinstance(reacting, EventHandlers):
        return EventHandlerRunner(handlers=reacting, **parts)
    return ProcessRunner(process=reacting, **parts)
