"""The reader of the built-in queue and the one of Kafka keep the port's promises."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from headrace.testing.conformance.subscriptions import new_topic, outgoing, publish_all
from headrace.testing.conformance.topic_reader import TopicReaderConformance
from headrace.testing.kafka import MockKafka
from headrace.transports.base import Transport
from headrace.transports.kafka.topic_reader import KafkaTopicReader
from headrace.transports.kafka.transport import KafkaTransport
from headrace.transports.queue import QueueTransport
from headrace.transports.topic_reader import TopicReader, open_topic_reader
from headrace_mq.message import QueueRef
from headrace_mq.testing.conformance.deployment import ProcessDeployment


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    deployment = ProcessDeployment(tmp_path_factory.mktemp("mq"))
    deployment.start()
    yield deployment
    deployment.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockKafka]:
    with MockKafka(brokers=3) as cluster:
        yield cluster


class TestBlockingReader(TopicReaderConformance):
    @pytest.fixture
    async def transport(self, deployment: ProcessDeployment) -> AsyncIterator[Transport]:
        transport = QueueTransport(deployment.address)
        await transport.start()
        yield transport
        await transport.aclose()

    @pytest.fixture
    def reader(self, deployment: ProcessDeployment) -> Iterator[TopicReader]:
        with open_topic_reader(deployment.address) as reader:
            yield reader


class TestKafkaTopicReader(TopicReaderConformance):
    @pytest.fixture
    async def transport(self, cluster: MockKafka) -> AsyncIterator[Transport]:
        transport = KafkaTransport(cluster.address(), topics=cluster.topics)
        await transport.start()
        yield transport
        await transport.aclose()

    @pytest.fixture
    def reader(self, cluster: MockKafka) -> Iterator[TopicReader]:
        with open_topic_reader(cluster.text) as reader:
            assert isinstance(reader, KafkaTopicReader)
            yield reader

    async def test_a_moment_begins_at_an_offset(
        self, transport: Transport, reader: TopicReader
    ) -> None:
        """A mock cluster knows of no moment but the end; a real one is asked in tests/kafka."""
        topic = await new_topic(transport)
        await publish_all(transport, [outgoing(topic, number) for number in range(3)])
        found = await asyncio.to_thread(reader.offsets_at, [topic], 1)
        assert found == {QueueRef(topic, 0): 3}
