"""Ranges of partitions, also across what is no longer held."""

from headrace.testing.conformance.subscriptions import fresh, outgoing, publish_all
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka.client import reading
from headrace.transports.kafka.ranges import Held, find_ranges, read_range
from headrace.transports.kafka.transport import KafkaTransport


async def test_a_range_has_what_the_partition_holds(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=1, forever=True)
    await publish_all(transport, [outgoing(topic, number) for number in range(10)])
    cluster.delete_records(topic, 0, 4)
    with reading(cluster.address(), "me") as consumer:
        assert find_ranges(consumer, topic, 1) == {0: Held(4, 10)}
    pages = read_range(cluster.address(), "me", (topic, 0), 2, 8)
    assert [each.offset() for page in pages for each in page] == [4, 5, 6, 7]
    assert list(read_range(cluster.address(), "me", (topic, 0), 10, 20)) == []
