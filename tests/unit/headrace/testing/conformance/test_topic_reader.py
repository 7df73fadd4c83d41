"""The suite catches a reader that breaks a promise of the port."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from headrace.testing.conformance.topic_reader import TopicReaderConformance
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka.topic_reader import KafkaTopicReader
from headrace.transports.kafka.transport import KafkaTransport
from headrace.transports.topic_reader import Part
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange


class LosesTheLastMessage(KafkaTopicReader):
    def read(self, queue: QueueRef, start: int, end: int, **of: Any) -> Iterator[Part]:
        for header, columns, first, last in super().read(queue, start, end, **of):
            yield header, columns, first, last - (header.base_offset + last == end > start)


class ForgetsTags(KafkaTopicReader):
    def read(self, queue: QueueRef, start: int, end: int, **of: Any) -> Iterator[Part]:
        for header, columns, first, last in super().read(queue, start, end, **of):
            yield header, columns._replace(tags=[]), first, last


class MissesAQueue(KafkaTopicReader):
    def ranges(self, topics: Sequence[str]) -> list[QueueRange]:
        return super().ranges(topics)[1:]


@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (LosesTheLastMessage, "test_a_range_has_every_message_between_its_offsets"),
        (ForgetsTags, "test_a_message_is_read_whole"),
        (MissesAQueue, "test_ranges_say_what_queues_hold"),
    ],
)
async def test_a_broken_reader_is_caught(broken: type[KafkaTopicReader], caught: str) -> None:
    with MockKafka() as cluster:
        transport = KafkaTransport(cluster.address(), topics=cluster.topics)
        await transport.start()
        test = getattr(TopicReaderConformance(), caught)
        await test(transport, KafkaTopicReader(cluster.address()))
        with pytest.raises(AssertionError):
            await test(transport, broken(cluster.address()))
        await transport.aclose()
