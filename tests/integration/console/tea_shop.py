"""A tea shop: its projection and a handler fail on some pots until MENDED stands in the environment, and a process ends at once."""

import os
from typing import Any

from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainError,
    DomainEvent,
    End,
    EventContext,
    Process,
    Projection,
    applies,
)

MENDED = "TEA_SHOP_MENDED"
# Cups that the projection cannot apply, that no handler takes, and that are refused.
SPILLED, BROKEN, NONE = 40, 13, 0
# So many end an instance of the process.
LAST = 5


class Brew(Command):
    pot: AggregateId
    cups: int


class Brewed(DomainEvent):
    cups: int


class Empty(DomainError):
    """No cups were asked for."""


class Pot(Aggregate):
    def initial_state(self) -> None:
        self.cups = 0

    @applies
    def _brewed(self, event: Brewed) -> None:
        self.cups += event.cups


class Cups(BaseModel):
    pot: str
    cups: int


class Round(BaseModel):
    pot: str


cups = Projection("cups", row=Cups, key="pot")
rounds = Process("rounds", state=Round)
app = App("tea")
app.add(Pot, cups, rounds)


@cups.fold
def fold(row: Cups | None, event: Brewed, context: EventContext) -> Cups:
    if event.cups == SPILLED and MENDED not in os.environ:
        raise ValueError("no pot holds that many cups")
    return Cups(pot=context.aggregate_id, cups=(row.cups if row else 0) + event.cups)


@rounds.on
def begin(state: Round | None, event: Brewed, context: EventContext) -> Any:
    yield Round(pot=context.aggregate_id)
    if event.cups == LAST:
        yield End()


@app.handles
async def brew(command: Brew, context: CommandContext) -> None:
    if command.cups == BROKEN:
        raise ValueError("no such stove")
    if command.cups == NONE:
        raise Empty("no one wants tea")
    pot = await context.get_or_add(Pot, command.pot, lambda: Pot(command.pot))
    pot.record(Brewed(cups=command.cups))
