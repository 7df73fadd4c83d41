"""A process's loop: exactly once into instances, every command sent with the same id."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest

from headrace.errors import CommandRefused, SubjectKeysAway
from headrace.processes import process_runner as instance_runner
from headrace.processes.instances import parked_instances
from headrace.processes.overview import Processes
from headrace.processes.process_runner import ProcessRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import CommandEnvelope
from headrace.subscriptions.status import ReaderState
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport


class Crash(BaseException):
    """The end of a process, at the worst moment."""


class FakeBus:
    """Takes commands; fails or dies when told to."""

    def __init__(self) -> None:
        self.sent: list[CommandEnvelope] = []
        self.errors: list[BaseException] = []

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(envelope)

    @property
    def amounts(self) -> list[int]:
        return [one.command.model_dump()["amount"] for one in self.sent]

    @property
    def ids(self) -> set[tuple[str, str, str]]:
        return {
            (one.aggregate_id, one.command_id, one.command.model_dump_json()) for one in self.sent
        }


@pytest.fixture
def bus() -> FakeBus:
    return FakeBus()


@pytest.fixture
def make_runner(
    transport: Any, bus: FakeBus, serializer: Any, settings: Any, store: Any, clock: Any
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


def has_acked_all(transport: Any, first: int) -> bool:
    """Whether subscriptions from this one on have acknowledged every message, however many they were."""
    places = {(each.queue, each.offset) for log in transport.logs.values() for each in log}
    return places == {place for one in transport.subscriptions[first:] for place in one.acked}


async def test_commands_are_sent_in_order_and_then_their_events_are_acknowledged(
    make_runner: Any, make_process: Any, read_models: Any, transport: Any, domain: Any, bus: FakeBus
) -> None:
    for version in (1, 2, 3):
        transport.put(domain.stream("a", version))
    transport.put(domain.stream("b", 1, domain.Noted(text="nobody there")))
    async with running(make_runner(make_process(), read_models)):
        await until(lambda: acked(transport) == 4)
    assert transport.groups == ["shop.process.copies"]
    assert bus.amounts == [1, 3, 6]


async def test_duplicate_events_send_no_new_command(
    make_runner: Any, make_process: Any, sqlite_models: Any, transport: Any, domain: Any, bus: Any
) -> None:
    for version in (1, 2):
        transport.put(domain.stream("a", version))
        transport.put(domain.stream("a", version))
    for _ in range(2):  # the second one starts over from the beginning
        before = acked(transport)
        async with running(make_runner(make_process(), sqlite_models)):
            await until(lambda: acked(transport) == before + 4)  # noqa: B023 - awaited here
    assert bus.amounts == [1, 3]


async def test_two_members_on_the_same_queues_move_each_instance_once(
    make_runner: Any, make_process: Any, read_models: Any, transport: Any, domain: Any, bus: Any
) -> None:
    for version in range(1, 21):
        transport.put(domain.stream("a", version))
        transport.put(domain.stream("b", version))
    async with (
        running(make_runner(make_process(), read_models)),
        running(make_runner(make_process(), read_models)),
    ):
        await until(lambda: acked(transport) == 80)
    sums = [version * (version + 1) // 2 for version in range(1, 21)]
    assert Counter(bus.amounts) == Counter(sums * 2)


async def test_a_queue_that_is_away_is_waited_out(
    make_runner: Any, make_process: Any, sqlite_models: Any, transport: Any, domain: Any, bus: Any
) -> None:
    bus.errors = [CommandRefused("away")] * 9
    transport.put(domain.stream("a", 1))
    async with running(make_runner(make_process(), sqlite_models)):
        await until(lambda: acked(transport) == 1)
    assert bus.amounts == [1]


async def test_a_database_that_is_away_is_waited_out_and_nothing_is_parked(
    make_runner: Any, make_process: Any, sqlite_models: Any, transport: Any, domain: Any, bus: Any
) -> None:
    transact, failures = sqlite_models.transact, [OSError("away")] * 9

    async def away(work: Any) -> Any:
        if failures:
            raise failures.pop()
        return await transact(work)

    for version in (1, 2):
        transport.put(domain.stream("a", version))
    sqlite_models.transact = away
    async with running(make_runner(make_process(), sqlite_models)):
        await until(lambda: acked(transport) == 2)
    assert bus.amounts == [1, 3]
    assert await Processes(sqlite_models).all(stuck=True) == []


async def test_keys_that_go_away_before_an_event_is_decoded_are_waited_for(
    make_runner: Any, make_process: Any, sqlite_models: Any, transport: Any, domain: Any, bus: Any,
    serializer: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    outcomes = [*[SubjectKeysAway("away")] * 3, *[DEFAULT] * 9]
    away = Mock(wraps=serializer.decode_published, side_effect=outcomes)
    monkeypatch.setattr(serializer, "decode_published", away)
    transport.put(domain.stream("a", 1))
    async with running(make_runner(make_process(), sqlite_models)):
        await until(lambda: acked(transport) == 1)
    assert bus.amounts == [1]


async def test_a_handler_that_fails_parks_its_instance_and_no_other(
    make_runner: Any, make_process: Any, sqlite_models: Any, transport: Any, domain: Any, bus: Any
) -> None:
    for version in (1, 2, 3):
        transport.put(domain.stream("a", version))
        transport.put(domain.stream("b", version, domain.Added(amount=10 * version)))
    async with running(make_runner(make_process([2]), sqlite_models)):
        await until(lambda: acked(transport) == 6)
    assert Counter(bus.amounts) == Counter([1, 10, 30, 60])
    (letter,) = await sqlite_models.transact(parked_instances("copies").read)
    assert (letter.aggregate_id, letter.held) == ("a", 2)
    # Where the message of the event stands that failed: the second of its queue.
    assert (letter.queue, letter.offset) == (("shop.events", 1), 1)


async def test_an_instance_without_room_to_be_parked_is_retried_until_there_is_room(
    make_runner: Any, make_process: Any, sqlite_models: Any, transport: Any, domain: Any, bus: Any
) -> None:
    for key in ("a", "b", "c"):
        transport.put(domain.stream(key, 1, domain.Added(amount=3 if key == "c" else 2)))
    runner = make_runner(make_process([2]), sqlite_models)
    runner._letters_max = 1
    parked = parked_instances("copies")
    async with running(runner):
        await until(lambda: "as may be are parked, and now" in str(runner.reader.status.error))
        assert runner.reader.status.state is ReaderState.RETRYING
        (letter,) = await sqlite_models.transact(parked.read)
        assert acked(transport) < 3
        await sqlite_models.transact(partial(parked.release, letter=letter))
        await until(lambda: acked(transport) == 3)
    assert bus.amounts == [3]
    (other,) = await sqlite_models.transact(parked.read)
    assert {letter.aggregate_id, other.aggregate_id} == {"a", "b"}


async def test_a_handler_that_succeeds_at_a_retry_parks_no_instance(
    make_runner: Any, make_process: Any, sqlite_models: Any, transport: Any, domain: Any, bus: Any
) -> None:
    process = make_process()
    handle, failures = process._on[domain.Added].handle, [1, 2]

    def failing(*arguments: Any) -> Any:
        if failures:
            failures.pop()
            raise RuntimeError("not now")
        return handle(*arguments)

    object.__setattr__(process._on[domain.Added], "handle", failing)
    transport.put(domain.stream("a", 1))
    async with running(make_runner(process, sqlite_models)):
        await until(lambda: acked(transport) == 1)
    assert bus.amounts == [1]


async def test_versions_that_come_late_or_never_are_read_from_the_store_and_handled_in_order(
    make_runner: Any,
    make_process: Any,
    read_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    store: Any,
) -> None:
    store.streams = [domain.stream("a", version) for version in range(1, 7)]
    # 1 and 3 never come, 4 comes late and 2 twice.
    for version in (2, 5, 4, 2, 6):
        transport.put(store.streams[version - 1])
    async with running(make_runner(make_process(), read_models)):
        await until(lambda: acked(transport) == 5)
    assert bus.amounts == [1, 3, 6, 10, 15, 21]
    assert store.asked == [("a", 0, 1), ("a", 2, 4)]
    found = await Processes(read_models).get("copies", "a")
    assert (found.state["sum"], found.seen) == (21, 6)


async def test_a_long_gap_is_filled_in_parts(
    make_runner: Any,
    make_process: Any,
    sqlite_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instance_runner, "_MISSING_MAX", 2)
    store.streams = [domain.stream("a", version) for version in range(1, 7)]
    transport.put(store.streams[-1])
    async with running(make_runner(make_process(), sqlite_models)):
        await until(lambda: acked(transport) == 1)
    assert bus.amounts == [1, 3, 6, 10, 15, 21]
    assert store.asked == [("a", 0, 2), ("a", 2, 4), ("a", 4, 5)]


async def test_a_handler_that_fails_in_a_gap_parks_its_instance_alone(
    make_runner: Any,
    make_process: Any,
    sqlite_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    store: Any,
) -> None:
    store.streams = [domain.stream("a", version) for version in (1, 2, 3)]
    transport.put(store.streams[2])
    transport.put(domain.stream("b", 1))
    async with running(make_runner(make_process([2]), sqlite_models)):
        await until(lambda: acked(transport) == 2)
    assert Counter(bus.amounts) == Counter([1, 1])
    (parked,) = await Processes(sqlite_models).all(stuck=True)
    assert (parked.key, parked.seen, parked.waiting) == ("a", 3, 2)


async def test_instances_that_ended_long_ago_are_pruned(
    make_runner: Any, make_process: Any, sqlite_models: Any, transport: Any, domain: Any, clock: Any
) -> None:
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("a", 2, domain.Cleared()))
    instances = Processes(sqlite_models)
    async with running(make_runner(make_process(), sqlite_models)):
        await until(lambda: acked(transport) == 2)
        (ended,) = await instances.all("copies", ended=True)
        assert ended.ended
        clock.advance(2_592_000_001)
        while await instances.all("copies", ended=True):
            await asyncio.sleep(0)


async def test_a_new_state_version_rebuilds_states_and_goes_on(
    make_runner: Any,
    make_process: Any,
    sqlite_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    store: Any,
) -> None:
    store.streams = [domain.stream("a", version) for version in (1, 2)]
    for stream in store.streams:
        transport.put(stream)
    async with running(make_runner(make_process(), sqlite_models)):
        await until(lambda: acked(transport) == 2)
    transport.put(domain.stream("a", 3))
    async with running(make_runner(make_process(state_version=2, factor=10), sqlite_models)):
        await until(lambda: acked(transport) == 5)
    # Seen were 1 and 2, which the new code makes 30 of; then came 3.
    assert bus.amounts == [1, 3, 60]


async def test_commands_of_a_dead_runner_are_sent_by_the_next_one_without_a_redelivery(
    make_runner: Any,
    make_process: Any,
    sqlite_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    clock: Any,
) -> None:
    transport.put(domain.stream("a", 1))
    bus.errors = [Crash()]
    with pytest.raises(BaseExceptionGroup):
        await make_runner(make_process(), sqlite_models).run()
    transport.logs = {queue: [] for queue in transport.logs}
    async with running(make_runner(make_process(), sqlite_models)):
        await transport.parked.wait()
        assert bus.amounts == []  # its sender may still be at work
        clock.advance(10_000)
        await until(lambda: bus.amounts == [1])


@pytest.mark.parametrize("moment", range(1, 12))
async def test_a_crash_at_any_moment_ends_in_the_same_commands_with_the_same_ids(
    make_runner: Any,
    make_process: Any,
    sqlite_models: Any,
    transport: Any,
    domain: Any,
    bus: Any,
    clock: Any,
    moment: int,
) -> None:
    for version in (1, 2):
        transport.put(domain.stream("a", version))
        transport.put(domain.stream("b", version))
    transport.put(domain.stream("a", 3, domain.Cleared()))
    transport.poll_max = 2
    runner = make_runner(make_process(), sqlite_models)
    transact, left = sqlite_models.transact, [moment]

    async def dying(work: Any) -> Any:
        # Odd moments come before a commit, even ones after it.
        left[0] -= 1
        if left[0] == 0:
            raise Crash
        done = await transact(work)
        left[0] -= 1
        if left[0] == 0:
            raise Crash
        return done

    sqlite_models.transact = dying
    died = asyncio.create_task(runner.run())
    with pytest.raises(Crash):
        await died
    sqlite_models.transact = transact
    clock.advance(10_000)
    before = len(transport.subscriptions)
    async with running(make_runner(make_process(), sqlite_models)):
        await until(lambda: has_acked_all(transport, before))
    expected = {
        ("a-copy", '{"counter_id":"a-copy","amount":1}'),
        ("a-copy", '{"counter_id":"a-copy","amount":3}'),
        ("a-copy", '{"counter_id":"a-copy","amount":-3}'),
        ("b-copy", '{"counter_id":"b-copy","amount":1}'),
        ("b-copy", '{"counter_id":"b-copy","amount":3}'),
    }
    assert {(aggregate, command) for aggregate, _, command in bus.ids} == expected
    assert len({command_id for _, command_id, _ in bus.ids}) == len(expected)


@pytest.fixture
async def topic(domain: Any) -> LocalTransport:
    transport = LocalTransport()
    await transport.ensure_topic(domain.topic, queues=4, forever=True)
    return transport


@pytest.fixture
def make_member(
    topic: LocalTransport,
    make_process: Any,
    sqlite_models: Any,
    store: Any,
    serializer: Any,
    settings: Any,
    bus: FakeBus,
    clock: Any,
) -> Callable[[], asyncio.Task[None]]:
    """Starts a member of the process's group on a topic whose queues are shared out."""

    def start() -> asyncio.Task[None]:
        runner = ProcessRunner(
            process=make_process(),
            app_name="shop",
            read_models=sqlite_models,
            store=store,
            transport=topic,
            bus=bus,
            serializer=serializer,
            settings=settings,
            clock=clock,
            sweep_ms=1,
        )
        return asyncio.create_task(runner.run())

    return start


async def kill(*members: asyncio.Task[None]) -> None:
    for member in members:
        member.cancel()
    await asyncio.gather(*members, return_exceptions=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_members_that_are_killed_and_come_back_during_rebalances_move_everything_once(
    topic: LocalTransport,
    make_member: Any,
    make_process: Any,
    sqlite_models: Any,
    serializer: Any,
    domain: Any,
    bus: FakeBus,
    clock: Any,
    seed: int,
) -> None:
    """The history is checked against one pure fold: of each instance, and of all commands."""
    chance = random.Random(seed)
    members = [make_member() for _ in range(3)]
    streams: dict[str, list[Any]] = {f"k{number}": [] for number in range(6)}
    for _ in range(40):
        key = chance.choice(list(streams))
        streams[key].append(domain.stream(key, len(streams[key]) + 1))
        body = serializer.encode_stream(streams[key][-1])
        for _ in range(chance.choice([1, 1, 2, 3])):
            await topic.publish(Outgoing(topic=domain.topic, key=key, body=body))
        if chance.random() < 0.3:
            victim = chance.randrange(len(members))
            await kill(members[victim])
            members[victim] = make_member()
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
    ends = {each.queue[1]: each.end for each in await topic.waiting(domain.topic, {}) if each.end}
    while await topic.committed("shop.process.copies", domain.topic) != ends:
        await asyncio.sleep(0)
    # What somebody committed who was killed before sending it, the others send.
    clock.advance(10_000)

    process, expected = make_process(), set()
    for key, history in streams.items():
        progress = None
        for stream in history:
            progress, envelopes = process.react(progress, key, stream)
            expected |= {
                (one.aggregate_id, one.command_id, one.command.model_dump_json())
                for one in envelopes
            }
        found = await Processes(sqlite_models).get("copies", key)
        assert (found.state, found.seen) == (progress.state.model_dump(), len(history))
    while not expected <= bus.ids:
        await asyncio.sleep(0)
    await kill(*members)
    assert bus.ids == expected
