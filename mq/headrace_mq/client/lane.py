"""
One queue's outgoing order: an open batch, full ones behind it, and one in flight.

What is added while a batch is in flight goes together in the next one, so batches grow by
themselves with the load. One batch at a time is on its way, which keeps the order through every
retry; a retry sends the very same bytes with the same sequence, so the broker can tell.

Sits between: `producer`, which adds messages and carries batches to the broker, and the record
batch. Never waits and sends nothing itself; the producer tells it what became of a batch.
"""

import asyncio
import secrets
from collections import deque

from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import Columns, encode_batch

__all__ = ["Batch", "Lane", "Place", "new_producer_id"]

SEQUENCE_MAX = (1 << 32) - 1


def new_producer_id() -> int:
    """A number that no other producer has: 63 random bits."""
    return secrets.randbits(63)


class Batch:
    """Messages of one queue that are sent, and acknowledged or refused, together.

    Attributes:
        size: the most bytes its messages can take on the wire.
        deadline_ms: when the producer gives it up, on the monotonic clock.
        encoded: the bytes that every attempt sends; None until the first one.
        attempts: how often it was sent.
        settled: whether it was stored or given up.
        waiter: what its senders wait for; made by the first of them.
    """

    __slots__ = (
        "_base_offset",
        "_duplicate",
        "_error",
        "attempts",
        "born_ms",
        "deadline_ms",
        "encoded",
        "messages",
        "queue",
        "settled",
        "size",
        "waiter",
    )

    def __init__(self, queue: QueueRef) -> None:
        self.queue = queue
        self.deadline_ms = 0
        self.messages: list[Message] = []
        self.born_ms: list[int] = []
        self.size = 0
        self.encoded: bytearray | None = None
        self.attempts = 0
        self.settled = False
        self.waiter: asyncio.Future[None] | None = None
        self._base_offset = 0
        self._duplicate = False
        self._error: MessageQueueError | None = None

    def stored(self, base_offset: int, *, duplicate: bool) -> None:
        """The broker has it."""
        self._base_offset = base_offset
        self._duplicate = duplicate
        self._settle()

    def failed(self, error: MessageQueueError) -> None:
        """It is given up."""
        self._error = error
        self._settle()

    def result(self, number: int) -> SendResult:
        """Where the message of that number stands; raises the batch's error.

        The offset is -1 for a repeated batch whose place the broker no longer remembers.
        """
        if self._error is not None:
            # One error object raised by every sender would collect all their tracebacks.
            raise type(self._error)(*self._error.args) from self._error
        offset = self._base_offset + number if self._base_offset >= 0 else -1
        return SendResult(self.queue, offset, self._duplicate)

    def _settle(self) -> None:
        self.settled = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def columns(self) -> Columns:
        """The messages turned on their side; columns of defaults stay empty."""
        messages, first = self.messages, self.born_ms[0]
        keys = [message.key for message in messages]
        tags = [message.tag for message in messages]
        headers = [message.headers for message in messages]
        # A clock that was set back must not make a message older than its batch.
        deltas = [max(born - first, 0) for born in self.born_ms]
        return Columns(
            keys if any(keys) else [],
            tags if any(tags) else [],
            [dict(entry) for entry in headers] if any(headers) else [],
            [message.body for message in messages],
            deltas if any(deltas) else [],
        )


# A message's batch and its number there, from 0. A plain tuple: one is made for every message.
Place = tuple[Batch, int]


class Lane:
    """The way to one queue.

    Args:
        queue: the queue.
        producer_id: under which the broker recognises repeated batches.
        messages_max: most messages of a batch.
        bytes_max: size from which a batch takes no more messages.
        codec: how payloads are compressed.
    """

    __slots__ = (
        "_bytes_max",
        "_codec",
        "_messages_max",
        "_producer_id",
        "_sequence",
        "_waiting",
        "in_flight",
        "queue",
        "resend",
    )

    def __init__(
        self, queue: QueueRef, producer_id: int, *, messages_max: int, bytes_max: int, codec: str
    ) -> None:
        self.queue = queue
        self._producer_id = producer_id
        self._sequence = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._codec = codec
        self._waiting: deque[Batch] = deque()
        self.in_flight: Batch | None = None
        # The batch in flight waits for its next attempt.
        self.resend = False

    @property
    def has_work(self) -> bool:
        """Whether `depart` has a batch to send now."""
        return self.resend or (self.in_flight is None and bool(self._waiting))

    def add(self, message: Message, size: int, born_ms: int) -> Place:
        """Gives a message its place behind all earlier ones.

        Whoever gets number 0 of a batch sets its deadline.
        """
        batch = self._waiting[-1] if self._waiting else None
        if (
            batch is None
            or len(batch.messages) >= self._messages_max
            or batch.size + size > self._bytes_max
        ):
            batch = Batch(self.queue)
            self._waiting.append(batch)
        batch.messages.append(message)
        batch.born_ms.append(born_ms)
        batch.size += size
        return batch, len(batch.messages) - 1

    def depart(self) -> tuple[Batch, bytearray]:
        """Takes the next batch, or the one in flight again, and its bytes.

        The bytes belong to the lane: sending must not change them, as they are sent again.
        """
        if self.in_flight is None:
            self.in_flight = self._encode(self._waiting.popleft())
        assert self.in_flight.encoded is not None
        self.resend = False
        self.in_flight.attempts += 1
        return self.in_flight, self.in_flight.encoded

    def arrived(self) -> None:
        """The batch in flight was stored."""
        self.in_flight = None
        self.resend = False

    def lost(self) -> None:
        """The batch in flight is given up; nobody knows whether it was stored.

        Its sequence numbers may be used or not, so whatever follows begins a new sequence under a
        new producer id: reused numbers would be taken for repetitions, skipped ones for a gap.
        """
        self.in_flight = None
        self.resend = False
        self._begin_sequence()

    def abandoned(self) -> list[Batch]:
        """Takes out every batch, oldest first."""
        left = [self.in_flight] if self.in_flight is not None else []
        left.extend(self._waiting)
        self._waiting.clear()
        self.lost()
        return left

    def expired(self, now_ms: int) -> list[Batch]:
        """Takes out the batches whose time is up, oldest first."""
        late: list[Batch] = []
        if self.in_flight is not None and self.in_flight.deadline_ms <= now_ms:
            late.append(self.in_flight)
            self.lost()
        if self.in_flight is None:
            while self._waiting and self._waiting[0].deadline_ms <= now_ms:
                late.append(self._waiting.popleft())
        return late

    def _encode(self, batch: Batch) -> Batch:
        count = len(batch.messages)
        if self._sequence + count > SEQUENCE_MAX:
            self._begin_sequence()
        columns = batch.columns()
        try:
            batch.encoded = self._encoded(columns, batch.born_ms[0])
        except TypeError:
            batch.encoded = self._encoded(_plain(columns), batch.born_ms[0])
        self._sequence += count
        # From here on the encoded bytes are all that is needed.
        batch.messages.clear()
        batch.born_ms.clear()
        return batch

    def _encoded(self, columns: Columns, born_first_ms: int) -> bytearray:
        return encode_batch(
            self.queue,
            columns,
            born_first_ms=born_first_ms,
            producer_id=self._producer_id,
            first_sequence=self._sequence,
            codec=self._codec,
        )

    def _begin_sequence(self) -> None:
        self._producer_id = new_producer_id()
        self._sequence = 0


def _plain(columns: Columns) -> Columns:
    """Columns without subclasses of `str` and `bytes`, which msgspec does not encode."""
    text = str.__str__
    return Columns(
        [text(key) for key in columns.keys],
        [text(tag) for tag in columns.tags],
        [{text(name): text(value) for name, value in entry.items()} for entry in columns.headers],
        [bytes(body) for body in columns.bodies],
        columns.born_deltas,
    )
