"""The transport as a whole: tests/conformance/test_transport.py; here what is its own."""

from datetime import timedelta

import pytest

from headrace.errors import HeadraceError
from headrace.testing.conformance.subscriptions import fresh, numbers, outgoing, take
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka.transport import KafkaTransport


async def test_without_a_database_nothing_is_scheduled(cluster: MockKafka) -> None:
    transport = KafkaTransport(cluster.address(), topics=cluster.topics)
    await transport.start()
    with pytest.raises(HeadraceError, match="event_store"):
        await transport.schedule(outgoing(fresh("t"), 0), timedelta(0))
    await transport.aclose()


async def test_a_group_for_a_topic_that_is_missing_is_refused(transport: KafkaTransport) -> None:
    with pytest.raises(HeadraceError, match="there is no topic"):
        await transport.subscribe(fresh("g"), [fresh("nowhere")])


async def test_a_broker_that_goes_and_comes_back_is_no_error(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=3, forever=True)
    subscription = await transport.subscribe(fresh("g"), [topic])
    for number in range(60):
        if number == 20:
            cluster.set_down(2)
        if number == 40:
            cluster.set_up(2)
        told: list[object] = []
        assert transport.publish_soon(outgoing(topic, number, f"k-{number}"), told.append)
    assert sorted(numbers(await take(subscription, 60))) == list(range(60))
    await subscription.aclose()
