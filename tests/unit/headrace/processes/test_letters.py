"""Letters of process managers: what cannot be taken up stays, with why."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from headrace.errors import CommandRefused, ProcessError
from headrace.processes.letters import (
    ProcessLetters,
    ProcessManagerLetters,
    letters_of,
    reactions,
)
from headrace.processes.overview import Processes
from headrace.processes.process_manager import Later, ProcessManager
from headrace.processes.process_runner import ProcessRunner
from headrace.processes.progress import ProcessProgress
from headrace.projections.tables.read_models import ReadModels
from headrace.transports.base import Incoming


@pytest.fixture
def park(sqlite_models: Any) -> Any:
    async def run(name: str, message: Incoming, version: int | None) -> None:
        await sqlite_models.transact(
            partial(
                ProcessProgress(name).park_at,
                message=message,
                version=version,
                error=ValueError("no"),
                now=datetime(2026, 1, 31, tzinfo=UTC),
                letters_max=9,
            )
        )

    return run


@pytest.fixture
def manager(domain: Any) -> ProcessManager:
    manager = ProcessManager("copying")

    @manager.on
    def added(event: domain.Added, context: Any) -> Iterable[Any]:
        if event.amount == 666:
            raise ConnectionError("a handler has no business with connections")
        yield domain.Add(counter_id="copy", amount=event.amount)

    return manager


class Bus:
    """Takes no command while the queue is away."""

    def __init__(self) -> None:
        self.away = False
        self.too_large = 0
        self.sent: list[Any] = []

    async def send_envelope(self, envelope: Any) -> None:
        if self.away:
            raise CommandRefused("away")
        if self.too_large and envelope.command.amount == self.too_large:
            raise CommandRefused("no") from ValueError("too large")
        self.sent.append(envelope)

    @property
    def amounts(self) -> list[int]:
        return [one.command.model_dump()["amount"] for one in self.sent]


def message(kind: str, **headers: str) -> Incoming:
    return Incoming(("shop.events", 0), 3, "a", "", {"kind": kind, **headers}, b"")


def test_every_error_of_a_handler_is_a_failure_of_its_event(
    manager: ProcessManager, domain: Any
) -> None:
    stream = domain.stream("a", 1, domain.Added(amount=666))
    with pytest.raises(ProcessError, match="copying cannot react to what command a-1 did") as told:
        reactions(manager, stream)
    assert isinstance(told.value.__cause__, ConnectionError)


async def test_a_queue_that_is_away_is_no_failure_of_the_event(
    manager: ProcessManager,
    domain: Any,
    sqlite_models: Any,
    store: Any,
    serializer: Any,
    park: Any,
) -> None:
    bus = Bus()
    letters = letters_of(manager, bus, sqlite_models, store, serializer)
    assert isinstance(letters, ProcessManagerLetters)
    store.streams = [domain.stream("a", version) for version in (1, 2, 3)]
    await park("copying", message("events", version="2"), 1)
    bus.away = True
    with pytest.raises(CommandRefused):
        await letters.retry("a")
    (letter,) = await letters.all()
    assert (letter.version, letter.retries) == (1, 0)
    bus.away = False
    assert await letters.retry("a") is None
    assert [each.command.amount for each in bus.sent] == [2, 3]


async def test_a_rejection_that_the_store_does_not_have_can_only_be_skipped(
    manager: ProcessManager,
    sqlite_models: Any,
    store: Any,
    serializer: Any,
    park: Any,
) -> None:
    letters = ProcessManagerLetters(manager, Bus(), sqlite_models, store, serializer)
    await park("copying", message("rejection", command="c-9"), None)
    left = await letters.retry("a")
    assert left is not None
    assert "the rejection of command c-9 to a is not in the event store" in left.error
    assert await letters.skip("a") is None


async def test_instances_of_another_state_version_are_rebuilt_first(
    make_process: Any, domain: Any, sqlite_models: Any, store: Any, serializer: Any, park: Any
) -> None:
    store.streams = [domain.stream("a", version) for version in (1, 2, 3)]
    await park("copies", message("events"), 0)
    before = ProcessLetters(make_process(), sqlite_models, store, serializer)
    assert await before.retry("a") is None
    await park("copies", message("events"), 1)
    process = make_process(state_version=2, factor=10)
    letters = letters_of(process, Bus(), sqlite_models, store, serializer)
    assert await letters.retry("a") is None
    store.streams.append(domain.stream("a", 4))
    await park("copies", message("events"), 3)
    assert await letters.retry("a") is None
    found = await Processes(sqlite_models).get("copies", "a")
    assert (found.seen, found.state["sum"]) == (4, 100)


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def make_runner(
    transport: Any, bus: Bus, serializer: Any, settings: Any, store: Any, clock: Any
) -> Callable[..., ProcessRunner]:
    def make(process: Any, models: ReadModels) -> ProcessRunner:
        return ProcessRunner(
            process=process,
            app_name="shop",
            read_models=models,
            store=store,
            transport=transport,
            bus=bus,
            serializer=serializer,
            settings=settings,
            clock=clock,
            sweep_ms=1,
        )

    return make


@asynccontextmanager
async def running(runner: ProcessRunner) -> AsyncIterator[None]:
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


@pytest.fixture
def parked(serializer: Any, store: Any, clock: Any) -> Callable[..., ProcessLetters]:
    return lambda process, models: ProcessLetters(process, models, store, serializer, clock=clock)


async def test_a_message_that_does_not_decode_parks_only_its_aggregate(
    make_runner: Any,
    make_process: Any,
    read_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    parked: Any,
    logs: Any,
) -> None:
    process = make_process()
    bad = transport.put_raw((domain.topic, 0), "a", b'{"aggregate_id": "a"}')
    transport.put(domain.stream("a", 2), queue=0)
    transport.put(domain.stream("b", 1), queue=0)
    for _ in range(2):  # the second one reads the topic from its beginning
        before = acked(transport)
        async with running(make_runner(process, read_models)):
            await until(lambda: acked(transport) == before + 3)  # noqa: B023 - awaited here
    assert bus.amounts == [1]
    (letter,) = await parked(process, read_models).all()
    assert (letter.aggregate_id, letter.version, letter.offset) == ("a", 0, bad.offset)
    assert letter.error.startswith("an event stream does not decode")
    assert "msgspec.ValidationError" in letter.traceback
    logged = next(one for one in logs if one["log_level"] == "error")
    assert (logged["aggregate_id"], str(logged["exc_info"])) == ("a", logged["error"])


async def test_parked_streams_are_retried_in_order_and_the_running_process_sends_the_commands(
    make_runner: Any,
    make_process: Any,
    read_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    parked: Any,
    store: Any,
    clock: Any,
) -> None:
    process, broken = make_process(), ["the key function"]

    def key(event: Any, context: Any) -> str:
        return str(event.unknown) if broken else str(context.aggregate_id)

    process._on[domain.Added] = replace(process._on[domain.Added], key=key)
    store.streams = [domain.stream("a", version) for version in (1, 2, 3)]
    transport.put(store.streams[0], queue=0)
    transport.put(store.streams[1], queue=0)
    async with running(make_runner(process, read_models)):
        await until(lambda: acked(transport) == 2)
        letters = parked(process, read_models)
        left = await letters.retry("a")
        assert left is not None
        assert (left.held, left.retries) == (2, 1)
        assert "has no attribute 'unknown'" in left.error
        broken.clear()  # the code is mended
        assert await letters.retry("a") is None
        transport.put(store.streams[2], queue=0)
        await until(lambda: acked(transport) == 3)
        clock.advance(10_000)
        await until(lambda: len(bus.amounts) == 3)
    assert sorted(bus.amounts) == [1, 3, 6]
    assert await letters.all() == []


async def test_versions_that_the_store_does_not_have_park_their_aggregate_and_no_other(
    make_runner: Any,
    make_process: Any,
    sqlite_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    store: Any,
    parked: Any,
    clock: Any,
) -> None:
    store.streams = [domain.stream("a", 1)]
    transport.put(domain.stream("a", 3), queue=0)
    transport.put(domain.stream("b", 1), queue=0)
    transport.put(domain.stream("a", 4), queue=0)
    process = make_process()
    async with running(make_runner(process, sqlite_models)):
        await until(lambda: acked(transport) == 3)
        assert bus.amounts == [1]
        letters = parked(process, sqlite_models)
        (letter,) = await letters.all()
        assert (letter.aggregate_id, letter.version, letter.held) == ("a", 0, 2)
        assert "versions 1 to 2 of a did not come and are not all in the" in letter.error
        # It cannot be told by this process what is lost: version 2 is left out for good.
        store.streams += [domain.stream("a", 3), domain.stream("a", 4)]
        assert (await letters.retry("a")).version == 1
        assert await letters.skip("a") is None
        clock.advance(10_000)
        await until(lambda: len(bus.amounts) == 4)
    assert bus.amounts == [1, 1, 4, 8]


async def test_a_command_that_is_due_in_years_waits_in_the_database_until_it_is_near(
    make_runner: Any,
    make_process: Any,
    read_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    clock: Any,
) -> None:
    process, due = make_process(), clock.now() + timedelta(days=4_000)

    def handle(state: Any, event: Any, context: Any) -> Iterable[Any]:
        yield state
        yield Later(domain.Add(counter_id="reminder", amount=77), at=due)

    process._on[domain.Noted] = replace(process._on[domain.Noted], handle=handle)
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("a", 2, domain.Noted(text="a")))
    async with running(make_runner(process, read_models)):
        await until(lambda: acked(transport) == 2)
    assert bus.amounts == [1]
    (instance,) = await Processes(read_models, clock=clock).all()
    assert [(one.name, one.due) for one in instance.pending] == [("Add", due)]
    assert instance.stuck == ()
    clock.advance(3_634 * 86_400_000)
    async with running(make_runner(process, read_models)):
        transport.put(domain.stream("b", 1))
        await until(lambda: acked(transport) == 5)
        assert bus.amounts == [1, 1]
        clock.advance(86_400_000)
        await until(lambda: len(bus.sent) == 3)
    assert (bus.amounts[2], bus.sent[2].due) == (77, due)


async def test_a_command_that_the_queue_can_never_take_shows_at_its_instance_and_stops_no_other(
    make_runner: Any,
    make_process: Any,
    sqlite_models: Any,
    transport: Any,
    domain: Any,
    bus: Bus,
    logs: Any,
) -> None:
    bus.too_large = 2
    for aggregate_id, amount in (("a", 2), ("b", 1), ("c", 3)):
        transport.put(domain.stream(aggregate_id, 1, domain.Added(amount=amount)))
    async with running(make_runner(make_process(), sqlite_models)):
        await until(lambda: acked(transport) == 3)
    assert sorted(bus.amounts) == [1, 3]
    (stuck,) = await Processes(sqlite_models).all(stuck=True)
    assert (stuck.key, stuck.stuck[0].kind) == ("a", "rejected")
    assert "cannot be sent: no" in stuck.stuck[0].sentence
