"""A shop: orders that a process packs, bills by a process manager without a state, a projection, and messages."""

from typing import Any

from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    ApplicationMessage,
    Command,
    CommandContext,
    DomainError,
    DomainEvent,
    EventContext,
    MessageContext,
    Process,
    ProcessManager,
    Projection,
    applies,
)


class Order(Command):
    order: AggregateId
    item: str


class Pack(Command):
    order: AggregateId


class Bill(Command):
    bill: AggregateId


class Ordered(DomainEvent):
    item: str


class Packed(DomainEvent):
    pass


class Announced(ApplicationMessage):
    item: str


class SoldOut(DomainError):
    """There is no more of it."""


class Basket(Aggregate):
    def initial_state(self) -> None:
        self.items: list[str] = []

    @applies
    def _ordered(self, event: Ordered) -> None:
        self.items.append(event.item)

    @applies
    def _packed(self, event: Packed) -> None:
        self.items.clear()


class Line(BaseModel):
    order: str
    items: int


class Parcel(BaseModel):
    order: str


lines = Projection("lines", row=Line, key="order")
parcels = Process("parcels", state=Parcel)
bills = ProcessManager("bills")


@lines.fold
def line(row: Line | None, event: Ordered, context: EventContext) -> Line:
    if event.item == "poison":
        raise ValueError("no such item")
    return Line(order=context.aggregate_id, items=(row.items if row else 0) + 1)


@parcels.on
def begin(state: Parcel | None, event: Ordered, context: EventContext) -> Any:
    yield Parcel(order=context.aggregate_id)
    yield Pack(order=context.aggregate_id)


@bills.on
def bill(event: Packed, context: EventContext) -> Any:
    yield Bill(bill=f"bill of {context.aggregate_id}")


shop = App("shop")
shop.add(Basket, lines, parcels, bills)


@shop.handles
async def order(command: Order, context: CommandContext) -> None:
    if command.item == "tea":
        raise SoldOut("no tea is left")
    if command.item == "broken":
        raise ValueError("no such shelf")
    basket = await context.get_or_add(Basket, command.order, lambda: Basket(command.order))
    basket.record(Ordered(item=command.item))
    context.publish(Announced(item=command.item))


@shop.handles
async def pack(command: Pack, context: CommandContext) -> None:
    (await context.get(Basket, command.order)).record(Packed())


@shop.handles
async def send_bill(command: Bill, context: CommandContext) -> None: ...


@shop.on_message
async def announce(message: Announced, context: MessageContext) -> None: ...
