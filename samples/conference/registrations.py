"""From an order to its seats and back. Seats that are not paid in time are given to others."""

from collections.abc import Iterable
from datetime import timedelta

from headrace import Command, EventContext, Later, ProcessManager, Rejection
from samples.conference.orders import (
    ExpireOrder,
    HoldOrder,
    OrderExpired,
    OrderPaid,
    OrderPlaced,
    RefuseOrder,
)
from samples.conference.seats import ReleaseSeats, ReserveSeats, SeatsReserved, SellSeats


def make_registrations(payment_within: timedelta) -> ProcessManager:
    """The process manager; an order has so long to be paid."""
    registrations = ProcessManager("registrations")

    @registrations.on
    def placed(event: OrderPlaced, context: EventContext) -> Iterable[Command]:
        yield ReserveSeats(
            conference_id=event.conference_id, order_id=context.aggregate_id, seats=event.seats
        )

    @registrations.on_rejection
    def no_seats(command: ReserveSeats, rejection: Rejection) -> Iterable[Command]:
        yield RefuseOrder(order_id=command.order_id, reason=rejection.sentence)

    @registrations.on
    def reserved(event: SeatsReserved, context: EventContext) -> Iterable[Command | Later]:
        pay_by = context.recorded_at + payment_within
        yield HoldOrder(order_id=event.order_id, pay_by=pay_by)
        yield Later(ExpireOrder(order_id=event.order_id), at=pay_by)

    @registrations.on
    def paid(event: OrderPaid, context: EventContext) -> Iterable[Command]:
        yield SellSeats(conference_id=event.conference_id, order_id=context.aggregate_id)

    @registrations.on
    def expired(event: OrderExpired, context: EventContext) -> Iterable[Command]:
        yield ReleaseSeats(conference_id=event.conference_id, order_id=context.aggregate_id)

    return registrations
