"""Topics that are there stay as they are. What a real cluster says of its topics: tests/kafka."""

from collections.abc import Callable

import pytest

from headrace.errors import BrokerUnreachable, DefinitionError, HeadraceError
from headrace.testing.conformance.subscriptions import fresh
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.topics import ClusterTopics
from headrace.transports.kafka.transport import KafkaTransport


async def test_a_topic_with_fewer_partitions_is_refused(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=2, forever=True)
    with pytest.raises(DefinitionError, match="2 partitions"):
        await transport.ensure_topic(topic, queues=3, forever=True)
    with pytest.raises(HeadraceError):
        await transport.ensure_topic(topic, queues=2, forever=False)
    facts = cluster.topics.facts(topic)
    assert facts is not None
    assert facts.partitions == 2


def test_brokers_of_a_cluster_are_counted(cluster: MockKafka) -> None:
    assert ClusterTopics(cluster.address(), "me").brokers() == 3


async def test_a_wrong_address_is_an_error_in_time(free_port: Callable[[], int]) -> None:
    place = f"127.0.0.1:{free_port()}"
    address = KafkaAddress.parse(f"kafka://{place}")
    transport = KafkaTransport(address)
    with pytest.raises(BrokerUnreachable, match=place):
        await transport.start(within_ms=200)
    await transport.aclose()
