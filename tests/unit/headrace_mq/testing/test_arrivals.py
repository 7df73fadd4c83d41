"""Waiting for deliveries, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.testing import SimulatedBroker, Simulation, caught_up, take

Story = Callable[[str, Simulation], Awaitable[None]]


def play(story: Story) -> None:
    sim = Simulation(1)

    async def main() -> None:
        broker = SimulatedBroker(sim)
        await broker.start()
        async with Producer(broker.address, clock=sim.clock()) as producer:
            await producer.send_many([Message(topic="t", body=b"%d" % n) for n in range(5)])
        await story(broker.address, sim)

    sim.run(main())


def test_records_are_taken_and_committed() -> None:
    async def story(address: str, sim: Simulation) -> None:
        async with Consumer(address, group="g", topics=["t"], clock=sim.clock()) as consumer:
            assert len(await take(consumer, 5)) == 5
            await caught_up(address, "g", ["t"], timeout_ms=100)

    play(story)


def test_too_few_records_are_counted_when_time_is_up() -> None:
    async def story(address: str, sim: Simulation) -> None:
        async with Consumer(address, group="g", topics=["t"], clock=sim.clock()) as consumer:
            with pytest.raises(TimeoutError, match="5 of 6 records"):
                await take(consumer, 6)

    play(story)


def test_a_group_is_waited_for_until_it_has_committed_everything() -> None:
    async def story(address: str, sim: Simulation) -> None:
        with pytest.raises(TimeoutError, match="5 messages left"):
            await caught_up(address, "g", ["t"])
        waiting = asyncio.create_task(caught_up(address, "g", ["t"]))
        async with Consumer(address, group="g", topics=["t"], clock=sim.clock()) as consumer:
            await take(consumer, 5)
            await waiting

    play(story)
