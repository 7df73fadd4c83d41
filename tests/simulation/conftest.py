"""One simulated deployment per seed: a broker, producers, consumers, and what happens to them."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import Closed, MessageQueueError
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import BrokerSettings, ConsumerSettings, ProducerSettings, StoreSettings
from headrace_mq.testing.history import (
    Acknowledged,
    Broken,
    Crashed,
    Event,
    Finished,
    Received,
    Reset,
    Sent,
    check,
)
from headrace_mq.testing.offset_tap import OffsetTap
from headrace_mq.testing.processes import PROCESS, Process
from headrace_mq.testing.simulated_broker import SimulatedBroker
from headrace_mq.testing.simulation import Simulation

ADDRESS = "broker:9876"
TOPIC = "t"
# Simulated seconds without faults in which everything must be delivered.
CALM_S_MAX = 240.0
# By what somebody sets the broker's clock; messages are kept for seven days, read or not.
LEAPS_MS = (-8 * 86_400_000, -3_600_000, -1_000, 1_000, 3_600_000, 8 * 86_400_000)


class Options(NamedTuple):
    """Everything that is drawn before a run begins; printed when a seed fails."""

    queues: int
    keys: int
    producers: int
    messages: int
    groups: tuple[str, ...]
    members: int
    flush: Literal["always", "interval"]
    offsets_flush_ms: int
    member_expiry_ms: int
    lock_expiry_ms: int
    send_timeout_ms: int
    batch_messages_max: int
    in_flight_max: int
    commit_interval_ms: int
    fetch_wait_ms: int
    handling_s: float
    sending_s: float
    latency_s: float
    sync_us: int
    faults: int


def draw(chosen: random.Random) -> Options:
    """Draws what is deployed."""
    return Options(
        queues=chosen.randint(1, 4),
        keys=chosen.randint(1, 6),
        producers=chosen.randint(1, 3),
        messages=chosen.randint(10, 60),
        groups=tuple(chosen.sample(("poll-1", "run-1", "poll-2", "run-2"), chosen.randint(1, 2))),
        members=chosen.randint(1, 3),
        flush=chosen.choice(("always", "always", "always", "interval")),
        offsets_flush_ms=chosen.choice((100, 1_000)),
        member_expiry_ms=chosen.choice((2_000, 5_000, 30_000)),
        lock_expiry_ms=chosen.choice((1_000, 10_000)),
        send_timeout_ms=chosen.choice((2_000, 10_000, 30_000)),
        batch_messages_max=chosen.choice((1, 3, 1_000)),
        in_flight_max=chosen.choice((1, 4, 20, 1_000)),
        commit_interval_ms=chosen.choice((50, 500, 1_000)),
        fetch_wait_ms=chosen.choice((500, 15_000)),
        handling_s=chosen.choice((0.0, 0.01, 0.2)),
        sending_s=chosen.choice((0.02, 0.1, 0.4)),
        latency_s=chosen.choice((0.001, 0.01, 0.2)),
        sync_us=chosen.choice((100, 5_000)),
        faults=chosen.randint(1, 10),
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, help="how many deployments are simulated")
    parser.addoption("--from", type=int, dest="from_seed", help="the first seed")


class Member(NamedTuple):
    """A consumer's process, and how it is asked to go."""

    process: Process
    group: str
    leaves: asyncio.Event
    gone: asyncio.Event


class World:
    """One deployment.

    Args:
        seed: what it follows from.
    """

    # What may happen; what stands here twice happens twice as often.
    faults: Sequence[str] = (
        "restart", "kill_broker", "kill_broker", "cut_power", "cut_power", "fail_sync",
        "freeze_broker", "jump", "drop", "drop", "part", "part", "kill_producer", "come", "crowd",
        "crowd", "leave", "kill_member", "stop_member", "reset",
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.seed = seed
        drawn = random.Random(seed)
        self.options = options = draw(drawn)
        self.sim = Simulation(drawn.getrandbits(64), latency_s=(0.000_1, options.latency_s))
        self.chosen = self.sim.chosen
        self.clock = self.sim.clock()
        self.events: list[Event] = []
        self.broken: list[Broken] = []
        self.log: dict[tuple[QueueRef, int], bytes] = {}
        self.members: list[Member] = []
        self.busy: set[str] = set()
        self.resetting: list[asyncio.Task[None]] = []
        self.producers: list[Process] = []
        self.sending: list[asyncio.Task[Any]] = []
        self.names = 0
        self.doubt_ms: int | None = None
        self.caught: asyncio.Future[tuple[Process, str]] | None = None
        self.broker = SimulatedBroker(self.sim, self._settings(), died=self.died)
        self.broker.disk.sync_us = (20, options.sync_us)
        self.sim.network.taps.append(OffsetTap(self.note, self.now_ms))
        self.sim.trace(f"seed {seed}: {options}")

    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def note(self, event: Event) -> None:
        process = PROCESS.get()
        if process is None or process.alive:
            self.events.append(event)
            self.sim.trace(str(event))
            if isinstance(event, Finished) and process and self.caught and not self.caught.done():
                self.sim.stop(process)
                self.caught.set_result((process, event.group))

    def name(self, what: str) -> str:
        self.names += 1
        return f"{what}-{self.names}"

    def _ended(self, task: asyncio.Task[Any]) -> None:
        process = PROCESS.get()
        if process is not None and process.alive and not task.cancelled() and task.exception():
            self.broken.append(Broken("failed", f"{process}: {task.exception()!r}"))

    def run(self) -> list[Broken]:
        """Lives one life, and returns the promises that were broken."""
        self.sim.run(self._live())
        for process, context in self.sim.loop.failures:
            if process is None or process.alive:
                self.broken.append(Broken("unhandled", str(context)))
        self.broken += check(
            self.events,
            log=self.log,
            groups=self.options.groups,
            forgets_ms=self.options.offsets_flush_ms + 100,
        )
        return self.broken

    async def _live(self) -> None:
        options = self.options
        await self.boot()
        async with self._admin() as admin:
            await admin.create_topic(TOPIC, options.queues)
        for _ in range(options.producers):
            name = self.name("producer")
            process, _ = self.sim.start(name, name)
            self.producers.append(process)
            sending = process.spawn(self._produce(name))
            sending.add_done_callback(self._ended)
            self.sending.append(sending)
        for group in options.groups:
            for _ in range(options.members):
                self.join(group)
        for _ in range(options.faults):
            await self.sim.elapse(self.chosen.expovariate(1))
            fault = self.chosen.choice(self.faults)
            self.sim.trace(f"fault: {fault}")
            await getattr(self, fault)()
        await self._calm_down()
        for promise, step in (("stuck", self._caught_up), ("unreadable", self._read_log)):
            try:
                async with asyncio.timeout(CALM_S_MAX):
                    await step()
            except (TimeoutError, MessageQueueError) as error:
                self.broken.append(Broken(promise, f"not in {CALM_S_MAX} s: {error!r}"))

    async def _calm_down(self) -> None:
        # What was stopped or cut off goes on by itself; a little later at most.
        await self.sim.elapse(30)
        if self.resetting:
            await asyncio.wait(self.resetting, timeout=CALM_S_MAX)
        if not self.broker.is_alive:
            await self.boot()
        for group in self.options.groups:
            self.join(group)

    async def _caught_up(self) -> None:
        await asyncio.wait(self.sending)
        async with self._admin() as admin:
            while True:
                ends = {QueueRef(r.topic, r.queue_id): r.end for r in await admin.ranges([TOPIC])}
                held = [await admin.offsets(group, [TOPIC]) for group in self.options.groups]
                if all(max(at[queue], 0) == end for at in held for queue, end in ends.items()):
                    return
                await self.sim.elapse(0.5)

    async def _read_log(self) -> None:
        async with self._admin() as admin:
            ends = {(r.topic, r.queue_id): r.end for r in await admin.ranges([TOPIC])}
        consumer = Consumer(ADDRESS, group="auditor", topics=[TOPIC], clock=self.clock)
        left = sum(ends.values())
        async with consumer:
            while left:
                for record in await consumer.poll():
                    self.log[record.queue, record.offset] = record.body
                    left -= 1

    def _admin(self) -> AdminClient:
        return AdminClient(ADDRESS, timeout_ms=60_000)

    # --- the broker -----------------------------------------------------------------------------

    def _settings(self) -> BrokerSettings:
        data = Path("/data")
        return BrokerSettings(
            store=StoreSettings(directory=data, segment_bytes=64 << 10, flush=self.options.flush),
            host="broker",
            insecure=True,
            member_expiry_ms=self.options.member_expiry_ms,
            lock_expiry_ms=self.options.lock_expiry_ms,
            offsets_flush_ms=self.options.offsets_flush_ms,
        )

    async def boot(self) -> None:
        """Starts a broker on whatever the disk holds."""
        try:
            await self.broker.start()
        except (MessageQueueError, OSError) as error:
            self.broken.append(Broken("does not start", repr(error)))

    def died(self) -> None:
        """Notes that the last commits may be forgotten."""
        since_ms, self.doubt_ms = self.doubt_ms, None
        # Also where it is noticed in the broker's own callback: by then that is a ghost's.
        self.events.append(Crashed(self.now_ms() if since_ms is None else since_ms))

    async def restart(self) -> None:
        """Stops the broker in order, and starts it again."""
        await self.broker.stop()
        await self.boot()

    async def kill_broker(self) -> None:
        """Kills the broker; it is started again a little later."""
        self.broker.kill()
        await self.sim.elapse(self.chosen.uniform(0, 5))
        await self.boot()

    async def cut_power(self) -> None:
        """Cuts the power of the broker's machine during one of its next changes, or later."""
        # A broker that acknowledges from the cache promises nothing here.
        if self.options.flush == "always":
            await self.broker.power_off_within(self.chosen.choice((0, 1, 2, 4, 7, 20)), 5)
            await self.sim.elapse(self.chosen.uniform(0, 10))
            await self.boot()

    async def fail_sync(self) -> None:
        """Lets a sync fail; somebody restarts the broker later."""
        self.doubt_ms = self.now_ms()
        self.broker.fail_sync(self.chosen.randint(1, 4))
        await self.sim.elapse(self.chosen.uniform(1, 5))
        self.broker.heal_disk()
        await self.kill_broker()

    async def freeze_broker(self) -> None:
        """Lets the broker stand still for a while."""
        self.doubt_ms = self.now_ms()
        self.broker.freeze()
        await self.sim.elapse(self.chosen.uniform(0.1, 15))
        self.broker.thaw()
        if self.chosen.random() < 0.7:
            await self.sim.elapse(2 * self.options.offsets_flush_ms / 1_000)
            self.doubt_ms = None

    async def jump(self) -> None:
        """Sets the wall clock."""
        self.broker.clock.ahead_ms += self.chosen.choice(LEAPS_MS)

    async def drop(self) -> None:
        """Drops some connections."""
        for _ in range(self.chosen.randint(1, 6)):
            self.sim.trace(f"drop {self.sim.network.drop_one()}")
            await self.sim.elapse(self.chosen.uniform(0, 0.3))

    async def part(self) -> None:
        """Cuts a client off for a while."""
        consumers = [member.process for member in self.members]
        host = self.chosen.choice(self.chosen.choice((consumers, self.producers))).host
        self.sim.trace(f"part {host}")
        self.sim.network.part(host, "broker")
        self.sim.loop.call_later(
            self.chosen.uniform(0.1, 20), lambda: self.sim.network.join(host, "broker")
        )

    async def _produce(self, name: str) -> None:
        while True:
            producer = self._producer()
            with suppress(MessageQueueError):
                await producer.start()
                break
        async with asyncio.TaskGroup() as sends:
            for number in range(self.options.messages):
                sends.create_task(self._send(producer, name, number))
                if self.chosen.random() < 0.7:
                    await self.sim.elapse(self.chosen.uniform(0, 3 * self.options.sending_s))
        await producer.aclose()

    def _producer(self, selector: Any = None) -> Producer:
        named = ("send_timeout_ms", "batch_messages_max")
        settings = ProducerSettings(**{name: getattr(self.options, name) for name in named})
        return Producer(ADDRESS, settings, clock=self.clock, selector=selector)

    async def _send(self, producer: Producer, name: str, number: int) -> None:
        key = f"key-{self.chosen.randrange(self.options.keys)}"
        body = f"{name}/{key}/{number}".encode()
        self.note(Sent(self.now_ms(), body, key, name))
        try:
            result = await producer.send(Message(topic=TOPIC, key=key, body=body))
        except MessageQueueError as error:
            # Not sent again: whether it was stored is unknown, and twice would be our own doing.
            self.sim.trace(f"{name} gave up {body!r}: {type(error).__name__}")
        else:
            self.note(Acknowledged(self.now_ms(), body, result.queue, result.offset))

    def join(self, group: str) -> None:
        """Starts a member."""
        name = self.name("consumer")
        process, _ = self.sim.start(name, name)
        member = Member(process, group, asyncio.Event(), asyncio.Event())
        self.members.append(member)
        process.spawn(self._consume(member))

    async def _consume(self, member: Member) -> None:
        options = self.options
        settings = ConsumerSettings(
            # Several fit into an expiry, as in any deployment: who beats more seldom than members
            # expire is out of the group most of the time, and hardly gets on.
            heartbeat_ms=min(1_000, options.member_expiry_ms // 4),
            in_flight_max=options.in_flight_max,
            commit_interval_ms=options.commit_interval_ms,
            fetch_wait_ms=options.fetch_wait_ms,
        )
        while not member.leaves.is_set():
            consumer = self._consumer(member.group, settings)
            try:
                await consumer.start()
            except MessageQueueError:
                continue
            work = asyncio.create_task(self._work(member, consumer, self.name("life")))
            work.add_done_callback(self._ended)
            await member.leaves.wait()
            await consumer.aclose()
            await asyncio.wait([work])
        member.gone.set()

    def _consumer(self, group: str, settings: ConsumerSettings) -> Any:
        return Consumer(ADDRESS, group=group, topics=[TOPIC], settings=settings, clock=self.clock)

    async def _work(self, member: Member, consumer: Consumer, life: str) -> None:
        async def handle(record: Record) -> None:
            self._delivered(member, record, life, in_turn=True)
            await self._handle()
            self.note(Finished(self.now_ms(), member.group, life, record.queue, record.offset))

        if member.group.startswith("run"):
            await consumer.run(handle)
            return
        with suppress(Closed):
            while True:
                records = await consumer.poll()
                for record in records:
                    self._delivered(member, record, life, in_turn=False)
                for record in records:
                    await self._handle()
                    done = Finished(self.now_ms(), member.group, life, record.queue, record.offset)
                    self.note(done)
                    consumer.ack(record)

    async def _handle(self) -> None:
        if self.options.handling_s:
            await self.sim.elapse(self.chosen.uniform(0, 2 * self.options.handling_s))

    def _delivered(self, member: Member, record: Record, life: str, *, in_turn: bool) -> None:
        place = (record.queue, record.offset, record.body)
        self.note(Received(self.now_ms(), member.group, life, *place, in_turn))

    def _of(self, group: str) -> list[Member]:
        return [m for m in self.members if m.group == group and not m.leaves.is_set()]

    def _any_group(self) -> str | None:
        free = [group for group in self.options.groups if group not in self.busy]
        return self.chosen.choice(free) if free else None

    async def kill_producer(self) -> None:
        """Kills a producer; nobody sends what it had not sent."""
        if self.chosen.random() < 0.5:
            self.sim.kill(self.chosen.choice(self.producers))

    async def come(self) -> None:
        """Lets a member join."""
        if (group := self._any_group()) is not None:
            self.join(group)

    async def leave(self) -> None:
        """Lets a member leave in order."""
        if (group := self._any_group()) is not None and len(self._of(group)) > 1:
            self.chosen.choice(self._of(group)).leaves.set()

    async def kill_member(self) -> None:
        """Kills a member; another one comes."""
        if (group := self._any_group()) is not None:
            member = self.chosen.choice(self._of(group))
            member.leaves.set()
            self.members.remove(member)
            self.sim.kill(member.process)
            self.join(group)

    async def stop_member(self) -> None:
        """Lets a member stand still for a while: long enough to lose its queues, or not."""
        member = self.chosen.choice(self.members)
        self.sim.stop(member.process)
        self.sim.loop.call_later(
            self.chosen.uniform(0.1, 25), lambda: self.sim.resume(member.process)
        )

    async def crowd(self) -> None:
        """Freezes a member that has just done something; others take its queues over."""
        self.caught = self.sim.loop.create_future()
        with suppress(TimeoutError):
            process, group = await asyncio.wait_for(self.caught, 2)
            if group not in self.busy:
                self.join(group)
            frozen_s = self.options.lock_expiry_ms / 1_000 * self.chosen.uniform(0.5, 3)
            self.sim.loop.call_later(frozen_s, lambda: self.sim.resume(process))

    async def reset(self) -> None:
        """Stops a group, moves its offsets anywhere, and starts it again."""
        if (group := self._any_group()) is None:
            return
        self.busy.add(group)
        leaving = self._of(group)
        for member in leaving:
            member.leaves.set()
        self.resetting.append(asyncio.create_task(self._reset(group, leaving)))

    async def _reset(self, group: str, leaving: Sequence[Member]) -> None:
        for member in leaving:
            await member.gone.wait()
        async with self._admin() as admin:
            while True:
                with suppress(MessageQueueError):
                    ranges = await admin.ranges([TOPIC])
                    any_of = self.chosen.randint
                    offsets = {QueueRef(TOPIC, r.queue_id): any_of(r.first, r.end) for r in ranges}
                    self._note_reset(group, offsets)
                    await admin.set_offsets(group, offsets)
                    self._note_reset(group, offsets)
                    break
                await self.sim.elapse(1)
        self.busy.discard(group)
        for _ in leaving:
            self.join(group)

    def _note_reset(self, group: str, offsets: dict[QueueRef, int]) -> None:
        for queue, offset in offsets.items():
            self.note(Reset(self.now_ms(), group, queue, offset))


@pytest.fixture
def world() -> type[World]:
    return World
