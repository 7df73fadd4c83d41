"""
The values that producers, brokers and consumers share.

Used everywhere: applications fill a `Message` and receive a `Record`, and `protocol` turns many of them
into one record batch. Knows no bytes, sockets or files.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = [
    "HEADERS_MAX",
    "KEY_BYTES_MAX",
    "QUEUES_PER_TOPIC_MAX",
    "TAG_BYTES_MAX",
    "TOPIC_BYTES_MAX",
    "Message",
    "QueueRef",
    "Record",
    "SendResult",
    "check_message",
    "check_topic",
    "not_text",
]

# RocketMQ's limits, where it has one; the others keep a hostile header from filling memory.
TOPIC_BYTES_MAX = 127
KEY_BYTES_MAX = 1_024
TAG_BYTES_MAX = 128
HEADERS_MAX = 64
QUEUES_PER_TOPIC_MAX = 1_024

_TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-%")


class QueueRef(NamedTuple):
    """One queue of a topic."""

    topic: str
    queue_id: int


class SendResult(NamedTuple):
    """The queue and offset of an acknowledged message.

    `duplicate` says that the broker had stored it before, on an earlier attempt.
    """

    queue: QueueRef
    offset: int
    duplicate: bool = False


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send.

    Args:
        topic: 1 to 127 characters of letters, digits, `.`, `_`, `-`, `%`.
        body: the payload; the queue never reads it.
        key: routing key; messages of one key keep their order in one queue. Empty: round robin.
        tag: a word that consumers may filter by; may be empty.
        headers: at most 64 names with text values.
    """

    topic: str
    body: bytes
    key: str = ""
    tag: str = ""
    headers: Mapping[str, str] = {}


# Not for keywords only, so that a batch becomes records within C (`map`); and of no interest to the
# collector of cycles, which would otherwise look at every record that waits for its turn.
class Record(msgspec.Struct, frozen=True, gc=False):
    """A stored message as a consumer receives it.

    Args:
        queue: the queue it is in.
        offset: its number in that queue, from 0.
        key: routing key.
        tag: filter word.
        headers: names with text values.
        body: the payload as it was sent.
        born_at_ms: when the producer took it, in milliseconds since 1970 UTC; messages that it takes in
            one tick of its loop may have the time of the first.
        stored_at_ms: when the broker appended it.
        producer_id: which producer sent it; 0 for none. A producer that gives up a batch gets a new id.
    """

    queue: QueueRef
    offset: int
    key: str
    tag: str
    headers: Mapping[str, str]
    body: bytes
    born_at_ms: int
    stored_at_ms: int
    producer_id: int = 0


def check_topic(topic: str) -> str:
    """Returns the topic name, or raises ValueError with a sentence that says what is wrong."""
    if not 1 <= len(topic) <= TOPIC_BYTES_MAX:
        raise ValueError(
            f"a topic name has 1 to {TOPIC_BYTES_MAX} characters, this one has {len(topic)}"
        )
    strange = set(topic) - _TOPIC_CHARACTERS
    if strange:
        raise ValueError(
            f"topic {topic!r}: use letters, digits and . _ - % only, not {''.join(sorted(strange))!r}"
        )
    return topic


def not_text(message: Message) -> str:
    """Says of a message whose key, tag and headers are not all text what is wrong; else nothing."""
    if not isinstance(message.headers, Mapping):
        return f"the headers of a message are a mapping, not {type(message.headers).__name__}"
    named = {"key": message.key, "tag": message.tag}
    for name, value in message.headers.items():
        if not isinstance(name, str):
            return f"the name of a header is text, not {type(name).__name__}: {str(name)[:40]!r}"
        named[f"header {name[:40]!r}"] = value
    for what, value in named.items():
        if not isinstance(value, str):
            return f"the {what} of a message is text, not {type(value).__name__}: use str"
    return ""


def check_message(message: Message) -> None:
    """Raises ValueError or TypeError, saying what to change, if the message cannot be sent."""
    check_topic(message.topic)
    if not isinstance(message.body, bytes):
        raise TypeError(f"a message body is bytes, not {type(message.body).__name__}")
    if len(message.key.encode()) > KEY_BYTES_MAX:
        raise ValueError(f"a key has at most {KEY_BYTES_MAX} bytes; shorten {message.key[:40]!r}…")
    if len(message.tag.encode()) > TAG_BYTES_MAX:
        raise ValueError(f"a tag has at most {TAG_BYTES_MAX} bytes; shorten {message.tag[:40]!r}…")
    if len(message.headers) > HEADERS_MAX:
        raise ValueError(
            f"a message has at most {HEADERS_MAX} headers, this one has {len(message.headers)}"
        )
