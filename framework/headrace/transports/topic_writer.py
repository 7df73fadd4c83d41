"""
Opens by its address what writes a topic as it stands elsewhere: a `TopicWriter`.

    ensure ─▶ a topic with as many queues      write  ─▶ messages into a queue of your choice
                                               commit ─▶ where a consumer group goes on

Used by `topic_copy`. `BlockingWriter` writes to the built-in queue, `kafka.topic_writer` to a cluster. Both
raise the queue's errors. A writer is used by one thread at a time.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Final, Protocol

from headrace.errors import HeadraceError
from headrace.transports.kafka.address import KafkaAddress, is_kafka
from headrace_mq.client.sync.producer import BlockingProducer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import Columns

__all__ = ["BlockingWriter", "TopicWriter", "open_topic_writer"]

# The longest silence of a broker that works, several times over.
_TIMEOUT_MS: Final = 10_000


class TopicWriter(Protocol):
    """Writes messages into queues by their numbers."""

    def ensure(self, topic: str, *, queues: int, forever: bool) -> None:
        """Makes a topic unless it exists.

        Raises:
            MessageQueueError, HeadraceError: it exists, and is kept otherwise or has fewer queues; or the
                queue is away.
        """
        ...

    def write(self, queue: QueueRef, messages: Columns) -> range:
        """Returns the offsets that the messages got, when they are durable.

        Raises:
            MessageQueueError, HeadraceError, TimeoutError: some of them may be there.
        """
        ...

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Returns the next offset of a group in each queue where it has one."""
        ...

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Stores the next offsets of a group that has no members.

        Raises:
            MessageQueueError, HeadraceError: it has members, or the queue is away.
        """
        ...


def open_topic_writer(address: str) -> AbstractContextManager[TopicWriter]:
    """Opens a writer; closed with its block.

    Args:
        address: of a broker, or of a Kafka cluster.

    Raises:
        ConnectionLost: nothing answers there.
        ValueError: the address is none.
    """
    if not is_kafka(address):
        return BlockingWriter(address)
    from headrace.transports.kafka.topic_writer import KafkaTopicWriter

    return KafkaTopicWriter(KafkaAddress.parse(address))


class BlockingWriter:
    """A writer to the built-in queue; use it in a `with` block.

    Args:
        address: the broker's `host:port`, or `tls://host:port`.
    """

    def __init__(self, address: str) -> None:
        self._number = 0
        with ExitStack() as opened:
            self._reader = opened.enter_context(BlockingReader(address, timeout_ms=_TIMEOUT_MS))
            self._producer = opened.enter_context(
                BlockingProducer(address, selector=lambda _message, _queues: self._number)
            )
            self._opened = opened.pop_all()

    def __enter__(self) -> "BlockingWriter":
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes its connections."""
        self._opened.__exit__(kind, error, trace)

    def ensure(self, topic: str, *, queues: int, forever: bool) -> None:
        """Makes a topic unless it exists; see `TopicWriter`. One with fewer queues gets more."""
        self._producer.create_topic(topic, queues, "forever" if forever else "transient")

    def write(self, queue: QueueRef, messages: Columns) -> range:
        """Writes messages into a queue; see `TopicWriter`."""
        self._number = queue.queue_id
        sent = self._producer.send_many(_messages(queue.topic, messages))
        if any(each.queue != queue for each in sent):
            raise HeadraceError(
                f"queue {queue.queue_id} of {queue.topic} takes no messages; thaw it with"
                f" `headrace topic thaw {queue.topic}`"
            )
        # Where others write, too, these are more offsets than messages.
        return range(sent[0].offset, sent[-1].offset + 1)

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Returns the next offsets of a group; see `TopicWriter`."""
        found = self._reader.committed(group, [topic])
        return {queue.queue_id: offset for queue, offset in found.items() if offset >= 0}

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Stores the next offsets of a group; see `TopicWriter`."""
        self._reader.commit(
            group, {QueueRef(topic, number): offset for number, offset in offsets.items()}
        )


def _messages(topic: str, columns: Columns) -> list[Message]:
    count = len(columns.bodies)
    keys = columns.keys or [""] * count
    tags = columns.tags or [""] * count
    headers = columns.headers or [{}] * count
    return [
        Message(topic=topic, body=body, key=key, tag=tag, headers=some)
        for body, key, tag, some in zip(columns.bodies, keys, tags, headers, strict=True)
    ]
