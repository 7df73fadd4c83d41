"""A process manager's loop: every command sent, in order per aggregate, nothing lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.message import Command
from headrace.errors import CommandRefused, CommandTimeout
from headrace.processes.letters import ProcessManagerLetters
from headrace.processes.process_manager import Later, ProcessManager
from headrace.processes.process_manager_runner import ProcessManagerRunner
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
def broken() -> set[str]:
    """What the code cannot do yet."""
    return {"666"}


@pytest.fixture
def manager(domain: Any, broken: set[str]) -> ProcessManager:
    manager = ProcessManager("copying")

    @manager.on
    def added(event: domain.Added, context: Any) -> Iterable[Command]:
        if event.amount == 666 and "666" in broken:
            raise FileNotFoundError("this amount is not bearable")
        yield domain.Add(counter_id=f"{context.aggregate_id}-copy", amount=event.amount)

    @manager.on_rejection
    def refused(command: domain.Add, rejection: Any) -> Iterable[Command]:
        if "rejections" in broken:
            raise RuntimeError("no rejection is bearable")
        yield domain.Add(counter_id="refused", amount=command.amount)

    return manager


@pytest.fixture
def make_runner(
    manager: ProcessManager,
    transport: Any,
    bus: FakeBus,
    serializer: Any,
    settings: Any,
    sqlite_models: Any,
    clock: Any,
) -> Callable[..., ProcessManagerRunner]:
    def make(models: Any = sqlite_models, **changes: Any) -> ProcessManagerRunner:
        return ProcessManagerRunner(
            manager=manager,
            app_name="shop",
            read_models=models,
            transport=transport,
            bus=bus,
            serializer=serializer,
            settings=settings.model_copy(update=changes),
            clock=clock,
            sweep_ms=1,
        )

    return make


@pytest.fixture
def letters(
    manager: ProcessManager, bus: FakeBus, sqlite_models: Any, store: Any, serializer: Any
) -> ProcessManagerLetters:
    return ProcessManagerLetters(manager, bus, sqlite_models, store, serializer)


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


async def test_messages_without_commands_wait_for_their_own_aggregate_only(
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


async def test_a_command_that_the_queue_can_never_take_parks_the_aggregate_of_its_event(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any, letters: Any
) -> None:
    refusal = CommandRefused("command x was not handed over: over the broker's limit")
    refusal.__cause__ = ValueError("over the broker's limit")
    bus.errors = [refusal] * 3
    transport.put(domain.stream("a", 1))
    async with running(make_runner()):
        await until(lambda: acked(transport) == 1)
    (letter,) = await letters.all()
    assert "over the broker's limit" in letter.error


async def test_a_handler_that_fails_parks_its_aggregate_and_no_other(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any, letters: Any
) -> None:
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("a", 2, domain.Added(amount=666)))
    transport.put(domain.stream("a", 3))
    transport.put(domain.stream("a", 4, domain.Noted(text="nobody reacts")))
    transport.put(domain.stream("b", 1))
    async with running(make_runner()):
        await until(lambda: acked(transport) == 5)
        transport.put(domain.stream("a", 5))
        transport.put(domain.stream("b", 2))
        await until(lambda: acked(transport) == 7)
    assert (bus.amounts("a-copy"), bus.amounts("b-copy")) == ([1], [1, 2])
    (letter,) = await letters.all()
    assert (letter.aggregate_id, letter.version, letter.offset) == ("a", 1, 1)
    assert letter.held == 3  # what nobody reacts to waits for nothing
    assert "this amount is not bearable" in letter.error
    assert "in added" in letter.traceback
    (logged,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert (logged["aggregate_id"], logged["offset"]) == ("a", 1)
    assert isinstance(logged["exc_info"].__cause__, FileNotFoundError)


async def test_one_poison_event_stops_none_of_thousands_behind_it_in_its_queue(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any
) -> None:
    transport.put(domain.stream("a", 1, domain.Added(amount=666)), queue=0)
    for number in range(3_000):
        transport.put(domain.stream("a" if number % 10 == 0 else f"b{number}", 2), queue=0)
    async with running(make_runner()):
        await until(lambda: acked(transport) == 3_001)
    assert len(bus.sent) == 2_700
    # Nothing is left unacknowledged: the queue's offset moves past all of it.
    assert sorted(transport.subscriptions[0].acked)[-1] == ((domain.topic, 0), 3_000)


async def test_parked_events_wait_through_restarts_and_are_handled_in_order_after_the_repair(
    make_runner: Any,
    transport: Any,
    domain: Any,
    bus: FakeBus,
    logs: Any,
    letters: Any,
    broken: Any,
    store: Any,
) -> None:
    store.streams = [domain.stream("a", version) for version in (1, 2, 3, 4)]
    store.streams[1] = domain.stream("a", 2, domain.Added(amount=666))
    for stream in store.streams[:3]:
        transport.put(stream)
    async with running(make_runner()):
        await until(lambda: acked(transport) == 3)
    async with running(make_runner()):  # reads the topic from its beginning
        transport.put(store.streams[3])
        await until(lambda: acked(transport) == 7)
        assert bus.amounts("a-copy") == [1]
        left = await letters.retry("a")
        assert left is not None
        assert (left.version, left.retries) == (1, 1)
        broken.clear()
        assert await letters.retry("a") is None
        transport.put(domain.stream("a", 5))
        await until(lambda: acked(transport) == 8)
    # The first one came again while its aggregate was parked, and was sent again with the same id.
    assert bus.amounts("a-copy") == [1, 1, 666, 3, 4, 5]
    assert len({envelope.command_id for envelope in bus.sent}) == 5
    assert await letters.all() == []
    async with running(make_runner()):
        await until(lambda: acked(transport) == 13)
    # Once more, and no command is another one than before.
    assert len({envelope.command_id for envelope in bus.sent}) == 5


async def test_a_late_event_of_a_parked_aggregate_is_not_lost(
    make_runner: Any,
    transport: Any,
    domain: Any,
    bus: FakeBus,
    logs: Any,
    letters: Any,
    broken: Any,
    store: Any,
) -> None:
    store.streams = [
        domain.stream("a", 1),
        domain.stream("a", 2),
        domain.stream("a", 3, domain.Added(amount=666)),
    ]
    for place in (0, 2, 1):
        transport.put(store.streams[place])
    async with running(make_runner()):
        await until(lambda: acked(transport) == 3)
    broken.clear()
    assert await letters.retry("a") is None
    assert bus.amounts("a-copy") == [1, 2, 666]


async def test_skipped_events_send_nothing_and_those_behind_them_do(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any, letters: Any, store: Any
) -> None:
    store.streams = [
        domain.stream("a", 1, domain.Added(amount=666)),
        domain.stream("a", 2),
        domain.stream("a", 3, domain.Added(amount=666)),
        domain.stream("a", 4),
    ]
    for stream in store.streams:
        transport.put(stream)
    async with running(make_runner()):
        await until(lambda: acked(transport) == 4)
        left = await letters.skip("a")
        assert (left.version, bus.amounts("a-copy")) == (2, [2])
        assert await letters.skip("a") is None
    assert bus.amounts("a-copy") == [2, 4]


async def test_a_message_that_does_not_decode_parks_its_aggregate(
    make_runner: Any, transport: Any, domain: Any, logs: Any, letters: Any, bus: Any, store: Any
) -> None:
    store.streams = [domain.stream("a", 1), domain.stream("a", 2)]
    transport.put_raw((domain.topic, 0), "a", b'{"aggregate_id": "a"}')
    async with running(make_runner()):
        await until(lambda: acked(transport) == 1)
    assert await letters.retry("a") is None
    # The message does not tell its version: its aggregate's commands are sent with the same ids.
    assert bus.amounts("a-copy") == [1, 2]


async def test_failed_rejections_wait_and_are_retried_or_skipped(
    make_runner: Any,
    transport: Any,
    domain: Any,
    bus: FakeBus,
    logs: Any,
    letters: Any,
    broken: Any,
    store: Any,
    read_models: Any,
    manager: Any,
    serializer: Any,
) -> None:
    letters = ProcessManagerLetters(manager, bus, read_models, store, serializer)
    broken.add("rejections")
    store.streams = [
        domain.stream("a", 7),
        domain.rejection("a", "c-1"),
        domain.rejection("a", "c-2"),
        domain.stream("a", 8),
    ]
    for stream in store.streams[1:]:
        transport.put(stream)
    async with running(make_runner(read_models)):
        await until(lambda: acked(transport) == 3)
    async with running(make_runner(read_models)):
        await until(lambda: acked(transport) == 6)
    assert bus.sent == []
    left = await letters.skip("a")
    # The event that waited is handled, and nothing before it; one rejection is left out.
    assert (bus.amounts("a-copy"), bus.amounts("refused"), left.retries) == ([8], [], 1)
    broken.clear()
    assert await letters.retry("a") is None
    assert (bus.amounts("a-copy"), bus.amounts("refused")) == ([8], [5])


async def test_an_aggregate_above_the_limit_waits_for_room(
    make_runner: Any, transport: Any, domain: Any, logs: Any, letters: Any
) -> None:
    most = 2
    for number in range(most + 1):
        transport.put(domain.stream(f"a{number}", 1, domain.Added(amount=666)))
    async with running(make_runner(projection_letters_max=most)):
        await until(lambda: any("as many aggregates" in one["event"] for one in logs))
        assert acked(transport) == most
        (first, _) = await letters.all()
        assert await letters.skip(first.aggregate_id) is None
        await until(lambda: acked(transport) == most + 1)


async def test_a_command_that_is_due_in_years_waits_in_the_database_until_it_is_near(
    make_runner: Any,
    manager: Any,
    transport: Any,
    domain: Any,
    bus: FakeBus,
    clock: Any,
    read_models: Any,
) -> None:
    due = clock.now() + timedelta(days=4_000)

    @manager.on
    def noted(event: domain.Noted, context: Any) -> Iterable[Any]:
        yield Later(domain.Add(counter_id="reminder", amount=1), at=due)
        yield domain.Add(counter_id="now", amount=2)

    transport.put(domain.stream("a", 1, domain.Noted(text="in ten years")))
    async with running(make_runner(read_models)):
        await until(lambda: acked(transport) == 1)
    assert [each.aggregate_id for each in bus.sent] == ["now"]
    clock.advance(3_634 * 86_400_000)
    async with running(make_runner(read_models)):
        transport.put(domain.stream("b", 1))
        await until(lambda: acked(transport) == 3)
        assert bus.amounts("reminder") == []
        clock.advance(86_400_000)
        await until(lambda: bus.amounts("reminder"))
    (reminder,) = [each for each in bus.sent if each.aggregate_id == "reminder"]
    assert reminder.due == due


async def test_a_reader_subscribes_again_after_an_error(
    make_runner: Any, transport: Any, domain: Any, bus: FakeBus, logs: Any
) -> None:
    transport.broken = ["connection lost"] * 4
    transport.put(domain.stream("a", 1))
    async with running(make_runner()):
        await until(lambda: acked(transport) == 1)
    assert len(transport.subscriptions) == 5
    assert [entry["attempt"] for entry in logs] == [1, 2, 3, 4]


async def test_waiting_messages_have_a_limit(
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
