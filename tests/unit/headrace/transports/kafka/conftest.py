"""A mock cluster for the tests of a file."""

from collections.abc import AsyncIterator, Iterator

import pytest

from headrace.testing.kafka import MockKafka
from headrace.transports.kafka.schedule import MemorySchedule
from headrace.transports.kafka.transport import KafkaTransport

# A mock cluster waits for so long until it has heard of all members.
QUICK = "session.timeout.ms=1500"


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockKafka]:
    with MockKafka(brokers=3) as cluster:
        yield cluster


@pytest.fixture
async def transport(cluster: MockKafka) -> AsyncIterator[KafkaTransport]:
    transport = KafkaTransport(
        cluster.address(QUICK), topics=cluster.topics, schedule=MemorySchedule()
    )
    await transport.start()
    yield transport
    await transport.aclose()
