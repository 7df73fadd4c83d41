"""Batches of a partition: without a gap, and a batch without a message where offsets have none."""

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from headrace.testing.conformance.subscriptions import fresh, outgoing, publish_all, take
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka import ranges
from headrace.transports.kafka.topic_reader import KafkaTopicReader, _runs
from headrace.transports.kafka.transport import KafkaTransport
from headrace_mq.errors import ConnectionLost, OffsetOutOfRange, TopicNotFound
from headrace_mq.message import QueueRef


@dataclass
class At:
    number: int

    def offset(self) -> int:
        return self.number


@given(st.sets(st.integers(0, 60), min_size=1))
def test_runs_have_no_gap_and_lose_nothing(offsets: set[int]) -> None:
    page = [At(each) for each in sorted(offsets)]
    runs = [[each.number for each in run] for run in _runs(page)]
    assert [number for run in runs for number in run] == sorted(offsets)
    for run in runs:
        assert run == list(range(run[0], run[-1] + 1))
    for before, after in pairwise(runs):
        assert before[-1] + 1 < after[0]


async def test_what_was_deleted_is_an_error(cluster: MockKafka, transport: KafkaTransport) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=1, forever=True)
    await publish_all(transport, [outgoing(topic, number) for number in range(4)])
    cluster.delete_records(topic, 0, 2)
    with KafkaTopicReader(cluster.address()) as reader:
        with pytest.raises(OffsetOutOfRange, match="holds 2 to 4"):
            list(reader.read(QueueRef(topic, 0), 0, 4))
        assert [(one.first, one.end) for one in reader.ranges([topic])] == [(2, 4)]


async def test_messages_that_are_deleted_while_they_are_read_are_an_error(
    cluster: MockKafka, transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=1, forever=True)
    await publish_all(transport, [outgoing(topic, number) for number in range(6)])
    asked = ranges.find_range

    def then_deleted(consumer: Any, queue: Any) -> ranges.Held:
        held = asked(consumer, queue)
        cluster.delete_records(topic, 0, 4)
        return held

    monkeypatch.setattr(ranges, "find_range", then_deleted)
    with KafkaTopicReader(cluster.address()) as reader, pytest.raises(OffsetOutOfRange):
        list(reader.read(QueueRef(topic, 0), 0, 6))


async def test_a_message_of_another_program_is_read_too(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=1, forever=True)
    producer = Producer({"bootstrap.servers": cluster.address().bootstrap})
    producer.produce(topic, b"\xff", key=b"\xff\xfe", headers=[("h", b"\xff")])
    producer.flush(10)
    with KafkaTopicReader(cluster.address()) as reader:
        [(_, columns, *_)] = reader.read(QueueRef(topic, 0), 0, 1)
    assert columns.bodies == [b"\xff"]
    subscription = await transport.subscribe(fresh("g"), [topic])
    [message] = await take(subscription, 1)
    assert (message.key, message.body) == (columns.keys[0], b"\xff")
    await subscription.aclose()


async def test_a_topic_has_the_identity_that_kafka_gave_it(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topics = [fresh("t"), fresh("t")]
    for topic in topics:
        await transport.ensure_topic(topic, queues=1, forever=True)
    reader = KafkaTopicReader(cluster.address())
    found = [await asyncio.to_thread(reader.identity, topic) for topic in topics]
    assert len(set(found)) == 2
    with pytest.raises(TopicNotFound):
        await asyncio.to_thread(reader.identity, fresh("nowhere"))


def test_a_cluster_that_is_away_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockKafka() as cluster:
        address = cluster.address()
    monkeypatch.setattr("headrace.transports.kafka.topics.REQUEST_S", 0.2)
    with KafkaTopicReader(address) as reader, pytest.raises(ConnectionLost):
        reader.ranges(["t"])
