"""An order. It alone decides whether it is paid or expired, whichever command comes first."""

from datetime import datetime

from headrace import Aggregate, AggregateId, Command, DomainError, DomainEvent, applies


class PlaceOrder(Command):
    order_id: AggregateId
    conference_id: str
    seats: int


class HoldOrder(Command):
    order_id: AggregateId
    pay_by: datetime


class RefuseOrder(Command):
    order_id: AggregateId
    reason: str


class PayOrder(Command):
    order_id: AggregateId


class ExpireOrder(Command):
    order_id: AggregateId


class OrderPlaced(DomainEvent):
    conference_id: str
    seats: int


class OrderHeld(DomainEvent):
    pay_by: datetime


class OrderRefused(DomainEvent):
    reason: str


class OrderPaid(DomainEvent):
    conference_id: str


class OrderExpired(DomainEvent):
    conference_id: str


class NotPayable(DomainError):
    """The order has no seats to pay for."""


class Order(Aggregate):
    def initial_state(self) -> None:
        self.state = "new"
        self.conference_id = ""

    def place(self, conference_id: str, seats: int) -> None:
        self.record(OrderPlaced(conference_id=conference_id, seats=seats))

    def hold(self, pay_by: datetime) -> None:
        if self.state == "placed":
            self.record(OrderHeld(pay_by=pay_by))

    def refuse(self, reason: str) -> None:
        if self.state == "placed":
            self.record(OrderRefused(reason=reason))

    def pay(self) -> None:
        if self.state == "paid":
            return
        if self.state != "held":
            raise NotPayable(f"order {self.id} is {self.state}; only a held order can be paid")
        self.record(OrderPaid(conference_id=self.conference_id))

    def expire(self) -> None:
        if self.state in {"placed", "held"}:
            self.record(OrderExpired(conference_id=self.conference_id))

    @applies
    def _placed(self, event: OrderPlaced) -> None:
        self.state, self.conference_id = "placed", event.conference_id

    @applies
    def _held(self, event: OrderHeld) -> None:
        self.state = "held"

    @applies
    def _refused(self, event: OrderRefused) -> None:
        self.state = "refused"

    @applies
    def _paid(self, event: OrderPaid) -> None:
        self.state = "paid"

    @applies
    def _expired(self, event: OrderExpired) -> None:
        self.state = "expired"
