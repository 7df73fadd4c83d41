"""The producer: the queue's own partitions, order while it waits, and what became of messages."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.testing.conformance.subscriptions import fresh, outgoing
from headrace.testing.kafka import MockKafka
from headrace.transports.base import Outgoing, Place
from headrace.transports.kafka.producer import KafkaProducer, partition_of
from headrace.transports.kafka.transport import KafkaTransport
from headrace_mq.protocol.keys import queue_for_key

# Of Kafka's protocol.
_PRODUCE = 0
_OUT_OF_ORDER_SEQUENCE = 45
_NOT_ENOUGH_REPLICAS = 19


@given(st.text(max_size=40), st.integers(1, 1_024))
def test_a_key_has_the_number_of_its_queue_on_the_built_in_queue(key: str, count: int) -> None:
    assert partition_of(key, count) == queue_for_key(key, count)


async def test_messages_for_an_unknown_topic_keep_their_order(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    cluster.topics.ensure(topic, queues=1, forever=True)
    told: list[Place | BaseException] = []
    for number in range(5):
        assert transport.publish_soon(outgoing(topic, number), told.append)
    assert await transport.publish(outgoing(topic, 5)) == Place(0, 5)
    assert told == [Place(0, number) for number in range(5)]


async def test_a_topic_that_is_missing_fails_its_own_messages_alone(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    cluster.topics.ensure(topic, queues=1, forever=True)
    lost = asyncio.create_task(transport.publish(outgoing(fresh("nowhere"), 0)))
    sent = asyncio.create_task(transport.publish(outgoing(topic, 0)))
    assert await sent == Place(0, 0)
    with pytest.raises(HeadraceError, match="there is no topic"):
        await lost


async def test_a_message_that_is_too_large_is_malformed(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=1, forever=True)
    with pytest.raises(ValueError, match="too large"):
        await transport.publish(Outgoing(topic, "k", b"x" * 2_000_000))
    assert await transport.publish(outgoing(topic, 0)) == Place(0, 0)


async def test_a_passing_error_is_made_up_for(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=1, forever=True)
    cluster.fail_requests(_PRODUCE, [_NOT_ENOUGH_REPLICAS] * 3)
    assert await transport.publish(outgoing(topic, 0)) == Place(0, 0)


async def test_a_producer_that_met_a_fatal_error_is_replaced(cluster: MockKafka) -> None:
    topic = fresh("t")
    cluster.topics.ensure(topic, queues=1, forever=True)
    producer = KafkaProducer(cluster.address(), "me", lambda _topic: 1)
    assert await producer.publish(outgoing(topic, 0)) == Place(0, 0)
    before = producer._client
    # The broker says that a message before this one is missing.
    cluster.fail_requests(_PRODUCE, [_OUT_OF_ORDER_SEQUENCE])
    first = asyncio.create_task(producer.publish(outgoing(topic, 1)))
    try:
        await first
    except TimeoutError:
        # Unknown, as after any outage; it is sent again.
        assert (await producer.publish(outgoing(topic, 1))).queue == 0
        assert producer._client is not before
    assert (await producer.publish(outgoing(topic, 2))).offset >= 2
    await producer.aclose()


async def test_a_closed_producer_takes_nothing(cluster: MockKafka) -> None:
    producer = KafkaProducer(cluster.address(), "me", lambda _topic: 1)
    await producer.aclose()
    await producer.aclose()
    with pytest.raises(HeadraceError, match="closed"):
        await producer.publish(outgoing(fresh("t"), 0))
