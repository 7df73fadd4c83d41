"""Members: what they are given, and that a slow reader stays a member. The rest is conformance."""

import asyncio

from headrace.testing.conformance.subscriptions import fresh, numbers, outgoing, take
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.subscription import group_config
from headrace.transports.kafka.transport import KafkaTransport


def test_a_member_is_configured_by_its_protocol() -> None:
    classic = group_config(KafkaAddress.parse("kafka://h"), "me", "g", "")
    assert classic["partition.assignment.strategy"] == "cooperative-sticky"
    assert "group.instance.id" not in classic
    named = group_config(KafkaAddress.parse("kafka://h"), "me", "g", "service-1")
    # Long enough for a restart; a member without a name does not come back.
    assert named["session.timeout.ms"] > classic["session.timeout.ms"]
    address = KafkaAddress.parse("kafka://h?group.protocol=consumer")
    found = group_config(address, "me", "g", "service-1")
    assert (found["group.id"], found["group.protocol"]) == ("g", "consumer")
    assert found["group.instance.id"] == "service-1"
    # Kafka 4 keeps these at the brokers.
    assert not {"session.timeout.ms", "partition.assignment.strategy"} & set(found)


async def test_what_is_read_ahead_is_bounded_and_comes_whole(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=2, forever=True)
    subscription = await transport.subscribe(fresh("g"), [topic])
    sent = [outgoing(topic, number, f"k-{number % 2}") for number in range(9_000)]
    await asyncio.gather(*[transport.publish(each) for each in sent])
    found = await take(subscription, 9_000)
    assert sorted(numbers(found)) == list(range(9_000))
    for queue in {each.queue for each in found}:
        offsets = [each.offset for each in found if each.queue == queue]
        assert offsets == list(range(len(offsets)))
    await subscription.aclose()
