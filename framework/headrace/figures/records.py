"""
Messages that a broker returned, as text for people or as JSON for programs.

Used by `headrace message` and the console.
"""

import base64
import codecs
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # the help text must not wait for the queue
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.message import Record

__all__ = [
    "ROWS_MAX",
    "Senders",
    "content",
    "described",
    "hidden_need",
    "id_of",
    "messages_from",
    "sender_of",
    "shortened",
    "text_of",
    "word",
    "words",
]

# Producers by their id.
Senders = dict[int, Any]

# Commands of one page, or their results.
ROWS_MAX: Final = 500
# What of a body a row of a table shows, in characters.
_BODY_SHOWN = 60


def described(record: "Record") -> dict[str, Any]:
    """The fields of a message for programs; `body` is null where it is no text, or `hidden` says what it needs."""
    hidden = hidden_need(record)
    return {
        "id": id_of(record),
        "topic": record.queue.topic,
        "queue_id": record.queue.queue_id,
        "offset": record.offset,
        "key": record.key,
        "tag": record.tag,
        "headers": {} if hidden else dict(record.headers),
        "born_at_ms": record.born_at_ms,
        "stored_at_ms": record.stored_at_ms,
        "bytes": _body_bytes(record),
        "body": None if hidden else _decoded(record.body),
        "body_base64": None if hidden else base64.b64encode(record.body).decode(),
        "hidden": hidden,
    }


def hidden_need(record: "Record") -> str:
    """Says what a user lacks to see the content of a message; empty: it is here."""
    from headrace_mq.access.heads import hidden_words, is_head

    return hidden_words(record.queue) if is_head(record) else ""


def _body_bytes(record: "Record") -> int:
    from headrace_mq.access.heads import body_bytes

    return body_bytes(record)


async def messages_from(
    admin: "AdminClient",
    topic: str,
    queue: int,
    *,
    offset: int | None = None,
    since_ms: int | None = None,
    limit: int,
) -> "list[Record]":
    """Returns the messages of a queue from an offset or a time on.

    Args:
        admin: a connection to the broker.
        topic: its name.
        queue: its number.
        offset: where to begin; None: at a time.
        since_ms: when, in ms since 1970 UTC, by the broker's clock when it stored a message.
        limit: how many at most, 1 to 1,000.

    Raises:
        ValueError: the limit is out of its range.
        TopicNotFound, QueueNotFound: the topic or the queue does not exist.
    """
    from headrace_mq.message import QueueRef

    place = QueueRef(topic, queue)
    if offset is None:
        # A queue that is not there has none; `read` says which are.
        offset = (await admin.offsets_at([topic], since_ms or 0)).get(place, 0)
    return await admin.read(place, offset, limit)


def sender_of(record: "Record", senders: Senders) -> dict[str, Any]:
    """Who sent a message, for programs; `sender` is null where it is not known any more."""
    return {"producer_id": record.producer_id, "sender": senders.get(record.producer_id)}


def words(record: "Record") -> tuple[str, str]:
    """A message's key and tag for people."""
    return word(record.key), word(record.tag)


def id_of(record: "Record") -> str:
    """A message's id."""
    return f"{record.queue.topic}:{record.queue.queue_id}:{record.offset}"


def _decoded(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def text_of(body: bytes) -> str:
    """Writes a body for people; in hexadecimal if it is not text or has control characters."""
    text = _decoded(body)
    return body.hex(" ") if text is None or not _is_plain(text) else text


def _is_plain(text: str) -> bool:
    return all(one.isprintable() or one in "\n\t" for one in text)


def shortened(body: bytes) -> str:
    """Writes the beginning of a body in one line."""
    head = body[: 4 * _BODY_SHOWN]
    try:
        # The last character may be cut in two.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        text = ""
    text = " ".join(text.split()) if text and _is_plain(text) else head.hex(" ")
    return text if len(text) <= _BODY_SHOWN else f"{text[: _BODY_SHOWN - 1]}…"


def content(record: "Record") -> str:
    """Writes the beginning of a body, or why it is hidden or no reader can decode it, in one line."""
    from headrace_mq.client.fetch.damage import DAMAGE_HEADER, is_marker

    if need := hidden_need(record):
        return f"hidden: {need}"
    return record.headers[DAMAGE_HEADER] if is_marker(record) else shortened(record.body)


def word(text: str) -> str:
    """Writes a key, tag or header for people, in one line."""
    return text if text.isprintable() else repr(text)
