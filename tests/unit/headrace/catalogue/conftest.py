"""An application with a part of every kind, and its definition."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    ApplicationMessage,
    Command,
    CommandContext,
    Decider,
    DomainEvent,
    EventContext,
    MessageContext,
    ProcessManager,
    Projection,
    applies,
)


class Sell(Command):
    """Sells pieces, if there are | enough."""

    product: AggregateId
    pieces: int = 1
    tags: list[str] | None = None


class Recount(Command, internal=True, topic="slow", version=2):
    product: AggregateId


class Sold(DomainEvent):
    """Pieces <left> the shop."""

    pieces: int


class Counted(DomainEvent):
    pass


class Told(ApplicationMessage):
    text: str


class Product(Aggregate):
    @applies
    def _sold(self, event: Sold) -> None: ...


class Row(BaseModel):
    """What is left of each product."""

    product: str
    left: int | None


def make_app() -> App:
    app, manager = App("shop"), ProcessManager("ordering")
    rows, counts = Projection("rows", row=Row, key="product"), Decider("Count", state=dict)
    app.add(Product, manager, rows, counts)

    @counts.decide
    def recount(command: Recount, state: dict[str, Any]) -> Iterable[DomainEvent]:
        return [Counted()]

    @counts.evolve
    def counted(state: dict[str, Any], event: Counted) -> dict[str, Any]:
        return state

    @app.handles
    async def sell(command: Sell, context: CommandContext) -> None: ...

    @app.on_event(processor="mail")
    async def mail(event: DomainEvent, context: EventContext) -> None: ...

    @app.on_message
    async def tell(message: Told, context: MessageContext) -> None: ...

    @rows.fold
    def left(row: Row | None, event: Sold, context: EventContext) -> Row:
        return Row(product=context.aggregate_id, left=None)

    @manager.on
    def order(event: Sold, context: EventContext) -> Iterable[Command]:
        return []

    @app.periodic("0 3 * * *")
    def nightly(moment: datetime) -> Command:
        return Recount(product="all")

    return app


@pytest.fixture
def shop() -> App:
    return make_app()
