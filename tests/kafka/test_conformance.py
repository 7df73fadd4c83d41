"""The transport and the reader of topics keep their promises over real Kafka brokers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from headrace.stores.open import open_schedule
from headrace.testing.conformance.topic_reader import TopicReaderConformance
from headrace.testing.conformance.transport import DurableTransportConformance, TransportConformance
from headrace.transports.base import Transport
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.schedule import MemorySchedule, Schedule
from headrace.transports.kafka.transport import KafkaTransport
from headrace.transports.topic_reader import TopicReader, open_topic_reader
from samples.kafka import KafkaBrokers


async def connected(
    brokers: KafkaBrokers,
    options: str,
    schedule: Schedule | None = None,
    *,
    dispatches: bool = True,
) -> KafkaTransport:
    address = KafkaAddress.parse(f"{brokers.address}?{options}")
    kept = schedule or MemorySchedule()
    transport = KafkaTransport(address, schedule=kept, dispatches=dispatches)
    await transport.start()
    return transport


class TestOneBroker(TransportConformance):
    OPTIONS = "group.protocol=classic&session.timeout.ms=6000"

    @pytest.fixture
    def brokers(self, one_broker: KafkaBrokers) -> KafkaBrokers:
        return one_broker

    @pytest.fixture
    async def transport(self, brokers: KafkaBrokers) -> AsyncIterator[Transport]:
        transport = await connected(brokers, self.OPTIONS)
        yield transport
        await transport.aclose()

    @pytest.fixture
    async def twin(self, brokers: KafkaBrokers) -> AsyncIterator[Transport]:
        twin = await connected(brokers, self.OPTIONS)
        yield twin
        await twin.aclose()


class TestOneBrokerByConsumerProtocol(TestOneBroker):
    OPTIONS = "group.protocol=consumer"


class TestThreeBrokers(TestOneBroker):
    @pytest.fixture
    def brokers(self, three_brokers: KafkaBrokers) -> KafkaBrokers:
        return three_brokers


class TestThreeBrokersByConsumerProtocol(TestThreeBrokers):
    OPTIONS = "group.protocol=consumer"


class TestThreeBrokersOverCrashes(DurableTransportConformance):
    @pytest.fixture
    async def transport(
        self, three_brokers: KafkaBrokers, database: str
    ) -> AsyncIterator[KafkaTransport]:
        # It stands for a process that has died: on SQLite, two that dispatch may publish twice.
        kept = await open_schedule(database)
        transport = await connected(three_brokers, "", kept, dispatches=False)
        yield transport
        with suppress(TimeoutError):
            await transport.aclose()

    @pytest.fixture
    async def reopen(
        self, three_brokers: KafkaBrokers, transport: KafkaTransport, database: str
    ) -> AsyncIterator[Callable[[], Awaitable[Transport]]]:
        opened = []

        async def reopen() -> Transport:
            # The machine's memory outlives its processes: Kafka has acknowledged out of it.
            for node in three_brokers.nodes:
                three_brokers.kill(node)
            for node in three_brokers.nodes:
                three_brokers.start_one(node)
            await asyncio.to_thread(three_brokers.wait)
            opened.append(await connected(three_brokers, "", await open_schedule(database)))
            return opened[-1]

        yield reopen
        for each in opened:
            await each.aclose()


class TestKafkaTopicReader(TopicReaderConformance):
    @pytest.fixture
    async def transport(self, one_broker: KafkaBrokers) -> AsyncIterator[Transport]:
        transport = await connected(one_broker, "")
        yield transport
        await transport.aclose()

    @pytest.fixture
    def reader(self, one_broker: KafkaBrokers) -> Iterator[TopicReader]:
        with open_topic_reader(one_broker.address) as reader:
            yield reader
