"""
The aggregates that event handlers have parked: you list, retry or skip them.

Used by `headrace parked` and by your programs; calls the handlers. It knows no subscription.
"""

from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from headrace.domain.stream import EventStream
from headrace.errors import EventHandlerError
from headrace.handlers.call import call_all, call_once
from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.progress import HandlerProgress
from headrace.handlers.progress_letters import ReaderLetters
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.base import EventStore

__all__ = ["HandlerLetters"]


class HandlerLetters(ReaderLetters):
    """The letters of one processor; you may use them while it runs, here or in another process.

    A retry calls all handlers of the failed event again, also those that succeeded before.

    Args:
        handlers: the processor; its handlers are called here.
        read_models: the database of the letters.
        store: has the events that wait.
    """

    def __init__(self, handlers: EventHandlers, read_models: ReadModels, store: EventStore) -> None:
        self._progress = HandlerProgress(handlers.name)
        super().__init__(self._progress.parked, read_models, store, busy_error=EventHandlerError)
        self._handlers = handlers

    async def _call(self, stream: EventStream) -> None:
        await call_all(self._handlers, stream, call_once)

    def _advance_to(self, aggregate_id: str, version: int) -> Callable[[Connection], None]:
        return partial(self._progress.advance, versions={aggregate_id: version})
