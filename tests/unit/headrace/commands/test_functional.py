"""Deciders have the guarantees of aggregate classes."""

import asyncio
from collections.abc import Iterable

import pytest

from headrace.app import App
from headrace.commands.command_handlers import CommandContext
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.decider import Decider
from headrace.domain.message import AggregateId, AggregateIdOf, Command, DomainEvent
from headrace.domain.value import ValueObject
from headrace.errors import DefinitionError, DomainError
from headrace.settings import Settings


class Place(ValueObject):
    row: str
    number: int


class Book(Command):
    place: AggregateIdOf[Place]
    guest: str


class Free(Command):
    place: AggregateIdOf[Place]


class Booked(DomainEvent):
    guest: str


class Freed(DomainEvent):
    pass


class Taken(DomainError):
    pass


class Booking(ValueObject):
    guest: str | None = None


def bookings() -> Decider[Booking]:
    seats = Decider("Seat", state=Booking)

    @seats.decide
    def book(command: Book, state: Booking) -> Iterable[DomainEvent]:
        if state.guest:
            raise Taken(f"{state.guest} sits there")
        return [Booked(guest=command.guest)]

    @seats.decide
    def free(command: Free, state: Booking) -> Iterable[DomainEvent]:
        return [Freed()] if state.guest else []

    @seats.evolve
    def booked(state: Booking, event: Booked) -> Booking:
        return Booking(guest=event.guest)

    @seats.evolve
    def freed(state: Booking, event: Freed) -> Booking:
        return Booking()

    return seats


def theatre() -> App:
    app = App("theatre")
    app.add(bookings())
    return app


SEAT = Place(row="a", number=1)


async def test_commands_of_a_decider_are_executed_rejected_and_left_unchanged():
    async with theatre().run_local() as running:
        execute = running.bus.execute
        nothing = await execute(Free(place=SEAT))
        booked = await execute(Book(place=SEAT, guest="Ann"), command_id="c-1")
        taken = await execute(Book(place=SEAT, guest="Bob"))
        again = await execute(Book(place=SEAT, guest="Ann"), command_id="c-1")
        freed = await execute(Free(place=SEAT))
        results = [nothing, booked, taken, again, freed]
        assert [(each.status, each.version) for each in results] == [
            ("unchanged", None),
            ("executed", 1),
            ("rejected", None),
            ("executed", 1),
            ("executed", 2),
        ]
        assert (taken.error, booked.aggregate_id) == ("Taken", "a:1")
        streams = await running.store.read_stream("a:1")
        assert [stream.aggregate_type for stream in streams] == ["Seat", "Seat"]


async def test_of_many_at_once_one_has_the_seat():
    async with theatre().run_local() as running:
        results = await asyncio.gather(
            *(running.bus.execute(Book(place=SEAT, guest=f"g-{n}")) for n in range(50))
        )
        assert sorted(each.status for each in results) == ["executed", *["rejected"] * 49]


class Opened(DomainEvent):
    pass


class Box(Aggregate):
    @applies
    def _opened(self, event: Opened) -> None:
        pass


class OpenBox(Command):
    box_id: AggregateId


@pytest.mark.parametrize("cached", [1, 100], ids=["forgotten", "in memory"])
async def test_an_id_that_another_class_has_is_taken(cached, tmp_path):
    app = theatre()
    app.add(Box)

    @app.handles
    async def open_box(command: OpenBox, context: CommandContext) -> None:
        box = Box(command.box_id)
        box.record(Opened())
        context.add(box)

    settings = Settings(aggregates_cached_max=cached, read_models=f"sqlite:///{tmp_path}/read.db")
    async with app.run_local(settings) as running:
        assert (await running.bus.execute(OpenBox(box_id="a:1"))).ok
        assert (await running.bus.execute(OpenBox(box_id="other"))).ok
        result = await running.bus.execute(Book(place=SEAT, guest="Ann"))
        assert (result.status, result.error) == ("rejected", "AggregateExists")
        assert len(await running.store.read_stream("a:1")) == 1


def test_a_command_has_one_handler_also_across_deciders():
    app = theatre()

    @app.handles
    async def book(command: Book, context: CommandContext) -> None:
        pass

    with pytest.raises(DefinitionError, match="Book has two handlers: a decider and"):
        _ = app.serializer
    other = App("theatre")
    other.add(bookings())
    second = Decider("Stool", state=Booking)

    @second.decide
    def book_stool(command: Book, state: Booking) -> Iterable[DomainEvent]:
        return []

    other.add(second)
    with pytest.raises(DefinitionError, match="Book has two handlers: Seat and Stool"):
        _ = other.serializer
