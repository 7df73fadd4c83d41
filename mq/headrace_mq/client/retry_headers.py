"""
The header that says where a failed record came from, and the names of retry and dead-letter topics.

    orders ── fails ──▶ %RETRY%group ── fails ──▶ … ── fails for the last time ──▶ %DLQ%group
                 └ origin: orders/2 at 17, attempt 1        └ attempt 2

Used by `retries`, by `admin.dead_letters`, and by every reader of retried records. Pure.
"""

import msgspec
from msgspec.structs import replace

from headrace_mq.message import TOPIC_BYTES_MAX, Message, QueueRef, Record, check_topic

__all__ = [
    "DEAD_LETTER_PREFIX",
    "ORIGIN_HEADER",
    "RETRY_PREFIX",
    "Origin",
    "dead_letter_topic",
    "forwarded",
    "origin_of",
    "referring",
    "restored",
    "retry_topic",
]

ORIGIN_HEADER = "%origin"
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
# A group that retries names its topics.
GROUP_BYTES_MAX = TOPIC_BYTES_MAX - len(RETRY_PREFIX)
# Enough for the first line of an error; the whole of it is in the consumer's log.
REASON_CHARACTERS_MAX = 500


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What a failed record was.

    Attributes:
        topic, queue_id, offset: its id, the place where it was first.
        born_at_ms: when its producer took it, in ms since 1970 UTC.
        attempt: how many attempts have failed.
        reason: what the last attempt failed with.
        back_to: the topic that it is sent to for another attempt.
        apart: the letter is not a copy, because a copy would not fit; body and headers are only at
            the first place.
    """

    topic: str
    queue_id: int
    offset: int
    born_at_ms: int
    attempt: int
    reason: str
    back_to: str
    apart: bool = False


def retry_topic(group: str) -> str:
    """The topic of a group's records that are handled again. Raises ValueError for a name it cannot have."""
    return _topic_of(RETRY_PREFIX, group)


def dead_letter_topic(group: str) -> str:
    """The topic of the records that a group gave up. Raises ValueError for a name it cannot have."""
    return _topic_of(DEAD_LETTER_PREFIX, group)


def _topic_of(prefix: str, group: str) -> str:
    try:
        return check_topic(f"{prefix}{group}")
    except ValueError as error:
        raise ValueError(
            f"group {group!r} cannot have retry topics, which are named after it ({error}); its name has"
            f" letters, digits and . _ - % only, and at most {GROUP_BYTES_MAX} of them"
        ) from error


def origin_of(record: Record) -> Origin | None:
    """Returns where a record came from; None for one that never failed.

    The record is one of a retry topic, of dead letters, or restored. Anywhere else the header is
    only a copy of a failed record's headers, and says nothing of this one.
    """
    text = record.headers.get(ORIGIN_HEADER)
    if text is None:
        return None
    try:
        origin = msgspec.json.decode(text, type=Origin)
    except msgspec.DecodeError:
        return None
    failed = record.queue.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    place = (*record.queue, record.offset)
    return origin if failed or place == (origin.topic, origin.queue_id, origin.offset) else None


def restored(record: Record) -> Record:
    """Returns a retried record as it stood in its own topic; its origin is still in the headers."""
    origin = origin_of(record)
    if origin is None:
        return record
    return replace(
        record,
        queue=QueueRef(origin.topic, origin.queue_id),
        offset=origin.offset,
        born_at_ms=origin.born_at_ms,
    )


def forwarded(
    record: Record, topic: str, *, error: BaseException, attempts: int, back_to: str
) -> Message:
    """Returns the message that carries a failed record on to another topic.

    Args:
        record: as it was delivered.
        topic: where it goes.
        error: what the last attempt failed with.
        attempts: vain ones since the last time this was sent on.
        back_to: the topic to try it again, for readers of the letter.
    """
    origin = _failed(record, error=error, attempts=attempts, back_to=back_to)
    return Message(
        topic=topic,
        body=record.body,
        key=record.key,
        tag=record.tag,
        headers={**record.headers, ORIGIN_HEADER: msgspec.json.encode(origin).decode()},
    )


def referring(
    record: Record, topic: str, *, error: BaseException, attempts: int, back_to: str
) -> Message:
    """Returns the message that only says where a failed record stands; arguments as `forwarded`.

    For a record that has as many headers or bytes as a message may have: a copy has one header more.
    """
    origin = replace(_failed(record, error=error, attempts=attempts, back_to=back_to), apart=True)
    return Message(
        topic=topic,
        body=b"",
        key=record.key,
        headers={ORIGIN_HEADER: msgspec.json.encode(origin).decode()},
    )


def _failed(record: Record, *, error: BaseException, attempts: int, back_to: str) -> Origin:
    known = origin_of(record)
    reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
    if known is None:
        return Origin(
            topic=record.queue.topic,
            queue_id=record.queue.queue_id,
            offset=record.offset,
            born_at_ms=record.born_at_ms,
            attempt=attempts,
            reason=reason,
            back_to=back_to,
        )
    return replace(known, attempt=known.attempt + attempts, reason=reason, back_to=back_to)
