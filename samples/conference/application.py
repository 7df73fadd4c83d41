"""The conference's App: `headrace run --app samples.conference:app`."""

from datetime import timedelta

from pydantic import BaseModel

from headrace import App, CommandContext, EventContext, Projection
from samples.conference.orders import (
    ExpireOrder,
    HoldOrder,
    Order,
    PayOrder,
    PlaceOrder,
    RefuseOrder,
)
from samples.conference.registrations import make_registrations
from samples.conference.seats import (
    AddSeats,
    Conference,
    PlanConference,
    ReleaseSeats,
    ReserveSeats,
    SeatsAdded,
    SeatsReleased,
    SeatsReserved,
    SeatsSold,
    SellSeats,
)


class Seats(BaseModel):
    conference_id: str
    free: int = 0
    reserved: int = 0
    sold: int = 0


seats = Projection("conference_seats", row=Seats, key="conference_id")


@seats.fold
def added(row: Seats | None, event: SeatsAdded, context: EventContext) -> Seats:
    row = row or Seats(conference_id=context.aggregate_id)
    return row.model_copy(update={"free": row.free + event.seats})


@seats.fold
def reserved(row: Seats, event: SeatsReserved, context: EventContext) -> Seats:
    change = {"free": row.free - event.seats, "reserved": row.reserved + event.seats}
    return row.model_copy(update=change)


@seats.fold
def sold(row: Seats, event: SeatsSold, context: EventContext) -> Seats:
    change = {"reserved": row.reserved - event.seats, "sold": row.sold + event.seats}
    return row.model_copy(update=change)


@seats.fold
def released(row: Seats, event: SeatsReleased, context: EventContext) -> Seats:
    change = {"reserved": row.reserved - event.seats, "free": row.free + event.seats}
    return row.model_copy(update=change)


def make_app(payment_within: timedelta = timedelta(minutes=15)) -> App:
    """The application; an order has so long to be paid."""
    app = App("conference")
    app.add(Conference, Order, seats, make_registrations(payment_within))

    @app.handles
    async def plan(command: PlanConference, context: CommandContext) -> None:
        conference = Conference(command.conference_id)
        conference.add_seats(command.seats)
        context.add(conference)

    @app.handles
    async def add_seats(command: AddSeats, context: CommandContext) -> None:
        (await context.get(Conference, command.conference_id)).add_seats(command.seats)

    @app.handles
    async def reserve(command: ReserveSeats, context: CommandContext) -> None:
        conference = await context.get(Conference, command.conference_id)
        conference.reserve(command.order_id, command.seats)

    @app.handles
    async def sell(command: SellSeats, context: CommandContext) -> None:
        (await context.get(Conference, command.conference_id)).sell(command.order_id)

    @app.handles
    async def release(command: ReleaseSeats, context: CommandContext) -> None:
        (await context.get(Conference, command.conference_id)).release(command.order_id)

    @app.handles
    async def place(command: PlaceOrder, context: CommandContext) -> None:
        order = Order(command.order_id)
        order.place(command.conference_id, command.seats)
        context.add(order)

    @app.handles
    async def hold(command: HoldOrder, context: CommandContext) -> None:
        (await context.get(Order, command.order_id)).hold(command.pay_by)

    @app.handles
    async def refuse(command: RefuseOrder, context: CommandContext) -> None:
        (await context.get(Order, command.order_id)).refuse(command.reason)

    @app.handles
    async def pay(command: PayOrder, context: CommandContext) -> None:
        (await context.get(Order, command.order_id)).pay()

    @app.handles
    async def expire(command: ExpireOrder, context: CommandContext) -> None:
        (await context.get(Order, command.order_id)).expire()

    return app


app = make_app()
