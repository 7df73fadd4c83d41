"""
Writes a topic of a cluster as it stands elsewhere, into partitions of your choice.

    Columns ─▶ librdkafka, in their order ─▶ all in-sync replicas ─▶ their offsets

Implements `transports.topic_writer.TopicWriter`.
"""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headrace._runtime.ids import new_id
from headrace.errors import HeadraceError
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import (
    REQUEST_S,
    SEND_MS,
    make_client,
    producing_config,
    reading,
)
from headrace.transports.kafka.failures import failure
from headrace.transports.kafka.producer import TAG_HEADER
from headrace.transports.kafka.topics import ClusterTopics, Topics
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns

__all__ = ["KafkaTopicWriter"]

# Messages that come together go together; the copy waits for all of them anyway.
_LINGER_MS: Final = 5


class KafkaTopicWriter:
    """A writer to a cluster; use it in a `with` block.

    Args:
        address: of the cluster.
        topics: makes topics; None: at the cluster itself.
    """

    def __init__(self, address: KafkaAddress, topics: Topics | None = None) -> None:
        self._address = address
        self._name = f"headrace.writer.{new_id()}"
        self._topics = topics or ClusterTopics(address, self._name)
        self._client = make_client(
            Producer, {**producing_config(address, self._name), "linger.ms": _LINGER_MS}
        )

    def __enter__(self) -> "KafkaTopicWriter":
        """Returns itself."""
        return self

    def __exit__(self, *_of: object) -> None:
        """Drops what was not sent; what was written is durable."""
        self._client.purge()
        self._client.flush(1.0)

    def ensure(self, topic: str, *, queues: int, forever: bool) -> None:
        """Makes a topic unless it exists; see `TopicWriter`."""
        self._topics.ensure(topic, queues=queues, forever=forever)

    def write(self, queue: QueueRef, messages: Columns) -> range:
        """Writes messages into a partition; see `TopicWriter`.

        Raises:
            TimeoutError: the cluster did not acknowledge all of them in time.
            ValueError: one of them is larger than the cluster takes.
            HeadraceError: the cluster refuses them.
        """
        offsets: list[int] = []
        failures: list[Exception] = []

        def told(error: Any, sent: Any) -> None:
            if error is None:
                offsets.append(sent.offset())
            else:
                failures.append(failure(error, f"topic {queue.topic}"))

        for number, body in enumerate(messages.bodies):
            key = messages.keys[number] if messages.keys else ""
            self._produce(queue, key, body, _headers(messages, number), told)
        if self._client.flush(SEND_MS / 1_000) and not failures:
            failures.append(TimeoutError(f"Kafka, topic {queue.topic}: no acknowledgement"))
        if failures:
            raise failures[0]
        # Where others write, too, these are more offsets than messages.
        return range(min(offsets), max(offsets) + 1)

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Returns the next offsets of a group; see `TopicWriter`."""
        facts = self._topics.facts(topic)
        if facts is None:
            return {}
        parts = [TopicPartition(topic, number) for number in range(facts.partitions)]
        with reading(self._address, self._name, **{"group.id": group}) as consumer:
            found = _tried(lambda: consumer.committed(parts, timeout=REQUEST_S), group)
        return {part.partition: part.offset for part in found if part.offset >= 0}

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Stores the next offsets of a group; see `TopicWriter`."""
        parts = [TopicPartition(topic, *each) for each in sorted(offsets.items())]

        def commit(consumer: Consumer) -> None:
            consumer.assign(parts)
            for part in consumer.commit(offsets=parts, asynchronous=False):
                if part.error is not None:
                    raise KafkaException(part.error)

        with reading(self._address, self._name, **{"group.id": group}) as consumer:
            _tried(lambda: commit(consumer), group)

    def _produce(
        self,
        queue: QueueRef,
        key: str,
        body: bytes,
        headers: list[tuple[str, str | bytes | None]],
        told: Any,
    ) -> None:
        while True:
            try:
                self._client.produce(
                    queue.topic, body, key.encode(), queue.queue_id, told, headers=headers
                )
            except BufferError:
                self._client.poll(0.1)
            except KafkaException as error:
                raise failure(error, f"topic {queue.topic}") from error
            else:
                self._client.poll(0)
                return


def _headers(messages: Columns, number: int) -> list[tuple[str, str | bytes | None]]:
    found: list[tuple[str, str | bytes | None]] = []
    if messages.headers:
        found += messages.headers[number].items()
    if messages.tags and messages.tags[number]:
        found.append((TAG_HEADER, messages.tags[number]))
    return found


def _tried(question: Any, group: str) -> Any:
    try:
        return question()
    except KafkaException as error:
        why = failure(error, f"group {group}")
        if isinstance(why, HeadraceError):
            raise HeadraceError(
                f"{why}; stop the services, so that the group has no members"
            ) from error
        raise why from error
