"""From an order to its seats and back. Seats that are not paid in time are given to others."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import BaseModel

from headrace import (
    Command,
    Compensate,
    End,
    EventContext,
    Later,
    Process,
    Rejection,
    Undo,
)
from samples.conference.orders import (
    ExpireOrder,
    HoldOrder,
    OrderExpired,
    OrderPaid,
    OrderPlaced,
    RefuseOrder,
)
from samples.conference.seats import ReleaseSeats, ReserveSeats, SeatsReserved, SellSeats


class Registration(BaseModel):
    conference_id: str
    seats: int
    pay_by: datetime | None = None


Steps = Iterable[Registration | Command | Later | Undo | Compensate | End]


def make_registrations(payment_within: timedelta) -> Process[Registration]:
    """The process, with an instance per order; an order has so long to be paid."""
    registrations = Process("registrations", state=Registration)

    @registrations.on
    def placed(state: Registration | None, event: OrderPlaced, context: EventContext) -> Steps:
        order_id = context.aggregate_id
        yield Registration(conference_id=event.conference_id, seats=event.seats)
        yield ReserveSeats(conference_id=event.conference_id, order_id=order_id, seats=event.seats)

    @registrations.on_rejection
    def no_seats(state: Registration, command: ReserveSeats, rejection: Rejection) -> Steps:
        yield RefuseOrder(order_id=command.order_id, reason=rejection.sentence)
        yield End()

    @registrations.on(key="order_id")
    def reserved(state: Registration, event: SeatsReserved, context: EventContext) -> Steps:
        pay_by = context.recorded_at + payment_within
        yield state.model_copy(update={"pay_by": pay_by})
        yield Undo(ReleaseSeats(conference_id=state.conference_id, order_id=event.order_id))
        yield HoldOrder(order_id=event.order_id, pay_by=pay_by)
        yield Later(ExpireOrder(order_id=event.order_id), at=pay_by)

    @registrations.on
    def paid(state: Registration, event: OrderPaid, context: EventContext) -> Steps:
        yield SellSeats(conference_id=state.conference_id, order_id=context.aggregate_id)
        yield End()

    @registrations.on
    def expired(state: Registration, event: OrderExpired, context: EventContext) -> Steps:
        yield Compensate()
        yield End()

    return registrations
