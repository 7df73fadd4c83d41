"""A process manager's loop: every command sent, in order per aggregate, nothing lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace._domain.message import Command
from headrace._projecting.process_runner import ProcessManagerRunner
from headrace._projecting.workflows import ProcessManager
from headrace.errors import CommandRefused, CommandTimeout
from headrace.serialization import CommandEnvelope


class FakeBus:
    """Takes commands; fails or waits when told to."""

    def __init__(self) -> None:
        self.sent: list[CommandEnvelope] = []
        self.errors: list[Exception] = []
        self.waiting: dict[str, asyncio.Event] = {}

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        if self.errors:
            raise self.errors.pop(0)
        if envelope.command.aggregate_id in self.waiting:
            await self.waiting[envelope.command.aggregate_id].wait()
        self.sent.append(envelope)

    def amounts(self, aggregate_id: str) -> list[int]:
        return [
            getattr(envelope.command, "amount")  # noqa: B009 - the type is one of the conftest's
            for envelope in self.sent
            if envelope.command.aggregate_id == aggregate_id
        ]


@pytest.fixture
def bus() -> FakeBus:
    return FakeBus()


@pytest.fixture
def make_runner(
    domain: Any, transport: Any, bus: FakeBus, serializer: Any, settings: Any
) -> Callable[[], ProcessManagerRunner]:
    manager = ProcessManager("copying")

    @manager.on
    def added(event: domain.Added, context: Any) -> Iterable[Command]:
        if event.amount == 666:
            raise RuntimeError("this amount is not bearable")
        yield domain.Add(counter_id=f"{context.aggregate_id}-copy", amount=event.amount)

    @manager.on_rejection
    def refused(command: domain.Add, rejection: Any) -> Iterable[Command]:
        yield domain.Add(counter_id="refused", amount=command.amount)

    def make() -> ProcessManagerRunner:
        return ProcessManagerRunner(
            manager=manager,
            app_name="shop",
            transport=transport,
            bus=bus,
            serializer=serializer,
            settings=settings,
        )

    return make


@asynccontextmanager
async def running(runner: ProcessManagerRunner) -> AsyncIterator[None]:
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Any]) -> None:
    """Lets the others run until the condition holds; the test's own timeout is the bound."""
    while not condition():
        await asyncio.sleep(0)


def acked(transport: Any) -> int:
    return sum(len(subscription.acked) for subscription in transport.subscriptions)


async def test_events_and_rejections_become_commands_and_are_acknowledged(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus
) -> None:
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("b", 1, domain.Noted(text="nobody reacts")))
    transport.put(domain.rejection("a", "c-9"))
    async with running(make_runner()):
        await until(lambda: acked(transport) == 3)
    assert transport.groups == ["shop.process.copying"]
    assert (bus.amounts("a-copy"), bus.amounts("refused")) == ([1], [5])
    assert transport.subscriptions[0].closed


async def test_commands_of_one_aggregate_are_sent_in_order_and_a_slow_one_holds_up_no_other(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus
) -> None:
    bus.waiting["a-copy"] = asyncio.Event()
    for version in (1, 2, 3):
        transport.put(domain.stream("a", version))
        transport.put(domain.stream("b", version))
    async with running(make_runner()):
        await until(lambda: bus.amounts("b-copy") == [1, 2, 3])
        assert bus.amounts("a-copy") == []
        bus.waiting["a-copy"].set()
        await until(lambda: acked(transport) == 6)
    assert bus.amounts("a-copy") == [1, 2, 3]


async def test_what_concerns_nobody_waits_for_no_other_aggregate_and_for_its_own_one_only(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus
) -> None:
    bus.waiting["a-copy"] = asyncio.Event()
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("a", 2, domain.Noted(text="nobody reacts")))
    for version in range(1, 601):  # more than may be reacted to at once
        transport.put(domain.stream("b", version, domain.Noted(text="nobody reacts")))
    async with running(make_runner()):
        await until(lambda: acked(transport) == 600)
        bus.waiting["a-copy"].set()
        await until(lambda: acked(transport) == 602)
    assert [envelope.command.aggregate_id for envelope in bus.sent] == ["a-copy"]


async def test_a_queue_that_is_away_is_waited_out_without_limit(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any
) -> None:
    bus.errors = [CommandRefused("away"), CommandTimeout("away"), ConnectionResetError()] * 5
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("a", 2))
    async with running(make_runner()):
        await until(lambda: acked(transport) == 2)
    assert bus.amounts("a-copy") == [1, 2]
    assert [entry["attempt"] for entry in logs] == [1, 2, 4, 8]


async def test_a_handler_that_fails_holds_its_aggregate_and_no_other(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any
) -> None:
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("a", 2, domain.Added(amount=666)))
    transport.put(domain.stream("a", 3))
    transport.put(domain.stream("b", 1))
    runner = make_runner()
    async with running(runner):
        await until(lambda: acked(transport) == 2 and runner.held)
        transport.put(domain.stream("a", 4))
        transport.put(domain.stream("b", 2))
        await until(lambda: acked(transport) == 3)
    assert runner.held == {"a"}
    assert (bus.amounts("a-copy"), bus.amounts("b-copy")) == ([1], [1, 2])
    (held,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert (held["aggregate_id"], held["offset"]) == ("a", 1)


async def test_a_message_that_does_not_decode_is_held(
    make_runner: Any, transport: Any, domain: Any, logs: Any
) -> None:
    transport.put_raw((domain.topic, 0), "a", b'{"aggregate_id": "a"}')
    runner = make_runner()
    async with running(runner):
        await until(lambda: runner.held)
    assert acked(transport) == 0


async def test_what_was_held_is_tried_again_after_a_restart_with_the_same_command_ids(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any
) -> None:
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("a", 2))
    bus.errors = [RuntimeError("odd")] * 3
    runner = make_runner()
    async with running(runner):
        await until(lambda: runner.held)
        assert bus.sent == []
    for total in (2, 4):
        async with running(make_runner()):
            await until(lambda: acked(transport) == total)  # noqa: B023 - awaited at once
    assert bus.amounts("a-copy") == [1, 2, 1, 2]
    assert len({envelope.command_id for envelope in bus.sent}) == 2


async def test_a_subscription_that_breaks_is_made_anew(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any
) -> None:
    transport.broken = ["connection lost"] * 4
    transport.put(domain.stream("a", 1))
    async with running(make_runner()):
        await until(lambda: acked(transport) == 1)
    assert len(transport.subscriptions) == 5
    assert [entry["attempt"] for entry in logs] == [1, 2, 3, 4]


async def test_what_waits_is_bounded(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus
) -> None:
    bus.waiting["a-copy"] = asyncio.Event()
    for version in range(1, 601):
        transport.put(domain.stream("a", version), queue=0)
    transport.poll_max = 100
    async with running(make_runner()):
        # Five polls fill the room; the sixth waits before its first message.
        await until(
            lambda: (
                transport.subscriptions
                and transport.subscriptions[0].positions.get((domain.topic, 0)) == 600
            )
        )
        bus.waiting["a-copy"].set()
        await until(lambda: acked(transport) == 600)
    assert bus.amounts("a-copy") == list(range(1, 601))
