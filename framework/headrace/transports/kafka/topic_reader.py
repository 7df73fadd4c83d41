"""
Topics of a cluster read by offsets, as the built-in queue's reader does: in batches of columns.

    a page of messages ─▶ runs of offsets without a gap ─▶ batches
                          a gap ─▶ a batch without a message, which says how far it reaches

Implements `transports.topic_reader.TopicReader`, and raises the queue's errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition

from headrace._runtime.ids import new_id
from headrace.errors import HeadraceError
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import REQUEST_S, reading
from headrace.transports.kafka.failures import failure
from headrace.transports.kafka.producer import TAG_HEADER
from headrace.transports.kafka.ranges import RangeLost, find_range, read_range
from headrace.transports.kafka.topics import ClusterTopics, TopicFacts, Topics
from headrace.transports.topic_reader import Part
from headrace_mq.errors import ConnectionLost, OffsetOutOfRange, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns
from headrace_mq.protocol.bodies import QueueRange

__all__ = ["KafkaTopicReader"]

# What is no UTF-8 is another program's, and no event.
_ELSE: Final = "replace"


class KafkaTopicReader:
    """A reader over a cluster; use it in a `with` block.

    Args:
        address: of the cluster.
        topics: tells of topics; None: the cluster itself.
    """

    def __init__(self, address: KafkaAddress, topics: Topics | None = None) -> None:
        self._address = address
        self._name = f"headrace.reader.{new_id()}"
        self._topics = topics or ClusterTopics(address, self._name)

    def __enter__(self) -> "KafkaTopicReader":
        """Returns itself."""
        return self

    def __exit__(self, *_of: object) -> None:
        """Closes nothing: each call has a connection of its own."""

    def ranges(
        self,
        topics: Sequence[str],
        known: Mapping[QueueRef, int] | None = None,  # noqa: ARG002 - Kafka tells no epochs
    ) -> list[QueueRange]:
        """Returns what every partition of the topics holds; see `TopicReader`."""
        found = []
        try:
            with reading(self._address, self._name) as consumer:
                for topic in topics:
                    for number in range(self._facts(topic).partitions):
                        first, end = find_range(consumer, (topic, number))
                        found.append(QueueRange(topic, number, first, end, start=0))
        except (TimeoutError, HeadraceError) as error:
            raise ConnectionLost(str(error)) from error
        return found

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        """Returns where a moment begins; see `TopicReader`."""
        ends = {QueueRef(one.topic, one.queue_id): one.end for one in self.ranges(topics)}
        asked = [TopicPartition(*queue, time_ms) for queue in ends]
        try:
            with reading(self._address, self._name) as consumer:
                found = consumer.offsets_for_times(asked, timeout=REQUEST_S)
        except KafkaException as error:
            raise ConnectionLost(str(failure(error, "offsets of a moment"))) from error
        at = {QueueRef(part.topic, part.partition): part.offset for part in found}
        # Without a message that is so late: where the next one comes.
        return {queue: at[queue] if at.get(queue, -1) >= 0 else end for queue, end in ends.items()}

    def is_settled(self, topic: str) -> bool:
        """Returns True, see `TopicReader`: Kafka does not tell whether partitions were added.

        Where they were, and an aggregate stands in two, a rebuild finds two last versions of it and ends with a
        sentence; looking for that first would mean to read every topic twice.
        """
        self._facts(topic)
        return True

    def identity(self, topic: str) -> str:
        """Returns the UUID that Kafka gave a topic; see `TopicReader`."""
        return self._facts(topic).identity

    def read(
        self,
        queue: QueueRef,
        start: int,
        end: int,
        *,
        bytes_max: int = 0,  # noqa: ARG002 - the port's; the client fetches as it is configured
    ) -> Iterator[Part]:
        """Yields batches of a partition; see `TopicReader`."""
        place = (queue.topic, queue.queue_id)
        at = start
        try:
            for page in read_range(self._address, self._name, place, start, end, whole=True):
                for run in _runs(page):
                    if run[0].offset() > at:
                        yield _nothing(queue, at, run[0].offset())
                    yield _batch(queue, run)
                    at = run[-1].offset() + 1
        except RangeLost as error:
            raise OffsetOutOfRange(str(error)) from error
        except (TimeoutError, HeadraceError) as error:
            raise ConnectionLost(str(error)) from error
        if at < end:
            yield _nothing(queue, at, end)

    def _facts(self, topic: str) -> TopicFacts:
        try:
            facts = self._topics.facts(topic)
        except (TimeoutError, HeadraceError) as error:
            raise ConnectionLost(str(error)) from error
        if facts is None:
            raise TopicNotFound(f"there is no topic {topic!r}")
        return facts


def _runs(page: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields the parts of a page that have offsets without a gap."""
    if page[-1].offset() - page[0].offset() == len(page) - 1:
        yield list(page)
        return
    for _, run in groupby(enumerate(page), key=lambda placed: placed[1].offset() - placed[0]):
        yield [message for _, message in run]


def _batch(queue: QueueRef, messages: Sequence[Any]) -> Part:
    keys = [(each.key() or b"").decode(errors=_ELSE) for each in messages]
    headers: list[dict[str, str]] = []
    tags: list[str] = []
    found = [each.headers() for each in messages]
    if any(found):
        headers = [
            {name: value.decode(errors=_ELSE) if value else "" for name, value in some or ()}
            for some in found
        ]
        tags = [some.pop(TAG_HEADER, "") for some in headers]
    bodies = [each.value() or b"" for each in messages]
    _, stored_ms = messages[0].timestamp()
    header = _header(queue, messages[0].offset(), len(messages), stored_ms)
    return header, Columns(keys, tags, headers, bodies, []), 0, len(messages)


def _nothing(queue: QueueRef, start: int, end: int) -> Part:
    """Returns what stands for offsets that have no message."""
    count = end - start
    return _header(queue, start, count, 0), Columns([], [], [], [], []), count, count


def _header(queue: QueueRef, base_offset: int, count: int, stored_ms: int) -> BatchHeader:
    return BatchHeader(
        length=0,
        base_offset=base_offset,
        position=-1,
        appended_at_ms=stored_ms,
        epoch=0,
        codec=0,
        flags=0,
        count=count,
        queue=queue,
        producer_id=0,
        producer_epoch=0,
        first_sequence=-1,
        born_first_ms=stored_ms,
        born_last_ms=stored_ms,
        tag_summary=1,
        plain_bytes=0,
        payload_at=0,
    )
