"""
One stream through the handlers of a processor, in the order of its events and of priorities.

Sits between: `EventHandlers`, which knows the order, and whoever feeds streams. Must never know a
database or a subscription.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from headrace._runtime.handler_deadline import HANDLER_MS_MAX, Deadline
from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream
from headrace.errors import EventHandlerError
from headrace.handlers.event_handlers import EventHandler, EventHandlers

__all__ = ["Attempting", "at_once", "call_all"]

# Makes attempts at one call of a handler until it succeeds, or raises what the last one raised.
Attempting = Callable[[EventHandler, Callable[[], Awaitable[None]]], Awaitable[None]]


async def at_once(_handler: EventHandler, call: Callable[[], Awaitable[None]]) -> None:
    """Makes one attempt."""
    await call()


async def call_all(handlers: EventHandlers, stream: EventStream, attempting: Attempting) -> None:
    """Returns when every handler of every event of a stream has done its work.

    Events come one after another, and for each the handlers of one priority at once, before those
    of the next. Each handler is tried again by itself: one that is done is not called again. An
    attempt that takes longer than HANDLER_MS_MAX is ended and has failed.

    Raises:
        EventHandlerError: a handler failed for good; those beside it have ended, too.
    """
    for event, context in stream.contexts():
        for level in handlers.levels(type(event)):
            calls = [
                attempting(handler, partial(_call, handler, event, context)) for handler in level
            ]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            for handler, outcome in zip(level, outcomes, strict=True):
                if outcome is not None:
                    raise EventHandlerError(
                        f"{getattr(handler, '__qualname__', handler)} failed at"
                        f" {event.message_name} {context.event_id}: {outcome!r}"
                    ) from outcome


async def _call(handler: EventHandler, event: DomainEvent, context: EventContext) -> None:
    deadline = Deadline()
    try:
        await deadline.run(handler(event, context))
    except TimeoutError as error:
        if not deadline.expired():
            raise
        # Not as TimeoutError, which says that something else is away and may be waited for.
        raise EventHandlerError(f"it ran for more than {HANDLER_MS_MAX} ms") from error
