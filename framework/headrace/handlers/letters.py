"""
The aggregates that event handlers have parked: looked at, taken up again, or without what failed.

Sits between: whoever repairs, and the handlers. Must never know a subscription.
"""

from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from headrace.domain.stream import EventStream
from headrace.errors import EventHandlerError
from headrace.handlers.call import at_once, call_all
from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.progress import HandlerProgress
from headrace.handlers.progress_letters import ReaderLetters
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.base import EventStore

__all__ = ["HandlerLetters"]


class HandlerLetters(ReaderLetters):
    """The letters of one processor; may be used while it runs, here or in another process.

    Of the event that failed all handlers are called again, also those that did their work before.

    Args:
        handlers: the processor, whose handlers are called here.
        read_models: where the letters are.
        store: has the events that wait.
    """

    def __init__(self, handlers: EventHandlers, read_models: ReadModels, store: EventStore) -> None:
        self._progress = HandlerProgress(handlers.name)
        super().__init__(self._progress.parked, read_models, store, restless=EventHandlerError)
        self._handlers = handlers

    async def _call(self, stream: EventStream) -> None:
        await call_all(self._handlers, stream, at_once)

    def _to(self, aggregate_id: str, version: int) -> Callable[[Connection], None]:
        return partial(self._progress.advance, versions={aggregate_id: version})
