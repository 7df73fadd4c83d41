"""
Calls the handlers of a processor for one stream, in the order of events and priorities.

Used by the runner and by retries of parked events. It knows no database and no subscription.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from headrace._runtime.handler_deadline import HANDLER_MS_MAX, Deadline
from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream
from headrace.errors import EventHandlerError
from headrace.handlers.event_handlers import EventHandler, EventHandlers
from headrace.subjects.hidden import hide_personal

__all__ = ["Retry", "call_all", "call_once"]

# Takes a handler and a call of it. Calls until it succeeds, or raises the error of the last attempt.
Retry = Callable[[EventHandler, Callable[[], Awaitable[None]]], Awaitable[None]]


async def call_once(_handler: EventHandler, call: Callable[[], Awaitable[None]]) -> None:
    """Calls a handler once."""
    await call()


async def call_all(handlers: EventHandlers, stream: EventStream, retry: Retry) -> None:
    """Calls every handler for every event of a stream; returns when all are done.

    Events come one after another. For each event, handlers of one priority run at the same time, before
    those of the next priority. Each handler is retried alone: one that is done is not called again. An
    attempt that takes longer than HANDLER_MS_MAX is cancelled and has failed.

    Raises:
        EventHandlerError: a handler failed for good; the others of its priority have ended, too.
    """
    for event, context in stream.contexts():
        for level in handlers.levels(type(event)):
            calls = [retry(handler, partial(_call, handler, event, context)) for handler in level]
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
    except Exception as error:  # of users' code; raised again
        if isinstance(error, TimeoutError) and deadline.expired():
            # Not a TimeoutError: that would mean that another system is away, and the runner would wait.
            raise EventHandlerError(f"it ran for more than {HANDLER_MS_MAX} ms") from error
        told = hide_personal(error, (event,))
    else:
        return
    raise told
