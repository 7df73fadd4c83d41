"""A broker whose directory was lost: its topics are others, whatever clients knew of them."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import BrokerSettings, ConsumerSettings, ProducerSettings, StoreSettings

Restart = Callable[[], Awaitable[None]]


class Brokers:
    """One address, at which one broker follows the other."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self._port = port
        self._broker: Broker | None = None

    async def start(self) -> None:
        store = StoreSettings(directory=self.directory, segment_bytes=1 << 20)
        self._broker = Broker(BrokerSettings(store=store, port=self._port))
        await self._broker.start()

    async def stop(self) -> None:
        assert self._broker is not None
        await self._broker.aclose()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"


@pytest.fixture
async def brokers(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Brokers]:
    brokers = Brokers(tmp_path / "mq", free_port())
    await brokers.start()
    yield brokers
    await brokers.stop()


@pytest.fixture
async def producer(brokers: Brokers) -> AsyncIterator[Producer]:
    producer = Producer(brokers.address, ProducerSettings())
    await producer.start()
    await producer.create_topic("t", 1, "forever")
    yield producer
    await producer.aclose()


async def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        records = await consumer.poll()
        consumer.ack_all(records)
        found += [record.body for record in records]
    return found


async def send(producer: Producer, *bodies: bytes) -> None:
    for body in bodies:
        await producer.send(Message(topic="t", body=body, key="k"))


async def test_a_consumer_reads_a_topic_that_was_made_anew_from_its_first_message(
    brokers: Brokers, producer: Producer
) -> None:
    consumer = Consumer(brokers.address, group="g", topics=["t"], settings=ConsumerSettings())
    await consumer.start()
    try:
        await send(producer, b"1", b"2", b"3")
        assert await read(consumer, 3) == [b"1", b"2", b"3"]
        await brokers.stop()
        shutil.rmtree(brokers.directory)
        await brokers.start()
        await send(producer, b"4", b"5")
        async with asyncio.timeout(60):
            assert await read(consumer, 2) == [b"4", b"5"]
    finally:
        await consumer.aclose()


async def test_a_restart_with_the_same_messages_changes_nothing(
    brokers: Brokers, producer: Producer
) -> None:
    consumer = Consumer(brokers.address, group="g", topics=["t"], settings=ConsumerSettings())
    await consumer.start()
    try:
        await send(producer, b"1", b"2")
        assert await read(consumer, 2) == [b"1", b"2"]
        await brokers.stop()
        await brokers.start()
        await send(producer, b"3")
        async with asyncio.timeout(60):
            assert await read(consumer, 1) == [b"3"]
    finally:
        await consumer.aclose()


async def test_a_producer_makes_a_topic_that_was_lost_as_it_was(
    brokers: Brokers, producer: Producer
) -> None:
    await send(producer, b"1")
    await brokers.stop()
    shutil.rmtree(brokers.directory)
    await brokers.start()
    await send(producer, b"2")
    async with AdminClient(brokers.address) as admin:
        topic = await admin.topic("t")
        assert (topic.queues, topic.retention) == (1, "forever")
        (held,) = await admin.ranges(["t"])
        assert (QueueRef(held.topic, held.queue_id), held.end) == (QueueRef("t", 0), 1)
