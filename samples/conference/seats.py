"""The seats of a conference. One aggregate decides over them, so they cannot be promised twice."""

from headrace import Aggregate, AggregateId, Command, DomainError, DomainEvent, applies


class PlanConference(Command):
    conference_id: AggregateId
    seats: int


class AddSeats(Command):
    conference_id: AggregateId
    seats: int


class ReserveSeats(Command):
    conference_id: AggregateId
    order_id: str
    seats: int


class SellSeats(Command):
    conference_id: AggregateId
    order_id: str


class ReleaseSeats(Command):
    conference_id: AggregateId
    order_id: str


class SeatsAdded(DomainEvent):
    seats: int


class SeatsReserved(DomainEvent):
    order_id: str
    seats: int


class SeatsSold(DomainEvent):
    order_id: str
    seats: int


class SeatsReleased(DomainEvent):
    order_id: str
    seats: int


class NotEnoughSeats(DomainError):
    """More seats were wished for than are free."""


class Conference(Aggregate):
    def initial_state(self) -> None:
        self.free = 0
        self.reserved: dict[str, int] = {}
        self.sold: set[str] = set()

    def add_seats(self, seats: int) -> None:
        self.record(SeatsAdded(seats=seats))

    def reserve(self, order_id: str, seats: int) -> None:
        if order_id in self.reserved or order_id in self.sold:
            return
        if seats > self.free:
            raise NotEnoughSeats(f"{self.free} seats are free, not {seats}")
        self.record(SeatsReserved(order_id=order_id, seats=seats))

    def sell(self, order_id: str) -> None:
        if order_id in self.reserved:
            self.record(SeatsSold(order_id=order_id, seats=self.reserved[order_id]))

    def release(self, order_id: str) -> None:
        if order_id in self.reserved:
            self.record(SeatsReleased(order_id=order_id, seats=self.reserved[order_id]))

    @applies
    def _added(self, event: SeatsAdded) -> None:
        self.free += event.seats

    @applies
    def _reserved(self, event: SeatsReserved) -> None:
        self.free -= event.seats
        self.reserved[event.order_id] = event.seats

    @applies
    def _sold(self, event: SeatsSold) -> None:
        del self.reserved[event.order_id]
        self.sold.add(event.order_id)

    @applies
    def _released(self, event: SeatsReleased) -> None:
        del self.reserved[event.order_id]
        self.free += event.seats
