"""
The heads of messages: what of them those see that may read a topic, but not consume it. PURE.

    consume topic:orders   the message
    read topic:orders      its place, key, tag and times, and how many bytes its body has; no body, no header of its own

A batch of heads is a batch like any other, so that all that reads batches reads heads, too. Of a retried message or a
dead letter its origin stays, with the error's name alone.

Used by the broker, which makes them, and by administration, which shows them.
"""

import re
from typing import Final

import msgspec

from headrace_mq.access.resources import Action, Ask, ResourceKind, owned
from headrace_mq.errors import UndecodableBatch
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import Columns, decode_placed, read_header
from headrace_mq.protocol.sparse import thinned

__all__ = [
    "HEAD_HEADER",
    "HEAD_RECORDS_MAX",
    "body_bytes",
    "consumption",
    "head_of",
    "hidden_words",
    "is_head",
]

# Of a head: how many bytes the body has.
HEAD_HEADER: Final = "%head"
# Records of one answer, but for its first batch: each is decoded and made again, in the broker's own time.
HEAD_RECORDS_MAX: Final = 4_096
# As `client.retry_headers` writes it.
_ORIGIN_HEADER: Final = "%origin"
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


def is_head(record: Record) -> bool:
    """Whether a record is only the head of a message."""
    return HEAD_HEADER in record.headers and not record.body


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
