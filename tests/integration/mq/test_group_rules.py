"""What an operator says of a group, as its members meet it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.retrying_consumer import RetryingConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retry_headers import dead_letter_topic, origin_of
from headrace_mq.errors import InconsistentGroup
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import ConsumerSettings
from headrace_mq.testing.arrivals import take
from headrace_mq.testing.simulated_broker import SimulatedBroker
from headrace_mq.testing.simulation import Simulation

WITHIN_S = 1.2  # a heartbeat, and the network there and back


class World:
    """A broker, and one program with two members of a group."""

    def __init__(self, seed: int) -> None:
        self.sim = Simulation(seed)
        self.broker = SimulatedBroker(self.sim)
        clock, address = self.sim.clock(), self.broker.address
        self.admin = AdminClient(address, timeout_ms=10_000)
        self.producer = Producer(address, clock=clock)
        self.one, self.other = (
            Consumer(address, group="g", topics=["t"], clock=clock) for _ in range(2)
        )
        self.got: list[Record] = []

    async def read(self, consumer: Consumer) -> None:
        while True:
            for record in await consumer.poll():
                self.got.append(record)
                consumer.ack(record)

    async def send(self, count: int) -> None:
        await self.producer.send_many([Message(topic="t", body=b"x")] * count)

    async def reach(self, holds: Callable[[], object]) -> float:
        """Waits until it holds, and returns for how many seconds."""
        began = self.sim.loop.time()
        while not holds():
            await self.sim.elapse(0.01)
        return self.sim.loop.time() - began

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def live() -> None:
            async with self.admin, self.producer, self.one, self.other:
                reading = [asyncio.create_task(self.read(each)) for each in (self.one, self.other)]
                await story()
                for task in reading:
                    task.cancel()
                await asyncio.wait(reading)

        async def main() -> None:
            await self.broker.start()
            process, _ = self.sim.start("app", "app")
            await process.spawn(live())
            await self.broker.stop()

        self.sim.run(main())
        assert self.sim.loop.failures == []


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_group_stands_still_at_once_and_goes_on_at_once_with_the_same_members(seed: int) -> None:
    world = World(seed)
    admin, one, other, got = world.admin, world.one, world.other, world.got

    async def story() -> None:
        await admin.create_topic("t", 4)
        await world.reach(lambda: len(one.assignment) == len(other.assignment) == 2)
        await world.send(10)
        await world.reach(lambda: len(got) == 10)
        before = (one.assignment, other.assignment, (await admin.group("g")).generation)

        await admin.set_group("g", consume=False)
        await world.send(10)
        heard = await world.reach(lambda: not (one.rules.consume or other.rules.consume))
        assert heard < WITHIN_S
        # As long as several fetches wait at the broker, and as silent members stay in a group.
        await world.sim.elapse(60)
        assert len(got) == 10
        after = (one.assignment, other.assignment, (await admin.group("g")).generation)
        assert after == before
        assert sum(queue.lag for queue in (await admin.lag("g", ["t"])).queues) == 10

        await admin.set_group("g", consume=True)
        assert await world.reach(lambda: len(got) == 20) < WITHIN_S
        assert len({(record.queue, record.offset) for record in got}) == 20

    world.run(story)


RED = {"topics": {"t": "_tag = 'red'"}}
DIFFERING = {
    "filter": (
        RED,
        {"topics": {"t": "_tag = 'blue'"}},
        r"'_tag = 'red''.*'_tag = 'blue''|red.*blue",
    ),
    "no filter": (RED, {"topics": ["t"]}, "the filter of topic t .*red.* ''"),
    "allocation": ({}, {"settings": ConsumerSettings(allocation="circle")}, "'average'.*'circle'"),
    "handling": ({}, {"settings": ConsumerSettings(handling="parallel")}, "'per_key'.*'parallel'"),
}


@pytest.mark.parametrize(("one", "other", "both"), DIFFERING.values(), ids=DIFFERING)
async def test_a_member_that_would_lose_messages_for_another_is_refused_with_both_named(
    broker: Any, one: dict[str, Any], other: dict[str, Any], both: str
) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", 2)
        await producer.send_many(
            [Message(topic="t", tag=tag, body=b"x") for tag in ("red", "blue") * 10]
        )

    def member(group: str, choices: dict[str, Any]) -> Consumer:
        return Consumer(broker.address, **{"group": group, "topics": ["t"], **choices})

    async with member("g", one) as consumer:
        with pytest.raises(InconsistentGroup, match=both):
            async with member("g", other):
                pass
        # The first one has all queues still, and a group of its own takes the other.
        wanted = 10 if one else 20
        assert len(await take(consumer, wanted)) == wanted
        async with member("h", other):
            pass


async def test_members_that_retry_otherwise_are_refused(broker: Any) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", 1)
    retrying = RetryingConsumer(broker.address, group="g", topics=["t"])
    async with retrying:
        with pytest.raises(InconsistentGroup, match=r"the retries .*'in place'"):
            async with Consumer(broker.address, group="g", topics=["t"]):
                pass


async def test_rules_of_a_group_survive_a_kill_and_hold_for_later_members(
    broker: Any,
) -> None:
    async with AdminClient(broker.address) as admin:
        await admin.create_topic("t", 1)
        await admin.set_group("g", consume=False, retries=0)
    await broker.kill()
    await broker.start()
    async with Producer(broker.address) as producer:
        await producer.send(Message(topic="t", body=b"poison"))
    handled: list[int] = []

    async def fail(record: Record) -> None:
        origin = origin_of(record)
        handled.append(0 if origin is None else origin.attempt)
        raise ValueError("no")

    retrying = RetryingConsumer(broker.address, group="g", topics=["t"])
    async with AdminClient(broker.address) as admin, retrying:
        running = asyncio.create_task(retrying.run(fail))
        assert not retrying.consumer.rules.consume
        (described,) = (await admin.group("g")).rules
        assert (described.consume, described.retries) == (False, 0)
        assert [queue.lag for queue in (await admin.lag("g", ["t"])).queues] == [1]
        await admin.set_group("g", consume=True)
        dead = Consumer(broker.address, group="undertaker", topics=[dead_letter_topic("g")])
        async with dead:
            (letter,) = await take(dead, 1)
        # The member would have tried it 16 times again.
        assert (letter.body, handled) == (b"poison", [0])
        assert letter.queue == QueueRef(dead_letter_topic("g"), 0)
    await running
