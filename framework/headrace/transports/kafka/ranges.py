"""
Ranges of partitions: what a partition holds, and its messages from one offset to before another.

Used by the transport; outside of any consumer group. Each call blocks.
"""

from collections.abc import Generator
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.transports.base import QueueId
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import REQUEST_S, reading
from headrace.transports.kafka.failures import failure, kafka_error

__all__ = ["Held", "RangeLost", "find_range", "find_ranges", "read_range"]

# Messages that are read at a time.
_PAGE_MESSAGES: Final = 10_000
# Between two questions to a leader that does not know yet.
_PAUSE_S: Final = 0.05
_NOT_YET: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class RangeLost(Exception):
    """A partition does not hold all offsets of a range, or has deleted some while they were read."""


class Held(NamedTuple):
    """The lowest offset that a partition holds, and the one that its next message gets."""

    first: int
    end: int


def find_ranges(consumer: Consumer, topic: str, partitions: int) -> dict[int, Held]:
    """Returns what each partition of a topic holds; raises as `find_range`."""
    return {number: find_range(consumer, (topic, number)) for number in range(partitions)}


def find_range(consumer: Consumer, queue: QueueId) -> Held:
    """Asks the leader of a partition what it holds.

    Raises:
        TimeoutError, HeadraceError: it does not tell.
    """
    topic, number = queue
    end = monotonic() + REQUEST_S
    while True:
        try:
            marks = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=REQUEST_S)
        except KafkaException as error:
            why = failure(error, f"topic {topic}")
            # A broker that has just started, or a leader that was just elected, does not know yet.
            passing = isinstance(why, TimeoutError) or kafka_error(error).code() in _NOT_YET
            if not passing or monotonic() > end:
                raise why from error
            sleep(_PAUSE_S)
            continue
        if marks is None:
            raise TimeoutError(f"Kafka, topic {topic}: the leader of partition {number} is away")
        return Held(*marks)


def read_range(
    address: KafkaAddress, name: str, queue: QueueId, first: int, end: int, *, whole: bool = False
) -> Generator[list[Any], None, None]:
    """Yields the client's messages of a partition, some at a time.

    Args:
        address: of the cluster.
        name: of the client.
        queue: topic and partition.
        first: offset to begin with.
        end: offset to end before.
        whole: all of the range is wanted; otherwise what is no longer held is left out.

    Raises:
        RangeLost: all of it is wanted, and it is not there, or is deleted meanwhile.
        TimeoutError, HeadraceError: the cluster is away, or there is no such topic.
    """
    reset = {"auto.offset.reset": "error"} if whole else {}
    # Offsets may end with a transaction's marker, which is no message: the end says so.
    with reading(address, name, **{"enable.partition.eof": True, **reset}) as consumer:
        held = find_range(consumer, queue)
        if whole and not held.first <= first <= end <= held.end:
            raise RangeLost(
                f"partition {queue[1]} of {queue[0]} holds {held.first} to {held.end}, not {first} to {end}"
            )
        at, end = max(first, held.first), min(end, held.end)
        if at < end:
            consumer.assign([TopicPartition(*queue, at)])
        while at < end:
            message = consumer.poll(REQUEST_S)
            if message is None:
                raise TimeoutError(
                    f"Kafka, topic {queue[0]}: nothing comes from {queue[1]} at {at}"
                )
            page: list[Any] = [message, *consumer.consume(min(_PAGE_MESSAGES, end - at), 0)]
            if any(each.error() for each in page):
                # The end of the partition, as far as the client has got.
                at = max(at, *(_end_told(each, queue) for each in page if each.error()))
                page = [each for each in page if not each.error()]
            if page:
                at = max(at, page[-1].offset() + 1)
                if at > end:
                    page = [each for each in page if each.offset() < end]
            if page:
                yield page


def _end_told(message: Any, queue: QueueId) -> int:
    """Returns the offset at which a partition ends, as the client says it in place of a message.

    Raises:
        RangeLost: what was to be read is deleted.
        TimeoutError, HeadraceError: the client says that it failed.
    """
    error = message.error()
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise RangeLost(
            f"partition {queue[1]} of {queue[0]} has deleted messages that were not read"
        )
    if error.code() != KafkaError._PARTITION_EOF:
        raise failure(error, f"topic {queue[0]}")
    return message.offset() or 0
