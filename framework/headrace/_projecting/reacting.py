"""
Which loop a process manager runs in: with states, or without.

Sits between: the application and the two loops.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from headrace._projecting.instance_runner import ProcessRunner
from headrace._projecting.process import Process
from headrace._projecting.process_runner import ProcessManagerRunner
from headrace._projecting.read_models import ReadModels
from headrace._projecting.workflows import ProcessManager
from headrace.stores.base import EventStore

__all__ = ["reaction"]


def reaction(
    manager: ProcessManager | Process[Any],
    *,
    read_models: ReadModels,
    store: EventStore,
    **parts: Any,
) -> Callable[[], Awaitable[None]]:
    """Returns the loop of a process manager.

    Args:
        manager: whose.
        read_models: the database that keeps instances.
        store: has what instances have seen.
        parts: what both kinds of loops take.
    """
    if isinstance(manager, ProcessManager):
        return ProcessManagerRunner(manager=manager, **parts).run
    return ProcessRunner(process=manager, read_models=read_models, store=store, **parts).run
