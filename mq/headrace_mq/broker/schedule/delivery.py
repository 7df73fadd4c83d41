"""
Pending messages to the batches that deliver them: read from the journal, routed, numbered.

What goes to one queue goes as one batch, with a producer's sequence of the schedule's own, so that
the store itself drops a batch that is delivered again after a crash.

Used by `scheduler`, which decides when; uses the store and the topics. It never knows the time.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.journal.batches import (
    JournalReader,
    JournalSequences,
    NotYet,
    open_queues_of,
    read_batch,
)
from headrace_mq.broker.schedule.journal import (
    Delivery,
    Event,
    ScheduledBatch,
    headers_of,
    read_event,
)
from headrace_mq.broker.schedule.wheel import Entry
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.errors import BrokerError, DataCorrupt, FormatTooNew, OffsetOutOfRange, StoreFull
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    Columns,
    encode_batch,
)
from headrace_mq.protocol.bodies import CreateTopic
from headrace_mq.protocol.keys import open_queue_for_key
from headrace_mq.protocol.scheduled import SCHEDULE_QUEUE

__all__ = [
    "BYTES_MAX",
    "DEAD_SCHEDULE_QUEUE",
    "PRODUCER_ID",
    "Deliveries",
    "DueMessage",
    "PreparedDelivery",
]

# Clients draw theirs from 2^64, so none of them has this one.
PRODUCER_ID = 1
# Messages whose topic can take nothing; named like a consumer group's.
DEAD_SCHEDULE_QUEUE = QueueRef("%DLQ%SCHEDULE", 0)
# Of a delivery, and about of one of its batches: what is held in memory, and written, at a time.
BYTES_MAX = 4 << 20
_PART_BYTES_MAX = 1 << 20

T = TypeVar("T")

_log = get_logger(__name__)


class DueMessage(NamedTuple):
    """A message as its journal record holds it, with the schedule's headers."""

    key: str
    tag: str
    headers: dict[str, str]
    body: bytes
    born_at_ms: int


class PreparedDelivery(NamedTuple):
    """A delivery, and what did not go into it."""

    delivery: Delivery
    left: list[Entry]


class Deliveries:
    """Makes deliveries and their batches.

    Args:
        journal: where the messages stand.
        topics: tells, and where that is allowed makes, the queues they go to.
        epoch: of the broker; no other start of it uses the same sequences.
    """

    def __init__(self, journal: JournalReader, topics: Topics, *, epoch: int) -> None:
        self._journal = journal
        self._topics = topics
        self._epoch = epoch
        self._sequences = JournalSequences()
        self._turn = 0
        self._batch: tuple[BatchHeader, Columns] | None = None

    def letter(self, place: int, *, wait: bool = True) -> DueMessage | None:
        """Returns the message at a journal offset; None where it cannot be read any more.

        Raises:
            NotYet: it would have to wait for the disk, and shall not.
        """
        try:
            header, columns = self._batch_at(place, wait=wait)
        except (DataCorrupt, FormatTooNew, OffsetOutOfRange) as error:
            _log.error("a scheduled message is lost", offset=place, reason=str(error))
            return None
        index = place - header.base_offset
        return DueMessage(
            columns.keys[index] if columns.keys else "",
            columns.tags[index] if columns.tags else "",
            columns.headers[index] if columns.headers else {},
            columns.bodies[index],
            header.born_first_ms + (columns.born_deltas[index] if columns.born_deltas else 0),
        )

    def event(self, place: int) -> Event | None:
        """Returns what the journal record at an offset tells; None where it cannot be read."""
        try:
            header, columns = self._batch_at(place, wait=True)
            return read_event(header, columns, place - header.base_offset)
        except (DataCorrupt, FormatTooNew, OffsetOutOfRange):
            return None

    def prepare(self, entries: Sequence[Entry]) -> PreparedDelivery:
        """Chooses queues and sequences for as many entries as one delivery takes.

        It ends before the first that comes from the disk, so that the order stays; the disk is
        asked for the others at the same time.

        Raises:
            StoreFull: a topic had to be made and the disk is full; nothing was changed.
        """
        parts: dict[QueueRef, list[list[Entry]]] = {}
        part_bytes: dict[QueueRef, int] = {}
        lost: list[Entry] = []
        used = 0
        for number, entry in enumerate(entries):
            try:
                letter = self.letter(entry.place, wait=False)
            except NotYet:
                self.ask_for(entries[number + 1 :])
                return PreparedDelivery(self._numbered(parts, lost), list(entries[number:]))
            if letter is None:
                lost.append(entry)
                continue
            size = _size_of(letter)
            if used and used + size > BYTES_MAX:
                return PreparedDelivery(self._numbered(parts, lost), list(entries[number:]))
            queue = self._queue_of(letter)
            used += size
            held = part_bytes.get(queue, 0) + size
            if queue not in parts or held > _PART_BYTES_MAX:
                parts.setdefault(queue, []).append([])
                held = size
            part_bytes[queue] = held
            parts[queue][-1].append(entry)
        return PreparedDelivery(self._numbered(parts, lost), [])

    def ask_for(self, entries: Sequence[Entry]) -> None:
        """Has the messages read from the disk that memory does not hold."""
        for entry in entries:
            with suppress(NotYet):
                self.letter(entry.place, wait=False)

    def batch_of(self, delivery: Delivery, part: ScheduledBatch) -> bytearray | None:
        """Makes a batch of a delivery; the same one each time, None where nothing of it is left."""
        found = [self.letter(entry.place) for entry in part.entries]
        return _encoded(
            QueueRef(part.topic, part.queue_id),
            [letter for letter in found if letter is not None],
            epoch=delivery.epoch,
            first_sequence=part.first_sequence,
        )

    def dead_batch_of(self, part: ScheduledBatch) -> bytearray | None:
        """Makes the batch that keeps a part whose queue refuses it, and its queue.

        Raises:
            StoreFull: the queue had to be made and the disk is full.
        """
        queue = QueueRef(part.topic, part.queue_id)
        self._sequences.give_back(queue, part.first_sequence)
        self._topics.create(CreateTopic(DEAD_SCHEDULE_QUEUE.topic, 1))
        found = [self.letter(entry.place) for entry in part.entries]
        return _encoded(DEAD_SCHEDULE_QUEUE, [letter for letter in found if letter is not None])

    def _batch_at(self, place: int, *, wait: bool) -> tuple[BatchHeader, Columns]:
        if self._batch is None or not (
            self._batch[0].base_offset <= place < self._batch[0].next_offset
        ):
            self._batch = read_batch(self._journal, SCHEDULE_QUEUE, place, wait=wait)
        return self._batch

    def _queue_of(self, letter: DueMessage) -> QueueRef:
        topic, _ = headers_of(letter.headers)
        described = self._topics.find(topic)
        if described is None:
            try:
                self._topics.admit([topic])
            except StoreFull:
                raise
            except BrokerError as error:
                _log.error(
                    "the topic of a scheduled message does not exist; the message becomes a dead letter",
                    topic=topic,
                    reason=str(error),
                )
            described = self._topics.find(topic)
        if described is None:
            self._topics.create(CreateTopic(DEAD_SCHEDULE_QUEUE.topic, 1))
            return DEAD_SCHEDULE_QUEUE
        open_ones = open_queues_of(described)
        if letter.key:
            return QueueRef(topic, open_queue_for_key(letter.key, open_ones))
        self._turn += 1
        return QueueRef(topic, open_ones[self._turn % len(open_ones)])

    def _numbered(self, parts: dict[QueueRef, list[list[Entry]]], lost: list[Entry]) -> Delivery:
        numbered = []
        for queue, batches in parts.items():
            for entries in batches:
                first = self._sequences.take(queue, len(entries))
                numbered.append(ScheduledBatch(*queue, first, entries))
        return Delivery(self._epoch, numbered, lost)


def _size_of(letter: DueMessage) -> int:
    texts = sum(len(name) + len(text) for name, text in letter.headers.items())
    return len(letter.body) + len(letter.key) + len(letter.tag) + texts


def _encoded(
    queue: QueueRef, letters: Sequence[DueMessage], *, epoch: int = 0, first_sequence: int = -1
) -> bytearray | None:
    if not letters:
        return None
    numbered = first_sequence >= 0
    born_first_ms = min(letter.born_at_ms for letter in letters)
    columns = Columns(
        _column([letter.key for letter in letters]),
        _column([letter.tag for letter in letters]),
        _column([_delivered_headers(letter, queue) for letter in letters]),
        [letter.body for letter in letters],
        _column([letter.born_at_ms - born_first_ms for letter in letters]),
    )
    return encode_batch(
        queue,
        columns,
        born_first_ms=born_first_ms,
        producer_id=PRODUCER_ID if numbered else 0,
        producer_epoch=epoch,
        first_sequence=max(0, first_sequence),
    )


def _column(values: list[T]) -> list[T]:
    return values if any(values) else []


def _delivered_headers(letter: DueMessage, queue: QueueRef) -> dict[str, str]:
    # Among the dead, where it should have gone is worth more than clean headers.
    return dict(letter.headers) if queue == DEAD_SCHEDULE_QUEUE else headers_of(letter.headers)[1]
