"""What is written into a partition is read back as it was, and a group goes on where it was told to."""

import asyncio
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.testing.conformance.subscriptions import fresh
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka.topic_reader import KafkaTopicReader
from headrace.transports.kafka.topic_writer import KafkaTopicWriter
from headrace.transports.kafka.transport import KafkaTransport
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns

MESSAGES = Columns(
    ["k", "", "ü"], ["t", "", ""], [{"a": "1"}, {}, {"b": "ß"}], [b"1", b"", b"3"], []
)


def writer_of(cluster: MockKafka) -> KafkaTopicWriter:
    return KafkaTopicWriter(cluster.address(), cluster.topics)


def read_all(cluster: MockKafka, queue: QueueRef, end: int) -> list[Any]:
    found: list[Any] = []
    with KafkaTopicReader(cluster.address(), cluster.topics) as reader:
        for _, columns, first, last in reader.read(queue, 0, end):
            found += [
                (
                    columns.keys[number],
                    columns.tags[number] if columns.tags else "",
                    columns.headers[number] if columns.headers else {},
                    bytes(columns.bodies[number]),
                )
                for number in range(first, last)
            ]
    return found


def test_messages_come_back_as_they_were_written(cluster: MockKafka) -> None:
    queue = QueueRef(fresh("t"), 1)
    with writer_of(cluster) as writer:
        writer.ensure(queue.topic, queues=2, forever=True)
        assert writer.write(queue, MESSAGES) == range(3)
        assert writer.write(queue, Columns([], [], [], [b"4"], [])) == range(3, 4)
    assert read_all(cluster, queue, 4) == [
        ("k", "t", {"a": "1"}, b"1"),
        ("", "", {}, b""),
        ("ü", "", {"b": "ß"}, b"3"),
        ("", "", {}, b"4"),
    ]


def test_a_message_that_the_cluster_does_not_take_is_an_error(cluster: MockKafka) -> None:
    topic = fresh("t")
    with writer_of(cluster) as writer:
        writer.ensure(topic, queues=1, forever=True)
        with pytest.raises(ValueError, match="Kafka, topic"):
            writer.write(QueueRef(topic, 0), Columns([], [], [], [bytes(2_000_000)], []))


async def test_a_group_goes_on_at_its_offsets(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic, group = fresh("t"), fresh("g")

    def write() -> None:
        with writer_of(cluster) as writer:
            writer.ensure(topic, queues=1, forever=True)
            writer.write(QueueRef(topic, 0), MESSAGES)
            assert writer.committed(group, topic) == {}
            writer.commit(group, topic, {0: 2})
            assert writer.committed(group, topic) == {0: 2}

    await asyncio.to_thread(write)
    assert await transport.committed(group, topic) == {0: 2}
    subscription = await transport.subscribe(group, [topic])
    try:
        assert [each.offset for each in await subscription.poll()] == [2]

        def commit() -> None:
            with writer_of(cluster) as writer:
                writer.commit(group, topic, {0: 0})

        with pytest.raises(HeadraceError, match="so that the group has no members"):
            await asyncio.to_thread(commit)
    finally:
        await subscription.aclose()
