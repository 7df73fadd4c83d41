"""
Messages of one queue that are sent, and acknowledged or refused, together.

Sits between: `lane`, which fills and sends it, the record batch it becomes, and the senders that wait
for its outcome.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from headrace_mq.client.part import Part
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import Columns, decode_columns, encode_batch, read_header

__all__ = ["Batch", "Place", "encode"]

T = TypeVar("T")

_new = tuple.__new__


class Batch:
    """Messages of one queue that are sent, and acknowledged or refused, together.

    Attributes:
        count: its messages.
        fresh: those that came one by one and stand in no column yet, behind those that do.
        born_ms: when each of these was handed over.
        size: the most bytes its messages can take on the wire.
        deadline_ms: when the producer gives it up, on the monotonic clock.
        encoded: the bytes that every attempt sends; None until the first one.
        attempts: how often it was sent.
        on_way: whether it was sent and the answer has not come.
        settled: whether it was stored or given up.
        base_offset: where it is stored; -1 until then, and where the broker does not say.
        duplicate: whether the broker had stored it before.
        waiter: what its senders wait for; made by the first of them.
    """

    __slots__ = (
        "_bodies",
        "_born_first_ms",
        "_deltas",
        "_error",
        "_headers",
        "_keys",
        "_reports",
        "_tags",
        "attempts",
        "base_offset",
        "born_ms",
        "count",
        "deadline_ms",
        "duplicate",
        "encoded",
        "fresh",
        "on_way",
        "queue",
        "settled",
        "size",
        "waiter",
    )

    def __init__(self, queue: QueueRef) -> None:
        self.queue = queue
        self.deadline_ms = 0
        # One list per field, as the wire has it; a list of defaults only stays empty.
        self._bodies: list[bytes] = []
        self._keys: list[str] = []
        self._tags: list[str] = []
        self._headers: list[Mapping[str, str]] = []
        # How much later than the first message each one was handed over.
        self._deltas: list[int] = []
        self._born_first_ms = 0
        self.born_ms: list[int] = []
        self.fresh: list[Message] = []
        self.count = 0
        self.size = 0
        self.encoded: bytearray | None = None
        self.attempts = 0
        self.on_way = False
        self.settled = False
        self.waiter: asyncio.Future[None] | None = None
        self._reports: list[tuple[int, asyncio.Future[SendResult]]] = []
        self.base_offset = -1
        self.duplicate = False
        self._error: MessageQueueError | None = None

    def add(self, message: Message, size: int, born_ms: int) -> int:
        """Takes one message; returns its number."""
        # One list now and the columns later, all at once: a fifth of the time.
        self.fresh.append(message)
        self.born_ms.append(born_ms)
        self.size += size
        number = self.count
        self.count = number + 1
        return number

    def extend(self, part: Part, born_ms: int) -> int:
        """Takes many messages; returns the number of the first."""
        self._turn_fresh()
        number = self.count
        if not number:
            self._born_first_ms = born_ms
        delta = max(born_ms - self._born_first_ms, 0)
        self._take(part, [delta] * len(part) if delta else [])
        self.size += part.size
        self.count = number + len(part)
        return number

    def move(self, queue: QueueRef) -> bool:
        """Makes a batch that was sent one of another queue; False where keys tie it to its own."""
        before = self.queue
        self.queue = queue
        self.decode()
        if self._keys:
            self.queue = before
            return False
        self.encoded = None
        return True

    def decode(self) -> None:
        """Takes the messages of a batch that was sent out of its bytes, to be encoded again."""
        assert self.encoded is not None
        header = read_header(self.encoded)
        self._keys, self._tags, headers, self._bodies, deltas = decode_columns(self.encoded, header)
        self._headers = list(headers)
        self._deltas, self._born_first_ms = deltas, header.born_first_ms

    def stored(self, base_offset: int, *, duplicate: bool) -> None:
        """The broker has it."""
        self.base_offset = base_offset
        self.duplicate = duplicate
        self._settle()

    def failed(self, error: MessageQueueError) -> None:
        """It is given up."""
        self._error = error
        self._settle()

    def check(self) -> None:
        """Raises the batch's error, if it was given up."""
        if self._error is not None:
            # One error object raised by every sender would collect all their tracebacks.
            raise type(self._error)(*self._error.args) from self._error

    def result(self, number: int) -> SendResult:
        """Where the message of that number stands; raises the batch's error.

        The offset is -1 for a repeated batch whose place the broker no longer remembers.
        """
        if self._error is not None:
            self.check()
        offset = self.base_offset + number if self.base_offset >= 0 else -1
        # A named tuple built as a tuple: half the time of calling it.
        return _new(SendResult, (self.queue, offset, self.duplicate))

    def report(self, number: int, result: asyncio.Future[SendResult]) -> None:
        """Settles a future with the result of the message of that number, once there is one."""
        if self.settled:
            self._tell(number, result)
        else:
            self._reports.append((number, result))

    def columns(self) -> tuple[Columns, int]:
        """The messages as the wire has them, and when the first was born; they are taken out."""
        self._turn_fresh()
        columns = Columns(
            self._keys,
            self._tags,
            [dict(entry) for entry in self._headers],
            self._bodies,
            self._deltas,
        )
        # From here on the encoded bytes are all that is needed.
        self._keys, self._tags, self._headers, self._bodies, self._deltas = [], [], [], [], []
        return columns, self._born_first_ms

    def _turn_fresh(self) -> None:
        if self.fresh:
            fresh, self.fresh = self.fresh, []
            born_ms, self.born_ms = self.born_ms, []
            if not self._bodies:
                self._born_first_ms = born_ms[0]
            self._take(Part.measured(fresh, self.size), _deltas(self._born_first_ms, born_ms))

    def _take(self, part: Part, deltas: list[int]) -> None:
        number, count = len(self._bodies), len(part)
        if part.keys or self._keys:
            _extend(self._keys, part.keys, number, count, "")
        if part.tags or self._tags:
            _extend(self._tags, part.tags, number, count, "")
        if part.headers or self._headers:
            _extend(self._headers, part.headers, number, count, {})
        if deltas or self._deltas:
            _extend(self._deltas, deltas, number, count, 0)
        self._bodies += part.bodies

    def _settle(self) -> None:
        self.settled = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        reports, self._reports = self._reports, []
        for number, result in reports:
            self._tell(number, result)

    def _tell(self, number: int, result: asyncio.Future[SendResult]) -> None:
        if result.done():
            return
        try:
            result.set_result(self.result(number))
        except MessageQueueError as error:
            result.set_exception(error)


# A message's batch and its number there, from 0. A plain tuple: one is made for every message.
Place = tuple[Batch, int]


def encode(batch: Batch, *, producer_id: int, first_sequence: int, codec: str) -> bytearray:
    """Turns a batch into its bytes; its messages are then in these alone."""
    columns, born_first_ms = batch.columns()
    fields: dict[str, Any] = {
        "born_first_ms": born_first_ms,
        "producer_id": producer_id,
        "first_sequence": first_sequence,
        "codec": codec,
    }
    try:
        return encode_batch(batch.queue, columns, **fields)
    except TypeError:
        return encode_batch(batch.queue, _plain(columns), **fields)


def _extend(column: list[T], more: Sequence[T], number: int, count: int, missing: T) -> None:
    """Appends `count` entries to a column of `number` messages; both are empty if all are missing."""
    if more:
        if not column:
            column += [missing] * number
        column += more
    elif column:
        column += [missing] * count


def _deltas(first_ms: int, born_ms: list[int]) -> list[int]:
    """Times after the first one; a clock that was set back makes no message older than its batch."""
    if min(born_ms) < first_ms:
        return [max(born - first_ms, 0) for born in born_ms]
    return [born - first_ms for born in born_ms] if max(born_ms) > first_ms else []


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
