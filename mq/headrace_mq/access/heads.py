"""
The heads of messages: what of them those see that may read a topic, but not consume it. PURE.

    consume topic:orders   the message
    read topic:orders      its place, key, tag and times, and how many bytes its body has; no body, no header of its own

A batch of heads is a batch like any other, so that all that reads batches reads heads, too. Of a retried message or a
dead letter its origin stays, with the error's name alone. A flag of the batch says that it has heads: a publisher can
write any header, but the broker takes no batch with that flag.

Used by the broker, which makes them, and by administration, which shows them.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from headrace_mq.access.resources import Action, Ask, ResourceKind, owned
from headrace_mq.errors import UndecodableBatch
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import (
    HEADS,
    Columns,
    decode_placed,
    decode_records,
    read_header,
)
from headrace_mq.protocol.sparse import thinned

__all__ = [
    "HEAD_HEADER",
    "HEAD_PLAIN_BYTES_MAX",
    "HEAD_RECORDS_MAX",
    "HeadRoom",
    "MessageHead",
    "body_bytes",
    "consumption",
    "head_of",
    "hidden_words",
    "is_head",
    "seen_records",
]

# Of a head: how many bytes the body has.
HEAD_HEADER: Final = "%head"
# Records of one answer over all its queues, but for its first batch: each is decoded and made again, in the broker's own
# time, some ten milliseconds for all.
HEAD_RECORDS_MAX: Final = 4_096
# The same of bytes that are unpacked for it: some ten milliseconds, however well they were packed.
HEAD_PLAIN_BYTES_MAX: Final = 8 << 20
# As `client.retry_headers` writes it.
_ORIGIN_HEADER: Final = "%origin"
_FIELDS: Final = Record.__struct_fields__
_ERROR_NAME: Final = re.compile(r"[A-Za-z_][\w.]{0,99}(?=:|$)", re.ASCII)


class _Origin(msgspec.Struct):
    """Where a failed message came from, as far as it shows nothing of its content."""

    topic: str
    queue_id: int
    offset: int
    born_at_ms: int
    attempt: int
    back_to: str
    apart: bool = False
    reason: str = ""


class MessageHead(Record, frozen=True, gc=False):
    """The head of a message: a record whose content the broker left out, because the user may not see it."""


class HeadRoom:
    """How many batches one answer may have made into heads: the first one, and those behind it that are small enough.

    Attributes:
        is_over: whether a batch had no room any more; then the answer takes no other one.
    """

    __slots__ = ("_is_first", "_plain_bytes", "_records", "is_over")

    def __init__(self) -> None:
        self._is_first, self.is_over = True, False
        self._records, self._plain_bytes = HEAD_RECORDS_MAX, HEAD_PLAIN_BYTES_MAX

    def take(self, batches: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
        """Returns the first ones of some batches, as far as there is room, and takes the room."""
        taken: list[bytes | memoryview] = []
        for batch in batches:
            header = read_header(batch)
            plain_bytes = max(header.plain_bytes, header.length)
            fits = header.count <= self._records and plain_bytes <= self._plain_bytes
            if self.is_over or not (fits or self._is_first):
                self.is_over = True
                break
            self._is_first = False
            self._records -= header.count
            self._plain_bytes -= plain_bytes
            taken.append(batch)
        return taken


def consumption(topic: str) -> Ask:
    """Returns what is asked before the content of a topic's messages is shown."""
    return owned(Ask(Action.CONSUME, ResourceKind.TOPIC, topic))


def head_of(batch: bytes | bytearray | memoryview, key: str | None = None) -> bytearray:
    """Returns a stored batch with the heads of its records alone.

    Args:
        batch: a whole one.
        key: only the records of this key; None: all.

    Of one whose payload does not decode, no record is left.
    """
    header = read_header(batch)
    header = header._replace(flags=header.flags | HEADS)
    try:
        offsets, columns = decode_placed(batch, header)
    except UndecodableBatch:
        return thinned(batch, header, [], Columns([], [], [], [], []), [])
    count = len(columns.bodies)
    # A batch has many records and few sizes: most heads share their headers.
    sizes = {size: {HEAD_HEADER: str(size)} for size in set(map(len, columns.bodies))}
    heads = [sizes[len(body)] for body in columns.bodies]
    for at, own in enumerate(columns.headers):
        if _ORIGIN_HEADER in own:
            heads[at] = heads[at] | _origin(own)
    bare = columns._replace(headers=heads, bodies=[b""] * count)
    keys = columns.keys or [""] * count
    kept = range(count) if key is None else [at for at in range(count) if keys[at] == key]
    return thinned(batch, header, offsets, bare, kept)


def seen_records(batch: bytes | bytearray | memoryview) -> list[Record]:
    """Returns the records of a batch that a broker answered, or the heads of them. Raises as `decode_records`."""
    records = decode_records(batch)
    if not read_header(batch).flags & HEADS:
        return records
    return [MessageHead(*(getattr(one, name) for name in _FIELDS)) for one in records]


def is_head(record: Record) -> bool:
    """Whether a record is only the head of a message; its headers do not count, as a publisher writes them."""
    return isinstance(record, MessageHead)


def body_bytes(record: Record) -> int:
    """Returns how many bytes the body of a message has, also where only its head is here."""
    told = record.headers.get(HEAD_HEADER, "") if is_head(record) else ""
    return int(told) if told.isdecimal() else len(record.body)


def hidden_words(queue: QueueRef) -> str:
    """Says what the content of a message needs."""
    ask = consumption(queue.topic)
    return f"needs {ask.action} on {ask.resource}"


def _origin(headers: dict[str, str]) -> dict[str, str]:
    try:
        origin = msgspec.json.decode(headers[_ORIGIN_HEADER], type=_Origin)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    named = _ERROR_NAME.match(origin.reason)
    origin.reason = named[0] if named else ""
    return {_ORIGIN_HEADER: msgspec.json.encode(origin).decode()}
