"""
What every reader of topics must do, sentence by sentence of the `TopicReader` port.

    class TestMyTopicReader(TopicReaderConformance):
        @pytest.fixture
        async def transport(self): ...    # connected; makes topics and publishes

        @pytest.fixture
        def reader(self, transport): ...    # on the same queue

Subclass it in the tests of your adapter.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from headrace.testing.conformance.subscriptions import fresh, new_topic, outgoing, publish_all
from headrace.transports.base import Outgoing, Transport
from headrace.transports.topic_reader import Part, TopicReader
from headrace_mq.errors import OffsetOutOfRange, TopicNotFound
from headrace_mq.message import QueueRef

__all__ = ["TopicReaderConformance"]


def _bodies(parts: Iterable[Part]) -> list[int]:
    """Returns the numbers in the messages that are meant, and checks that each stands at its offset."""
    found = []
    for header, columns, first, last in parts:
        for place in range(first, last):
            found.append((header.base_offset + place, int(columns.bodies[place])))
    assert [offset for offset, _ in found] == [number for _, number in found]
    return [number for _, number in found]


async def _read(reader: TopicReader, topic: str, first: int, end: int) -> list[Part]:
    return await asyncio.to_thread(lambda: list(reader.read(QueueRef(topic, 0), first, end)))


class TopicReaderConformance:
    """The suite; subclass it with the fixtures `transport` and `reader`."""

    async def test_a_range_has_every_message_between_its_offsets(
        self, transport: Transport, reader: TopicReader
    ) -> None:
        """In order, each once, however they are divided into batches."""
        topic = await new_topic(transport, queues=1)
        sent = [outgoing(topic, number) for number in range(3_000)]
        await asyncio.gather(*[transport.publish(each) for each in sent])
        for first, end in ((0, 3_000), (7, 9), (2_999, 3_000), (5, 5)):
            parts = await _read(reader, topic, first, end)
            assert _bodies(parts) == list(range(first, end))

    async def test_a_message_is_read_whole(self, transport: Transport, reader: TopicReader) -> None:
        """Key, tag, headers and body, and when it was stored."""
        topic = await new_topic(transport)
        before = datetime.now(UTC) - timedelta(seconds=1)
        sent = [
            Outgoing(topic, "ä☂", bytes(range(256)), "tag", {"a": "ü☂", "b": ""}),
            Outgoing(topic, "k", b""),
        ]
        await publish_all(transport, sent)
        parts = await _read(reader, topic, 0, 2)
        found = []
        for header, columns, first, last in parts:
            stored = datetime.fromtimestamp(header.appended_at_ms / 1_000, UTC)
            assert before <= stored <= datetime.now(UTC) + timedelta(seconds=1)
            for place in range(first, last):
                key = columns.keys[place] if columns.keys else ""
                tag = columns.tags[place] if columns.tags else ""
                headers = columns.headers[place] if columns.headers else {}
                found.append(Outgoing(topic, key, columns.bodies[place], tag, headers))
        assert found == [each._replace(headers=dict(each.headers)) for each in sent]

    async def test_ranges_say_what_queues_hold(
        self, transport: Transport, reader: TopicReader
    ) -> None:
        """Every queue of the topics, each of which has an identity; one that is missing is an error."""
        topics = [await new_topic(transport, queues=2) for _ in range(2)]
        places = await publish_all(transport, [outgoing(topics[0], number) for number in range(3)])
        found = await asyncio.to_thread(reader.ranges, topics)
        held = {(each.topic, each.queue_id): (each.first, each.end) for each in found}
        expected = {(topic, number): (0, 0) for topic in topics for number in range(2)}
        assert held == expected | {(topics[0], places[0].queue): (0, 3)}
        assert await asyncio.to_thread(reader.is_settled, topics[0])
        identities = [await asyncio.to_thread(reader.identity, each) for each in topics]
        assert "" not in identities
        assert len(set(identities)) == 2
        try:
            await asyncio.to_thread(reader.ranges, [fresh("nowhere")])
        except TopicNotFound:
            return
        raise AssertionError("a topic that is missing is an error")

    async def test_a_moment_begins_at_an_offset(
        self, transport: Transport, reader: TopicReader
    ) -> None:
        """The first message stored then or later; without one, the end."""
        topic = await new_topic(transport)
        await publish_all(transport, [outgoing(topic, number) for number in range(3)])
        now_ms = int(datetime.now(UTC).timestamp() * 1_000)
        for moment_ms, offset in ((0, 0), (now_ms + 60_000, 3)):
            found = await asyncio.to_thread(reader.offsets_at, [topic], moment_ms)
            assert found == {QueueRef(topic, 0): offset}

    async def test_offsets_that_are_not_there_are_an_error(
        self, transport: Transport, reader: TopicReader
    ) -> None:
        """Above the end."""
        topic = await new_topic(transport)
        await publish_all(transport, [outgoing(topic, number) for number in range(3)])
        try:
            await _read(reader, topic, 5, 9)
        except OffsetOutOfRange:
            return
        raise AssertionError("the queue holds none of these offsets")
