"""
Batches out of a journal, and numbers and queues for those that follow from it.

Used by `schedule` and `transactions`, which make the batches; uses the store and the topics.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from headrace_mq.broker.topics.topics import COMPACT
from headrace_mq.errors import CorruptBatch, DataCorrupt, InvalidArgument
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns, decode_columns, read_header
from headrace_mq.protocol.bodies import TopicDescription
from headrace_mq.protocol.keys import open_queues
from headrace_mq.store.message_store import Appended

__all__ = [
    "JournalReader",
    "JournalSequences",
    "JournalStore",
    "LogEnds",
    "NotYet",
    "open_queues_of",
    "own_columns",
    "read_batch",
    "sent_columns",
]  # fmt: skip

_SEQUENCES = 1 << 32
_encode = msgspec.msgpack.Encoder().encode


class JournalReader(Protocol):
    """What is read of the store."""

    def read(self, queue: QueueRef, offset: int, bytes_max: int) -> Sequence[bytes | memoryview]:
        """Returns whole batches from the one that holds `offset`."""
        ...

    def read_now(
        self, queue: QueueRef, offset: int, bytes_max: int
    ) -> Sequence[bytes | memoryview] | None:
        """The same without waiting for the disk; None while it is asked for the first of them."""
        ...


class LogEnds(Protocol):
    """How far a log is on the disks."""

    def end(self, log: str) -> int:
        """Below this position it is on this disk."""
        ...

    def kept_from(self, log: str) -> int:
        """From this position on a broker in sync may lack it."""
        ...

    def shared(self) -> asyncio.Future[None]:
        """Ends when all in sync have what is on this disk now, of every log."""
        ...


class JournalStore(JournalReader, Protocol):
    """What a journal needs of the store."""

    @property
    def raw(self) -> LogEnds:
        """Its logs, as replicas see them."""
        ...

    def append(self, batch: bytearray | memoryview, *, retention: str) -> Appended:
        """Accepts one batch."""
        ...

    def durable(self) -> asyncio.Future[None]:
        """Ends when everything appended so far is durable."""
        ...

    def range(self, queue: QueueRef) -> tuple[int, int]:
        """The first offset held and the next one to become visible."""
        ...


class NotYet(Exception):
    """The disk was asked for a batch; the store calls `journal_grew` when the batch is there."""


class JournalSequences:
    """The next sequence of each queue, under one producer id and one start of the broker."""

    def __init__(self) -> None:
        self._next: dict[QueueRef, int] = {}

    def take(self, queue: QueueRef, count: int) -> int:
        """Returns the first of `count` sequences."""
        first = self._next.get(queue, 0)
        self._next[queue] = (first + count) % _SEQUENCES
        return first

    def give_back(self, queue: QueueRef, first: int) -> None:
        """Goes back to the sequence of a batch that its queue refused, for it waits for that one.

        JournalSequences that an earlier start of the broker took are none of these.
        """
        if queue in self._next:
            self._next[queue] = first


def read_batch(
    journal: JournalReader, queue: QueueRef, offset: int, *, wait: bool
) -> tuple[BatchHeader, Columns]:
    """Returns the batch that holds an offset of a journal.

    Args:
        journal: where it stands.
        queue: of the journal.
        offset: of one of its records.
        wait: for the disk, where memory does not hold it.

    Raises:
        NotYet: it comes from the disk, and `wait` is false.
        OffsetOutOfRange: the journal ends before it, or begins behind it.
        DataCorrupt, FormatTooNew: it cannot be read.
    """
    found = (journal.read if wait else journal.read_now)(queue, offset, 1)
    if found is None:
        raise NotYet
    if not found:
        raise DataCorrupt("nothing of the journal can be read from there on")
    header = read_header(found[0])
    if not header.base_offset <= offset < header.next_offset:
        raise DataCorrupt("its batch was damaged")
    return header, decode_columns(found[0], header)


def sent_columns(header: BatchHeader, batch: memoryview, queue: QueueRef) -> Columns:
    """Returns the columns of a batch that a client sends to a journal.

    Raises:
        InvalidArgument: it is for another queue than the journal's.
        CorruptBatch: it cannot be read.
    """
    if header.queue != queue:
        raise InvalidArgument(f"{queue.topic} has one queue, with number {queue.queue_id}")
    try:
        return decode_columns(batch, header)
    except DataCorrupt as error:
        raise CorruptBatch(f"a batch for {queue.topic} cannot be read: {error}") from error


def own_columns(kind_header: str, events: Sequence[Any]) -> Columns:
    """Returns the columns of a batch that holds the broker's own records, known by a header."""
    bodies = [_encode(event) for event in events]
    return Columns([], [], [{kind_header: "event"}] * len(events), bodies, [])


def open_queues_of(topic: TopicDescription) -> Sequence[int]:
    """The numbers of a topic's queues that messages are divided among; there is at least one."""
    if topic.owned:
        # The topic was whole when the messages were accepted; now they stay in this group.
        return [each for each in topic.owned if each not in topic.unwritable] or topic.owned
    return open_queues(topic.queues, topic.unwritable, compact=topic.retention == COMPACT)
