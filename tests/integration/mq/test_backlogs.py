"""Groups that may be behind by so much only, as producers and consumers see it, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import BacklogFull, SendTimeout
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ConsumerSettings, ProducerSettings
from headrace_mq.testing.simulated_broker import SimulatedBroker
from headrace_mq.testing.simulation import Simulation

QUEUE = QueueRef("t", 0)
# One message is on its way at a time, so that a limit is exact.
SINGLE = ProducerSettings(batch_messages_max=1, send_timeout_ms=12_000)


class World:
    """A broker with a topic of one queue in which group g stands at the beginning."""

    def __init__(self, seed: int) -> None:
        self.sim = Simulation(seed)
        self.broker = SimulatedBroker(self.sim)
        self.admin = AdminClient(self.broker.address, timeout_ms=10_000)
        self.producer = Producer(self.broker.address, SINGLE, clock=self.sim.clock())

    async def prepare(self) -> None:
        await self.admin.create_topic("t", 1)
        await self.admin.set_offsets("g", {QUEUE: 0})

    async def send(self, count: int, *, first: int = 0) -> None:
        for number in range(first, first + count):
            await self.producer.send(Message(topic="t", key="k", body=b"%d" % number))

    def consumer(self) -> Consumer:
        settings = ConsumerSettings(fetch_bytes_max=1)
        return Consumer(
            self.broker.address, group="g", topics=["t"], settings=settings, clock=self.sim.clock()
        )

    async def end(self) -> int:
        return (await self.admin.ranges(["t"]))[0].end


Story = Callable[[World], Awaitable[None]]


@pytest.fixture(params=[0, 1])
def tell(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Tells a story of a broker, in worlds whose packets take different ways."""

    def run(story: Story) -> None:
        world = World(request.param)

        async def main() -> None:
            await world.broker.start()
            process, _ = world.sim.start("app", "app")

            async def live() -> None:
                async with world.admin, world.producer:
                    await world.prepare()
                    await story(world)

            await process.spawn(live())
            await world.broker.stop()

        world.sim.run(main())
        assert world.sim.loop.failures == []

    return run


def test_a_producer_waits_for_a_group_that_is_too_far_behind_and_goes_on_with_it(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.limit_backlog("g", 5, "block")
        sending = asyncio.create_task(world.send(20))
        await world.sim.elapse(2)
        assert (await world.end(), sending.done()) == (5, False)
        (told,) = await world.admin.backlogs()
        assert (told.messages, told.alarm) == (5, True)
        assert (await world.admin.status()).alarms == ["g"]
        bodies = []
        async with world.consumer() as consumer:
            while len(bodies) < 20:
                for record in await consumer.poll():
                    bodies.append(record.body)
                    consumer.ack(record)
                await consumer.commit()
        await sending
        assert bodies == [b"%d" % number for number in range(20)]
        assert (await world.admin.status()).alarms == []

    tell(story)


def test_a_producer_that_waits_in_vain_fails_at_its_own_time_limit(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.limit_backlog("g", 3, "block")
        with pytest.raises(SendTimeout):
            await world.send(4)
        assert await world.end() == 3
        await world.admin.unlimit_backlog("g")
        await world.send(1)

    tell(story)


def test_a_group_that_rejects_is_named_with_its_backlog_and_other_topics_go_on(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.limit_backlog("g", 3, "reject")
        await world.send(3)
        with pytest.raises(BacklogFull, match="group 'g' is 3 messages behind"):
            await world.send(1)
        await world.producer.send(Message(topic="another", body=b"x"))
        await world.admin.set_offsets("g", {QUEUE: 1})
        await world.send(1)
        assert await world.end() == 4

    tell(story)


def test_a_group_that_drops_the_oldest_skips_them_and_nothing_is_deleted(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.limit_backlog("g", 5, "drop_oldest")
        await world.send(20)
        assert (await world.admin.offsets("g", ["t"]))[QUEUE] == 15
        (told,) = await world.admin.backlogs()
        assert (told.messages, told.dropped) == (5, 15)
        async with world.consumer() as consumer:
            read = [record.offset for record in await consumer.poll()]
            while len(read) < 5:
                read += [record.offset for record in await consumer.poll()]
        assert read == [*range(15, 20)]
        other = Consumer(world.broker.address, group="other", topics=["t"], clock=world.sim.clock())
        held = 0
        async with other:
            while held < 20:
                held += len(await other.poll())

    tell(story)


def test_a_slow_member_of_such_a_group_goes_on_where_the_group_was_moved(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.limit_backlog("g", 5, "drop_oldest")
        settings = ConsumerSettings(fetch_bytes_max=1, in_flight_max=1)
        consumer = Consumer(
            world.broker.address, group="g", topics=["t"], settings=settings,
            clock=world.sim.clock(),
        )  # fmt: skip
        async with consumer:
            await world.send(1)
            (first,) = await consumer.poll()
            await world.send(19, first=1)
            consumer.ack(first)
            read = []
            while len(read) < 5:
                for record in await consumer.poll():
                    read.append(record.offset)
                    consumer.ack(record)
            assert read == [*range(15, 20)]

    tell(story)


def test_a_limit_survives_a_broker_that_is_killed(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.limit_backlog("g", 3, "reject")
        # The group's offset of the beginning is on disk by then.
        await world.sim.elapse(3)
        world.broker.kill()
        await world.broker.start()
        await world.send(3)
        with pytest.raises(BacklogFull):
            await world.send(1)

    tell(story)
