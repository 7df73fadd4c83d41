"""
The handlers that run: of deciders and of functions, with their resources, and middleware around them.

Turns a `Decider`, which knows no context, into an entry of the handler table. Used by `App`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.commands.command_handlers import CommandContext, CommandHandler, HandlerTable
from headrace.commands.middleware import Middleware, around
from headrace.domain.decider import Decider
from headrace.errors import AggregateNotFound, DefinitionError
from headrace.resources.parameters import Bind

__all__ = ["handler_of", "handler_table"]


def handler_table(
    deciders: Iterable[Decider[Any]],
    handlers: HandlerTable,
    middleware: Sequence[Middleware],
    bind: Bind,
) -> HandlerTable:
    """Returns the one handler of each command type, as it is called.

    Args:
        deciders: these decide without a handler of their own.
        handlers: as they were registered.
        middleware: put around each, the first one outermost.
        bind: gives a handler its resources.

    Raises:
        DefinitionError: a command type has two, or nothing provides what a handler wants.
    """
    table = HandlerTable(handlers.allowances)
    for decider in deciders:
        for command_type in decider.command_types:
            table.bind(command_type, around(handler_of(decider), middleware))
    for command_type, handler in handlers.by_type.items():
        if command_type in table.by_type:
            raise DefinitionError(
                f"{command_type.__name__} has two handlers: a decider and"
                f" {getattr(handler, '__qualname__', handler)}; remove one"
            )
        table.bind(command_type, around(bind(handler), middleware))
    return table


def handler_of(decider: Decider[Any]) -> CommandHandler:
    """Returns the handler of every command that a decider decides on."""
    aggregate_type = decider.aggregate_type

    async def decide(command: Any, context: CommandContext) -> None:
        try:
            aggregate = await context.get(aggregate_type, command.aggregate_id)
        except AggregateNotFound:
            # It may also be an aggregate of another class, which `add` or the store then finds.
            aggregate = aggregate_type(command.aggregate_id)
            decider.record(command, aggregate)
            if aggregate.recorded:
                context.add(aggregate)
        else:
            decider.record(command, aggregate)

    decide.__qualname__ = decider.name
    return decide
