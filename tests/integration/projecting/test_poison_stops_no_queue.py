"""One poison event and thousands of others in one queue: who reacts parks it, and reacts to the rest."""

import asyncio
import smtplib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Process,
    ProcessManager,
    Settings,
    applies,
)
from headrace._runtime.backoff import Backoff
from headrace.app import RunningApp
from headrace.errors import AggregateNotFound
from headrace_mq import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings

# More than a consumer goes on ahead of its oldest unfinished message, which is 2,000.
OTHERS = 3_000
POISON = "poison"


class Order(Command):
    order_id: AggregateId


class Ordered(DomainEvent):
    pass


class Delivery(BaseModel):
    orders: int = 0


class Ordering(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _ordered(self, event: Ordered) -> None: ...


class Shop:
    """An application whose code cannot do with one order of all, until it is mended."""

    def __init__(self) -> None:
        self.mended = False
        self.reacted: dict[str, list[str]] = {"manager": [], "process": [], "mail": []}
        self.app = App("shop")
        self.manager = ProcessManager("packing")
        self.process = Process("delivering", state=Delivery)
        self.app.add(Ordering, self.manager, self.process)

        @self.app.handles
        async def order(command: Order, context: CommandContext) -> None:
            try:
                ordering = await context.get(Ordering, command.order_id)
            except AggregateNotFound:
                ordering = Ordering(command.order_id)
                context.add(ordering)
            ordering.record(Ordered())

        @self.manager.on
        def packed(event: Ordered, context: EventContext) -> Iterable[Command]:
            return self._note("manager", context, OSError("no box is large enough"))

        def key(event: Ordered, context: EventContext) -> str:
            self._note("process", context, KeyError("no such customer"))
            return context.aggregate_id

        @self.process.on(key=key)
        def delivered(
            state: Delivery | None, event: Ordered, context: EventContext
        ) -> Iterable[Any]:
            yield Delivery(orders=1 + (state.orders if state else 0))

        @self.app.on_event(processor="mail")
        async def mail(event: Ordered, context: EventContext) -> None:
            refused = {"ann@example.org": (550, b"no such user")}
            self._note("mail", context, smtplib.SMTPRecipientsRefused(refused))

    def _note(self, who: str, context: EventContext, error: Exception) -> list[Any]:
        if context.aggregate_id == POISON and not self.mended:
            raise error
        self.reacted[who].append(context.event_id)
        return []

    def others(self, who: str) -> int:
        return len({one for one in self.reacted[who] if not one.startswith(POISON)})

    def poisonous(self, who: str) -> list[str]:
        return [one for one in self.reacted[who] if one.startswith(POISON)]

    def parked(self, running: RunningApp) -> dict[str, Any]:
        return {
            "manager": running.process_letters(self.manager),
            "process": running.process_letters(self.process),
            "mail": running.handler_letters(self.app.event_handlers("mail")),
        }


@pytest.fixture(params=["in this process", "broker"])
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Settings]:
    local = Settings(
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
        event_queues=1,
        error_retries_max=1,
        retry_ms_min=1,
        alarm_check_ms=1,
    )
    if request.param != "broker":
        yield local
        return
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=8 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    try:
        yield local.model_copy(update={"broker": broker.address})
    finally:
        await broker.aclose()


async def until(condition: Callable[[], Any]) -> None:
    """Lets the others run until the condition holds; the test's own timeout is the bound."""
    looks, attempt = Backoff(ms_min=5, ms_max=50), 0
    while not condition():
        attempt += 1
        await looks.pause(attempt)


@pytest.mark.slow
async def test_an_unhandled_event_is_parked_and_thousands_behind_it_flow(
    settings: Settings,
) -> None:
    shop = Shop()
    async with shop.app.run(settings) as running:
        for _ in range(3):
            await running.bus.execute(Order(order_id=POISON))
        for first in range(0, OTHERS, 500):
            orders = (f"order-{number}" for number in range(first, first + 500))
            await asyncio.gather(*(running.bus.send(Order(order_id=each)) for each in orders))
        await until(lambda: all(shop.others(who) == OTHERS for who in shop.reacted))
        for who, parked in shop.parked(running).items():
            (letter,) = await parked.all()
            assert (letter.aggregate_id, letter.version, letter.held) == (POISON, 0, 3), who
            assert shop.poisonous(who) == []
        assert running.watch is not None
        names = {"process:packing", "process:delivering", "handlers:mail"}
        alarms = running.watch.alarms
        await until(lambda: {one.projection for one in alarms.current} == names)
    if settings.broker is None:
        return  # with it the topic and the commands are gone
    async with shop.app.run(settings) as running:
        await running.bus.execute(Order(order_id=POISON))
        shop.mended = True
        for parked in shop.parked(running).values():
            (letter,) = await parked.all()
            assert letter.version == 0
            assert await parked.retry(POISON) is None
        await running.bus.execute(Order(order_id=POISON), wait_for="handled")
    for who in ("manager", "mail"):
        events = [f"{POISON}/{version}/1" for version in range(1, 6)]
        assert list(dict.fromkeys(shop.poisonous(who))) == events, who
