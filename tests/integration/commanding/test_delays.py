"""A command that a process sends after a delay: no clock that is set makes it shorter or longer."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Later,
    ProcessManager,
    applies,
)
from headrace._runtime.backoff import Backoff
from headrace.settings import Settings
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.clock import ManualClock

LOOKS = Backoff(ms_min=5, ms_max=20)
DELAY_MS = 15 * 60_000
HOUR_MS = 3_600_000


class Ordered(DomainEvent):
    pass


class Reminded(DomainEvent):
    pass


class Order(Command):
    order_id: AggregateId


class Remind(Command):
    order_id: AggregateId


class Ordering(Aggregate):
    @applies
    def _ordered(self, event: Ordered) -> None: ...

    @applies
    def _reminded(self, event: Reminded) -> None: ...


def shop() -> App:
    app = App("shop")
    reminding = ProcessManager("reminding")
    app.add(Ordering, reminding)

    @app.handles
    async def order(command: Order, context: CommandContext) -> None:
        ordering = Ordering(command.order_id)
        ordering.record(Ordered())
        context.add(ordering)

    @app.handles
    async def remind(command: Remind, context: CommandContext) -> None:
        (await context.get(Ordering, command.order_id)).record(Reminded())

    @reminding.on
    def remind_later(event: Ordered, context: EventContext) -> Iterable[Later]:
        delay = timedelta(milliseconds=DELAY_MS)
        yield Later(Remind(order_id=context.aggregate_id), delay=delay)

    return app


@pytest.mark.parametrize("wrong_ms", [2 * HOUR_MS, -10 * HOUR_MS, 9_000 * HOUR_MS])
async def test_a_delay_is_that_of_time_that_passed(tmp_path: Path, wrong_ms: int) -> None:
    # The broker lives in 2024, its clients in the time of this machine.
    clock = ManualClock()
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=8 << 20)

    async def start(port: int = 0) -> Broker:
        broker = Broker(BrokerSettings(store=store, port=port), clock=clock)
        await broker.start()
        return broker

    async def left_ms() -> int:
        """How long the message has to wait; it is in the queue by then, and waits alone."""
        async with AdminClient(broker.address) as admin:
            while (told := await admin.scheduled()).pending != 1:
                await LOOKS.pause(1)
        return told.next_due_at_ms - clock.now_ms()

    broker = await start()
    port = int(broker.address.rpartition(":")[2])
    settings = Settings(
        broker=broker.address,
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
    )
    async with shop().run(settings) as running:
        await running.bus.execute(Order(order_id="o"), wait_for="handled")
        assert await left_ms() == DELAY_MS
        clock.set(clock.now_ms() + wrong_ms)
        assert await left_ms() == DELAY_MS
        clock.advance(60_000)
        await broker.aclose()
        clock.set(clock.now_ms() - 3 * wrong_ms)
        broker = await start(port)
        assert await left_ms() == DELAY_MS - 60_000
        clock.advance(DELAY_MS - 60_001)
        assert await left_ms() == 1
        clock.advance(1)
        while len(await running.store.read_stream("o")) < 2:
            await LOOKS.pause(1)
        (reminded,) = (await running.store.read_stream("o"))[1].events
        assert isinstance(reminded, Reminded)
    await broker.aclose()
