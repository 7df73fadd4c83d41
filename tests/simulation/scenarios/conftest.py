"""What a deployment has besides plain groups: each seed adds one of several ways to use the queue."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.retrying_consumer import RetryingConsumer
from headrace_mq.client.fetch.queue_priorities import Priorities, prioritized
from headrace_mq.client.retry_headers import retry_topic
from headrace_mq.errors import Closed, MessageQueueError
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import ConsumerSettings, RetrySettings
from headrace_mq.testing.history import (
    Acknowledged,
    Broken,
    Failed,
    Finished,
    Received,
    Sent,
    TakenBack,
)

ADDRESS, TOPIC = "broker:9876", "t"
SCENARIOS = (
    "parallel", "broadcast", "scheduled", "retries",
    "priorities", "broadcast", "scheduled", "retries",
)  # fmt: skip
# A group of its own that all faults may befall, and the checks of every group hold for.
GROUPS = {"parallel": "parallel-1", "retries": "retries-1"}
RETRY = RetrySettings(retries_max=2, levels=("1s",))
OFFSETS = Path("/offsets")
# Every so many messages there is one that its handler never can handle.
POISON_EVERY = 9


class Failing(Exception):
    """A handler's failure."""


class Arranged(Consumer):
    """Shows somebody what each poll brings."""

    watch: Callable[[Sequence[Record]], None]

    async def poll(self) -> list[Record]:
        records = await super().poll()
        self.watch(records)
        return records


class Scenario:
    """Put before a world: seed n has, besides plain groups, scenario n modulo their number."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scenario = SCENARIOS[seed % len(SCENARIOS)]
        self.heard: dict[str, set[tuple[QueueRef, int]]] = {}
        self.listeners: dict[str, Any] = {}
        # Of priorities; one is none.
        self.levels = 1
        if self.scenario == "priorities":
            self.levels = 2 + seed // len(SCENARIOS) % 2
            # Both ways of handing out, and a queue for each level.
            self.options = self.options._replace(
                groups=("poll-1", "run-1"), queues=max(self.options.queues, self.levels)
            )
        elif self.scenario != "scheduled":
            # Instead of a second plain group, so that a run takes no longer.
            special = [GROUPS[self.scenario]] if self.scenario in GROUPS else []
            self.options = self.options._replace(groups=(self.options.groups[0], *special))
        self.sim.trace(f"scenario: {self.scenario}")

    async def boot(self) -> None:
        await super().boot()
        if self.scenario == "broadcast" and not self.listeners:
            for _ in range(2):
                host = self.name("listener")
                self.heard[host] = set()
                # Whoever is caught at work there has no group that somebody else could join.
                self.busy.add(host)
                self.listen(host)

    # --- parallel, and retries ----------------------------------------------------------------

    def _consumer(self, group: str, settings: ConsumerSettings) -> Any:
        if self.levels > 1:
            chosen = replace(settings, priorities=self.levels, priority_turns=3)
            consumer = Arranged(
                ADDRESS, group=group, topics=[TOPIC], settings=chosen, clock=self.clock
            )
            consumer.watch = self._look_at_levels
            return consumer
        known = {
            name: getattr(settings, name)
            for name in ("in_flight_max", "commit_interval_ms", "fetch_wait_ms")
        }
        if group == GROUPS["parallel"]:
            chosen = ConsumerSettings(**known, handling="parallel", handlers_max=8)
            return Consumer(ADDRESS, group=group, topics=[TOPIC], settings=chosen, clock=self.clock)
        if group == GROUPS["retries"]:
            return RetryingConsumer(
                ADDRESS, group=group, topics=[TOPIC], settings=settings, retry=RETRY,
                clock=self.clock,
            )  # fmt: skip
        return super()._consumer(group, settings)

    async def _work(self, member: Any, consumer: Any, life: str) -> None:
        if member.group not in GROUPS.values():
            await super()._work(member, consumer, life)
            return

        async def handle(record: Record) -> None:
            self._delivered(member, record, life, in_turn=None)
            await self._handle()
            place = (self.now_ms(), member.group, life, record.queue, record.offset)
            if member.group == GROUPS["retries"] and self._fails(record):
                self.note(Failed(*place))
                raise Failing
            self.note(Finished(*place))

        await consumer.run(handle)

    def _fails(self, record: Record) -> bool:
        poisoned = int(record.body.rpartition(b"/")[2]) % POISON_EVERY == 0
        return poisoned or self.chosen.random() < 0.2

    # --- priorities -----------------------------------------------------------------------------

    def _producer(self, selector: Any = None) -> Any:
        return super()._producer(Priorities(self.levels).select if self.levels > 1 else selector)

    async def _send_prioritized(self, producer: Any, name: str, number: int) -> None:
        level = self.chosen.randrange(self.levels)
        key = f"key-{self.chosen.randrange(self.options.keys)}"
        body = f"{name}/{key}/{level}/{number}".encode()
        message = prioritized(Message(topic=TOPIC, key=key, body=body), level)
        # Order is that of a key and a level: a higher one may overtake.
        self.note(Sent(self.now_ms(), body, f"{key} of level {level}", name))
        try:
            result = await producer.send(message)
        except MessageQueueError as error:
            self.sim.trace(f"{name} gave up {body!r}: {type(error).__name__}")
        else:
            self.note(Acknowledged(self.now_ms(), body, result.queue, result.offset))

    def _look_at_levels(self, records: Sequence[Record]) -> None:
        levels = [record.queue.queue_id % self.levels for record in records]
        if levels not in (sorted(levels), sorted(levels, reverse=True)):
            self.broken.append(Broken("out of level", f"one poll brought the levels {levels}"))

    def _look_at_places(self) -> None:
        for (queue, offset), body in sorted(self.log.items()):
            level = int(body.split(b"/")[2])
            if queue.queue_id % self.levels != level:
                self.broken.append(Broken("wrong level", f"{queue} {offset} holds {body!r}"))

    # --- broadcast ------------------------------------------------------------------------------

    def listen(self, host: str) -> None:
        """Starts a broadcast consumer on a machine, with whatever its disk holds."""
        process, files = self.sim.start(self.name(host), host)
        self.listeners[host] = process
        process.spawn(self._hear(host, files))

    async def _hear(self, host: str, files: Any) -> None:
        settings = ConsumerSettings(
            broadcast_file=OFFSETS,
            in_flight_max=self.options.in_flight_max,
            commit_interval_ms=self.options.commit_interval_ms,
        )
        while True:
            consumer = Consumer(
                ADDRESS, group="cast", topics=[TOPIC], settings=settings, clock=self.clock
            )
            consumer._local._files = files
            try:
                await consumer.start()
            except MessageQueueError as error:
                self.sim.trace(f"{host}: {error}")
                continue
            with suppress(Closed):
                await self._hear_on(host, consumer)

    async def _hear_on(self, host: str, consumer: Consumer) -> None:
        while True:
            for record in await consumer.poll():
                place = (self.now_ms(), host, host, record.queue, record.offset)
                self.note(Received(*place, record.body, None))
                await self._handle()
                self.note(Finished(self.now_ms(), *place[1:]))
                self.heard[host].add((record.queue, record.offset))
                consumer.ack(record)

    async def kill_listener(self) -> None:
        """Kills a broadcast consumer; it starts again on its file."""
        if self.listeners:
            host = self.chosen.choice(sorted(self.listeners))
            self.sim.kill(self.listeners[host])
            self.listen(host)

    async def unplug_listener(self) -> None:
        """Cuts the power of a broadcast consumer's machine for a while."""
        if self.listeners:
            host = self.chosen.choice(sorted(self.listeners))
            self.sim.power_off(host)
            await self.sim.elapse(self.chosen.uniform(0, 2))
            self.sim.power_on(host)
            self.listen(host)

    # --- scheduled ------------------------------------------------------------------------------

    async def _send(self, producer: Any, name: str, number: int) -> None:
        if self.scenario == "priorities":
            await self._send_prioritized(producer, name, number)
            return
        if self.scenario != "scheduled" or self.chosen.random() < 0.6:
            await super()._send(producer, name, number)
            return
        key = f"key-{self.chosen.randrange(self.options.keys)}"
        body = f"{name}/{key}/{number}".encode()
        self.note(Sent(self.now_ms(), body, key, name))
        message = Message(topic=TOPIC, key=key, body=body)
        try:
            delay_ms = self.chosen.choice((0, 100, 1_000, 8_000))
            scheduled = await producer.schedule(message, delay_ms=delay_ms)
            self.note(Acknowledged(self.now_ms(), body, QueueRef(TOPIC, 0), -1))
            if self.chosen.random() < 0.3:
                # Until the answer is there, nobody knows.
                self.note(TakenBack(self.now_ms(), body, sure=False))
                taken_back = await producer.cancel(scheduled.id)
                if taken_back:
                    self.note(TakenBack(self.now_ms(), body, sure=True))
        except MessageQueueError as error:
            self.sim.trace(f"{name} gave up {body!r}: {type(error).__name__}")

    # --- the end --------------------------------------------------------------------------------

    async def _caught_up(self) -> None:
        await asyncio.wait(self.sending)
        # What was scheduled a moment ago may not have been read by the schedule.
        await self.sim.elapse(1)
        async with self._admin() as admin:
            while True:
                quiet = await self._is_quiet(admin)
                await super()._caught_up()
                if quiet and await self._is_quiet(admin):
                    break
                await self.sim.elapse(0.5)
            ends = [QueueRef(r.topic, r.queue_id) for r in await admin.ranges([TOPIC])]
            held = {r.queue_id: r.end for r in await admin.ranges([TOPIC])}
            wanted = {(queue, n) for queue in ends for n in range(held[queue.queue_id])}
        while not all(wanted <= heard for heard in self.heard.values()):
            await self.sim.elapse(0.5)

    async def _is_quiet(self, admin: Any) -> bool:
        if (await admin.scheduled()).pending:
            return False
        if self.scenario != "retries":
            return True
        topic = retry_topic(GROUPS["retries"])
        at = await admin.offsets(GROUPS["retries"], [topic])
        ranges = await admin.ranges([topic])
        return all(max(at[QueueRef(r.topic, r.queue_id)], 0) == r.end for r in ranges)

    async def _read_log(self) -> None:
        await super()._read_log()
        if self.scenario == "priorities":
            self._look_at_places()
        if self.scenario == "retries":
            group = GROUPS["retries"]
            async with self._admin() as admin:
                letters = await admin.dead_letters(group, limit=1_000)
            for letter in letters:
                origin = letter.origin
                queue = QueueRef(origin.topic, origin.queue_id)
                self.note(Finished(self.now_ms(), group, "dead letters", queue, origin.offset))


def with_scenarios(world: type[Any]) -> type[Any]:
    """Makes worlds that have scenarios."""
    faults = (*world.faults, "kill_listener", "unplug_listener")
    return type("ScenarioWorld", (Scenario, world), {"faults": faults})


@pytest.fixture
def world(world: type[Any]) -> type[Any]:
    """The worlds of all scenarios."""
    return with_scenarios(world)
