"""A broker in a simulated world, and what happens to its messages when something happens to it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import MessageQueueError, StoreReadOnly
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.simulated_broker import SimulatedBroker
from headrace_mq.testing.simulation import Simulation

Story = Callable[[Simulation, SimulatedBroker, Producer], Awaitable[None]]


def play(story: Story, *, seed: int = 0) -> int:
    """Tells a story of a broker and a producer; returns how often the broker died."""
    sim, deaths = Simulation(seed), list[float]()
    broker = SimulatedBroker(sim, died=lambda: deaths.append(sim.loop.time()))

    async def main() -> None:
        await broker.start()
        process, _ = sim.start("app", "app")
        producer = Producer(broker.address, clock=sim.clock())
        await process.spawn(producer.start())
        await process.spawn(story(sim, broker, producer))
        await process.spawn(producer.aclose())

    sim.run(main())
    assert sim.loop.failures == []
    return len(deaths)


async def send(producer: Producer, *bodies: bytes) -> None:
    await producer.send_many([Message(topic="t", key="k", body=body) for body in bodies])


async def bodies(sim: Simulation, broker: SimulatedBroker, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with Consumer(broker.address, group="g", topics=["t"], clock=sim.clock()) as consumer:
        while len(found) < count:
            found += [record.body for record in await consumer.poll()]
    return found


async def restart(sim: Simulation, broker: SimulatedBroker) -> None:
    await broker.stop()
    await broker.start()


async def kill(sim: Simulation, broker: SimulatedBroker) -> None:
    broker.kill()
    assert not broker.is_alive
    await sim.elapse(3)
    await broker.start()


async def cut_power(sim: Simulation, broker: SimulatedBroker) -> None:
    broker.power_off()
    await sim.elapse(3)
    await broker.start()


@pytest.mark.parametrize(("end", "deaths"), [(restart, 0), (kill, 1), (cut_power, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_messages_survive_the_faults(
    seed: int, end: Callable[[Simulation, SimulatedBroker], Awaitable[None]], deaths: int
) -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, producer: Producer) -> None:
        await send(producer, b"a", b"b")
        await end(sim, broker)
        assert broker.is_alive
        await send(producer, b"c")
        assert await bodies(sim, broker, 3) == [b"a", b"b", b"c"]

    assert play(story, seed=seed) == deaths


@pytest.mark.parametrize("changes", range(6))
def test_the_power_goes_during_a_change_of_the_disk(changes: int) -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, producer: Producer) -> None:
        cut = asyncio.create_task(broker.power_off_within(changes, 5))
        sent = asyncio.create_task(send(producer, b"a"))
        await cut
        await broker.start()
        await sent
        assert await bodies(sim, broker, 1) == [b"a"]

    assert play(story) == 1


def test_the_power_goes_without_a_change_when_time_is_up() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, _: Producer) -> None:
        await broker.power_off_within(1_000_000, 2)
        assert not broker.is_alive
        broker.power_off()
        broker.kill()

    assert play(story) == 1


def test_a_frozen_broker_answers_when_it_goes_on() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, producer: Producer) -> None:
        broker.freeze()
        sent = asyncio.create_task(send(producer, b"a"))
        await sim.elapse(3)
        assert broker.is_alive
        assert not sent.done()
        broker.thaw()
        await sent

    assert play(story) == 0


def test_a_broker_whose_sync_failed_takes_nothing_until_it_starts_again() -> None:
    async def story(sim: Simulation, broker: SimulatedBroker, producer: Producer) -> None:
        await send(producer, b"a")
        broker.fail_sync(1)
        with pytest.raises(StoreReadOnly):
            await send(producer, b"b")
        broker.heal_disk()
        await kill(sim, broker)
        await send(producer, b"c")
        found = await bodies(sim, broker, 2)
        assert found[0] == b"a"
        assert found[-1] == b"c"

    play(story)


def test_a_broker_that_cannot_start_says_so() -> None:
    sim = Simulation(0)
    store = StoreSettings(directory=Path("/data"))
    settings = BrokerSettings(host="one", insecure=True, store=store)

    async def main() -> None:
        first, second = SimulatedBroker(sim, settings), SimulatedBroker(sim, settings)
        await first.start()
        with pytest.raises(MessageQueueError, match="another broker"):
            await second.start()

    sim.run(main())
