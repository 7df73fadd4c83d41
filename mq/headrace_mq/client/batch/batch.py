"""
Messages of one queue that are sent together, and acknowledged or refused together.

Used by `producer`: a `QueueSender` fills a batch and encodes it, and callers of `send` wait for its
outcome.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import Columns, decode_columns, encode_batch, read_header

__all__ = ["Batch", "Place"]

_new = tuple.__new__


class Batch:
    """Messages of one queue that are sent, and acknowledged or refused, together.

    Attributes:
        count: its messages.
        fresh: those that came one by one and stand in no column yet, behind those that do.
        born_ms: when each of these was handed over.
        bare: whether none of these has a tag or a header.
        size: the most bytes its messages can take on the wire.
        deadline_ms: when the producer gives it up, on the monotonic clock.
        encoded: the bytes that every attempt sends; None until the first one.
        attempts: how often it was sent.
        refusals: why the broker certainly did not store it, for each attempt of which that is known.
        on_way: whether it was sent and the answer has not come.
        settled: whether it was stored or given up.
        base_offset: where it is stored; -1 until then, and where the broker does not say.
        duplicate: whether the broker had stored it before.
        waiter: what its senders wait for; made by the first of them.
        places: where its messages are now, for each of them, if they went to several other batches.
    """

    __slots__ = (
        "_born_first_ms",
        "_columns",
        "_error",
        "_reports",
        "attempts",
        "bare",
        "base_offset",
        "born_ms",
        "count",
        "deadline_ms",
        "duplicate",
        "encoded",
        "fresh",
        "on_way",
        "places",
        "queue",
        "refusals",
        "settled",
        "size",
        "waiter",
    )

    def __init__(self, queue: QueueRef) -> None:
        self.queue = queue
        self.deadline_ms = 0
        # One list per field, as the wire has it; a list of defaults only stays empty. None until some
        # come together, and once the batch is encoded.
        self._columns: Columns | None = None
        self._born_first_ms = 0
        self.born_ms: list[int] = []
        self.fresh: list[Message] = []
        self.bare = True
        self.count = 0
        self.size = 0
        self.encoded: bytearray | None = None
        self.attempts = 0
        self.refusals: list[str] = []
        self.on_way = False
        self.settled = False
        self.waiter: asyncio.Future[None] | None = None
        self._reports: list[tuple[int, asyncio.Future[SendResult]]] = []
        self.base_offset = -1
        self.duplicate = False
        self.places: list[Place] | None = None
        self._error: MessageQueueError | None = None

    def add(self, message: Message, size: int, born_ms: int) -> int:
        """Takes one message; returns its number."""
        # One list now and the columns later, all at once: a fifth of the time.
        self.fresh.append(message)
        self.born_ms.append(born_ms)
        if message.headers or message.tag != "":
            self.bare = False
        self.size += size
        number = self.count
        self.count = number + 1
        return number

    def extend(self, part: MessageColumns, born_ms: int) -> int:
        """Takes many messages; returns the number of the first."""
        self._turn_fresh()
        if self._columns is None:
            self._born_first_ms = born_ms
        delta = max(born_ms - self._born_first_ms, 0)
        number, count = self.count, len(part)
        self._take(
            Columns(
                list(part.keys),
                list(part.tags),
                [dict(entry) for entry in part.headers],
                list(part.bodies),
                [delta] * count if delta else [],
            )
        )
        self.size += part.size
        self.count = number + count
        return number

    def open_up(self) -> Columns:
        """Returns its messages, to be divided; a batch that was sent is decoded again."""
        if self.encoded is not None:
            self.decode()
            self.encoded = None
        self._turn_fresh()
        assert self._columns is not None
        return self._columns

    def derive(self, queue: QueueRef, columns: Columns, size: int) -> "Batch":
        """Returns a batch of another queue with some of the messages, and with the same history."""
        derived = Batch(queue)
        derived._columns, derived._born_first_ms = columns, self._born_first_ms
        derived.count, derived.size = len(columns.bodies), size
        derived.deadline_ms, derived.attempts = self.deadline_ms, self.attempts
        derived.refusals = list(self.refusals)
        return derived

    def scatter(self, places: "list[Place]") -> None:
        """Its messages went to other batches: it is settled when all of these are."""
        self.places, self._columns = places, None
        parts = dict(places)
        left = set(parts)

        def note(batch: Batch, result: asyncio.Future[SendResult]) -> None:
            # Each of its senders gets the failure from the batch itself.
            result.cancelled() or result.exception()
            left.discard(batch)
            if not left:
                self._settle()

        loop = asyncio.get_running_loop()
        for batch, number in parts.items():
            result: asyncio.Future[SendResult] = loop.create_future()
            result.add_done_callback(partial(note, batch))
            batch.report(number, result)

    def decode(self) -> None:
        """Takes the messages of a batch that was sent out of its bytes, to be encoded again."""
        assert self.encoded is not None
        header = read_header(self.encoded)
        self._columns = decode_columns(self.encoded, header)
        self._born_first_ms = header.born_first_ms

    def stored(self, base_offset: int, *, duplicate: bool) -> None:
        """The broker has it."""
        self.base_offset = base_offset
        self.duplicate = duplicate
        self._settle()

    def failed(self, error: MessageQueueError) -> None:
        """It is given up."""
        self._error = error
        self._settle()

    def check(self, first: int, count: int) -> None:
        """Raises the error of some of its messages, if one was given up."""
        if self.places is not None:
            for batch, number in self.places[first : first + count]:
                batch.check(number, 1)
        if self._error is not None:
            # One error object raised by every sender would collect all their tracebacks.
            raise type(self._error)(*self._error.args) from self._error

    def result(self, number: int) -> SendResult:
        """Where the message of that number stands; raises the batch's error.

        The offset is -1 for a repeated batch whose place the broker no longer remembers.
        """
        if self.places is not None:
            batch, number = self.places[number]
            return batch.result(number)
        if self._error is not None:
            self.check(number, 1)
        offset = self.base_offset + number if self.base_offset >= 0 else -1
        # A named tuple built as a tuple: half the time of calling it.
        return _new(SendResult, (self.queue, offset, self.duplicate))

    def report(self, number: int, result: asyncio.Future[SendResult]) -> None:
        """Settles a future with the result of the message of that number, once there is one."""
        if self.settled:
            self._tell(number, result)
        else:
            self._reports.append((number, result))

    def encode(self, *, producer_id: int, first_sequence: int, codec: str) -> bytearray:
        """Turns its messages into bytes, which it keeps; the messages are then in these alone."""
        self._turn_fresh()
        # From here on the encoded bytes are all that is needed.
        columns, self._columns = self._columns, None
        assert columns is not None
        fields: dict[str, Any] = {
            "born_first_ms": self._born_first_ms,
            "producer_id": producer_id,
            "first_sequence": first_sequence,
            "codec": codec,
        }
        try:
            self.encoded = encode_batch(self.queue, columns, **fields)
        except TypeError:
            self.encoded = encode_batch(self.queue, _plain(columns), **fields)
        return self.encoded

    def _turn_fresh(self) -> None:
        fresh, born_ms = self.fresh, self.born_ms
        if not fresh:
            return
        self.fresh, self.born_ms = [], []
        if self._columns is None:
            self._born_first_ms = born_ms[0]
        deltas = _deltas(self._born_first_ms, born_ms)
        self._take(_columns_of(fresh, deltas, bare=self.bare))
        self.bare = True

    def _take(self, more: Columns) -> None:
        if self._columns is None:
            self._columns = more
        else:
            _extend(self._columns, more)

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


# What stands for an entry that a message does not have, in the order of the columns.
_MISSING: tuple[Any, ...] = ("", "", {}, b"", 0)
# A message's batch and its number there, from 0. A plain tuple: one is made for every message.
Place = tuple[Batch, int]


def _columns_of(messages: Sequence[Message], deltas: list[int], *, bare: bool) -> Columns:
    keys = [message.key for message in messages]
    # Not to look for what is known to be missing saves a twentieth of the time of a send.
    tags = [] if bare else [message.tag for message in messages]
    headers = [] if bare else [message.headers for message in messages]
    # Made of a tuple: half the time of calling it.
    return _new(Columns, (
        keys if any(keys) else [],
        tags if any(tags) else [],
        [dict(entry) for entry in headers] if any(headers) else [],
        [message.body for message in messages],
        deltas,
    ))  # fmt: skip


def _extend(columns: Columns, more: Columns) -> None:
    """Appends columns; one stays empty as long as all its entries are missing."""
    number, count = len(columns.bodies), len(more.bodies)
    pairs: Iterable[tuple[list[Any], list[Any]]] = zip(columns, more, strict=True)
    for (column, entries), missing in zip(pairs, _MISSING, strict=True):
        if entries and not column:
            column.extend([missing] * number)
        column.extend(entries or ([missing] * count if column else ()))


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
