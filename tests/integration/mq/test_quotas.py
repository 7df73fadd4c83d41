"""Quotas as producers and consumers see them: a real broker, in simulated time."""

from collections.abc import Awaitable, Callable

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import SendTimeout
from headrace_mq.message import Message
from headrace_mq.protocol.limits import Rates
from headrace_mq.settings import ConsumerSettings, ProducerSettings
from headrace_mq.testing.arrivals import take
from headrace_mq.testing.simulated_broker import SimulatedBroker
from headrace_mq.testing.simulation import Simulation

# Ten batches of a tenth of a second's messages for each second.
SMALL = ProducerSettings(batch_messages_max=10)

Story = Callable[["World"], Awaitable[None]]


class World:
    """A broker and its clients on their machines."""

    def __init__(self, seed: int) -> None:
        self.sim = Simulation(seed)
        self.broker = SimulatedBroker(self.sim)
        self.clock = self.sim.clock()
        self.admin = AdminClient(self.broker.address, timeout_ms=10_000)

    def producer(self, settings: ProducerSettings = SMALL) -> Producer:
        return Producer(self.broker.address, settings, clock=self.clock)

    def consumer(self, settings: ConsumerSettings | None = None) -> Consumer:
        return Consumer(
            self.broker.address, group="g", topics=["t"], settings=settings, clock=self.clock
        )

    def seconds(self) -> float:
        return self.sim.loop.time()

    async def send(self, producer: Producer, count: int, topic: str = "t") -> None:
        await producer.send_many(
            [Message(topic=topic, key="k", body=b"%d" % number) for number in range(count)]
        )


@pytest.fixture(params=[0, 1])
def tell(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Tells a story of a broker, in worlds whose packets take different ways."""

    def run(story: Story) -> None:
        world = World(request.param)

        async def main() -> None:
            await world.broker.start()
            process, _ = world.sim.start("app", "app")

            async def live() -> None:
                async with world.admin:
                    await story(world)

            await process.spawn(live())
            await world.broker.stop()

        world.sim.run(main())
        assert world.sim.loop.failures == []

    return run


def test_a_producer_above_its_quota_is_slowed_down_to_it_and_loses_nothing(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.set_quota("topic", "t", Rates(produce_messages=100))
        await world.admin.create_topic("t", 1)
        async with world.producer() as producer:
            began = world.seconds()
            await world.send(producer, 1_000)
            took = world.seconds() - began
        # The first hundred are free: what may pass at once.
        assert 9 <= took < 12
        async with world.consumer() as consumer:
            records = await take(consumer, 1_000, timeout_ms=60_000)
        assert [record.body for record in records] == [b"%d" % number for number in range(1_000)]
        stored = [record.stored_at_ms for record in records]
        for first in range(0, 900, 50):
            # 200 messages within less than a second would be more than the rate and the burst.
            assert stored[min(first + 210, 999)] - stored[first] >= 1_000 or first + 210 > 999

    tell(story)


def test_two_connections_of_a_client_share_its_quota(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.create_topic("t", 1)
        (mine, *_) = await world.admin.connections()
        host = mine.address.rpartition(":")[0]
        assert host
        await world.admin.set_quota("client", host, Rates(produce_messages=100))
        async with world.producer() as one, world.producer() as other:
            began = world.seconds()
            sends = [one.send_soon(Message(topic="t", body=b"x")) for _ in range(500)]
            sends += [other.send_soon(Message(topic="t", body=b"x")) for _ in range(500)]
            for send in sends:
                await send
            assert world.seconds() - began >= 9
        (told,) = (await world.admin.quotas()).throttled
        assert (told.kind, told.name, told.way) == ("client", host, "produce")
        assert (await world.admin.status()).throttled >= told.requests > 0

    tell(story)


def test_a_consumer_reads_no_faster_than_the_quota_and_keeps_its_membership(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.create_topic("t", 1)
        async with world.producer() as producer:
            await world.send(producer, 1_000)
        await world.admin.set_quota("topic", "t", Rates(fetch_messages=50))
        async with world.consumer() as consumer:
            began = world.seconds()
            await take(consumer, 1_000, timeout_ms=60_000)
            assert 18 <= world.seconds() - began < 30
            (member,) = (await world.admin.group("g")).members
            # Heartbeats did not wait with the fetches.
            assert member.heard_ms_ago < 3_000
            assert member.throttled_ms > 0

    tell(story)


def test_a_quota_holds_from_the_moment_it_is_set_until_it_is_removed(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.create_topic("t", 1)
        async with world.producer() as producer:
            for limited in (False, True, False):
                if limited:
                    await world.admin.set_quota("topic", "t", Rates(produce_messages=100))
                else:
                    await world.admin.remove_quota("topic", "t")
                began = world.seconds()
                await world.send(producer, 500)
                assert (world.seconds() - began >= 3) == limited

    tell(story)


def test_topics_without_a_quota_are_not_slowed_down_by_the_others(tell) -> None:
    async def story(world: World) -> None:
        for topic in ("t", "free"):
            await world.admin.create_topic(topic, 1)
        await world.admin.set_quota("topic", "t", Rates(produce_messages=10))
        async with world.producer() as slow, world.producer() as quick:
            waiting = [slow.send_soon(Message(topic="t", body=b"x")) for _ in range(100)]
            began = world.seconds()
            await world.send(quick, 500, "free")
            assert world.seconds() - began < 2
            for one in waiting:
                await one

    tell(story)


def test_a_producer_far_above_its_quota_fails_at_its_own_time_limit(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.create_topic("t", 1)
        await world.admin.set_quota("topic", "t", Rates(produce_messages=1))
        hasty = ProducerSettings(batch_messages_max=10, send_timeout_ms=12_000)
        async with world.producer(hasty) as producer:
            began = world.seconds()
            with pytest.raises(SendTimeout):
                await world.send(producer, 100)
            assert world.seconds() - began < 15

    tell(story)


def test_a_quota_survives_a_broker_that_is_killed(tell) -> None:
    async def story(world: World) -> None:
        await world.admin.create_topic("t", 1)
        await world.admin.set_quota("topic", "t", Rates(produce_messages=100))
        world.broker.kill()
        await world.broker.start()
        async with world.producer() as producer:
            began = world.seconds()
            await world.send(producer, 500)
            assert world.seconds() - began >= 3.5

    tell(story)
