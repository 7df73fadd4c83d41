"""The conference in one process: nothing overbooked, nothing lost, whatever is paid or expires."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from headrace import App
from headrace.app import RunningApp
from samples.conference.application import make_app, seats
from samples.conference.orders import PayOrder, PlaceOrder
from samples.conference.seats import AddSeats, PlanConference

EVER = timedelta(days=1)
NEVER = timedelta(0)


@asynccontextmanager
async def planned(payment_within: timedelta, count: int) -> AsyncIterator[tuple[App, RunningApp]]:
    app = make_app(payment_within)
    async with app.run_local() as running:
        await running.bus.execute(PlanConference(conference_id="c", seats=count))
        yield app, running


async def until_seats(running: RunningApp, **wanted: int) -> None:
    """Waits until the read model shows these numbers; the test's own timeout is the bound."""
    while True:
        row = await running.read(seats).get("c")
        if row is not None and {name: getattr(row, name) for name in wanted} == wanted:
            return
        await asyncio.sleep(0)


async def state_of(running: RunningApp, order_id: str) -> str:
    """The name of the last event of an order."""
    stream = await running.store.read_stream(order_id)
    return type(stream[-1].events[-1]).__name__


async def until_state(running: RunningApp, order_id: str, state: str) -> None:
    while await state_of(running, order_id) != state:
        await asyncio.sleep(0)


async def test_an_order_that_is_paid_in_time_has_its_seats() -> None:
    async with planned(EVER, 5) as (_, running):
        await running.bus.execute(PlaceOrder(order_id="o", conference_id="c", seats=3))
        await until_state(running, "o", "OrderHeld")
        assert not (await running.bus.execute(PayOrder(order_id="o"))).error
        await until_seats(running, free=2, reserved=0, sold=3)


async def test_seats_that_are_not_paid_for_in_time_are_given_to_others() -> None:
    async with planned(NEVER, 2) as (_, running):
        await running.bus.execute(PlaceOrder(order_id="late", conference_id="c", seats=2))
        await until_state(running, "late", "OrderExpired")
        await until_seats(running, free=2, reserved=0, sold=0)
        refused = await running.bus.execute(PayOrder(order_id="late"))
        assert (refused.error, refused.sentence) == (
            "NotPayable",
            "order late is expired; only a held order can be paid",
        )


async def test_an_order_for_more_than_there_is_is_refused_with_the_reason() -> None:
    async with planned(EVER, 2) as (_, running):
        await running.bus.execute(PlaceOrder(order_id="big", conference_id="c", seats=3))
        await until_state(running, "big", "OrderRefused")
        await running.bus.execute(AddSeats(conference_id="c", seats=1))
        await running.bus.execute(PlaceOrder(order_id="fits", conference_id="c", seats=3))
        await until_state(running, "fits", "OrderHeld")


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_five_thousand_orders_for_five_hundred_seats_sell_exactly_five_hundred() -> None:
    orders = [f"o{number}" for number in range(5_000)]
    async with planned(EVER, 500) as (_, running):
        place = (PlaceOrder(order_id=order_id, conference_id="c", seats=1) for order_id in orders)
        await asyncio.gather(*map(running.bus.execute, place))
        for order_id in orders:
            while await state_of(running, order_id) == "OrderPlaced":
                await asyncio.sleep(0)
        pay = (PayOrder(order_id=order_id) for order_id in orders)
        results = await asyncio.gather(*map(running.bus.execute, pay))
        await until_seats(running, free=0, reserved=0, sold=500)
        assert sum(not result.error for result in results) == 500
        states = [await state_of(running, order_id) for order_id in orders]
        assert (states.count("OrderPaid"), states.count("OrderRefused")) == (500, 4_500)
