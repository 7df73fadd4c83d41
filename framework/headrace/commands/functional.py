"""
Handlers of deciders: the functional form of an aggregate as the class form's handler.

Turns a `Decider`, which knows no context, into an entry of the handler table.
"""

from typing import Any

from headrace.commands.command_handlers import CommandContext, CommandHandler
from headrace.domain.decider import Decider
from headrace.errors import AggregateNotFound

__all__ = ["handler_of"]


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
