"""
Middleware: functions around every handler, for checks, permissions and traces.

Used by applications, which register middleware; runs around the handlers. A middleware may look at
the command and its context, refuse with a `DomainError`, and go on with `call_next`.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from headrace.commands.command_handlers import CommandContext, CommandHandler
from headrace.errors import DefinitionError

__all__ = ["Middleware", "Next", "around", "check_middleware"]

# Goes on with the next middleware, or the handler.
Next = Callable[[], Awaitable[None]]
Middleware = Callable[[CommandContext, Next], Awaitable[None]]

_ARGUMENTS = 2


def check_middleware(function: Any) -> None:
    """Raises DefinitionError unless it is `async def f(context, call_next)`."""
    if (
        not inspect.iscoroutinefunction(function)
        or len(inspect.signature(function).parameters) != _ARGUMENTS
    ):
        name = getattr(function, "__qualname__", repr(function))
        raise DefinitionError(
            f"middleware {name}: write it as"
            " `async def f(context: CommandContext, call_next: Next) -> None`"
        )


def around(handler: CommandHandler, middleware: Sequence[Middleware]) -> CommandHandler:
    """Returns the handler with middleware around it, the first one outermost."""
    if not middleware:
        return handler

    async def surrounded(command: Any, context: CommandContext) -> None:
        await _step(0, command, context)

    async def _step(place: int, command: Any, context: CommandContext) -> None:
        if place == len(middleware):
            await handler(command, context)
        else:
            await middleware[place](context, _Once(partial(_step, place + 1, command, context)))

    return surrounded


class _Once:
    """Calls what comes next, once: a handler that ran twice would decide twice."""

    __slots__ = ("_next",)

    def __init__(self, next_step: Next) -> None:
        self._next: Next | None = next_step

    def __call__(self) -> Awaitable[None]:
        if self._next is None:
            raise RuntimeError("a middleware called call_next twice; call it once, or not at all")
        next_step, self._next = self._next, None
        return next_step()
