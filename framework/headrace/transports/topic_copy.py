"""
Copies a topic from one queue to another, message for message, each into the queue of the same number.

    ranges ─▶ a topic with as many queues ─▶ what the target lacks of each queue ─▶ compared, whole

The source may have let its oldest messages go, and a topic that is made again may go on with its offsets, so the
two sides count from different offsets: `shift` is the difference.
A copy that ended half way goes on where the target ends. What was copied counts only when both sides were read
again and are equal: counts and SHA-256 per queue.

Used by `headrace topic copy`. Knows the ports alone.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from headrace.errors import HeadraceError
from headrace.transports.topic_reader import Part, TopicReader
from headrace.transports.topic_writer import TopicWriter
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns
from headrace_mq.protocol.bodies import QueueRange

__all__ = ["CopyRefused", "QueueCopy", "compare_topics", "copy_topic"]

_length = struct.Struct("<I").pack


class CopyRefused(HeadraceError):
    """A topic cannot be copied as it stands; nothing that was there has been changed."""


class QueueCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One queue on both sides.

    Attributes:
        topic: its name.
        queue: its number.
        shift: subtract it from an offset of the source to get that of the target.
        first: the first offset of the target.
        messages: on both sides.
        digest: SHA-256 of all of them, hexadecimal.
    """

    topic: str
    queue: int
    shift: int
    first: int
    messages: int
    digest: str


def copy_topic(
    source: TopicReader,
    target: TopicReader,
    writer: TopicWriter,
    topic: str,
    *,
    forever: bool,
    told: Callable[[int], None] = lambda _count: None,
) -> int:
    """Copies what the target lacks of a topic, and makes the topic there if need be.

    Args:
        source: reads the topic.
        target: reads where it is copied to.
        writer: writes there.
        topic: its name on both sides.
        forever: whether the topic is kept for ever.
        told: hears of how many messages were copied since the last call.

    Returns:
        How many messages were copied.

    Raises:
        CopyRefused: the source lacks messages in between, or the target has others, or more queues.
        MessageQueueError, HeadraceError, TimeoutError: as the ports; copy again.
    """
    held = source.ranges([topic])
    writer.ensure(topic, queues=len(held), forever=forever)
    copied = 0
    for each, there in _pairs(topic, held, target.ranges([topic])):
        queue = QueueRef(topic, each.queue_id)
        at, shift = there.end, each.first - there.first
        if at + shift > each.end:
            raise CopyRefused(
                f"queue {queue.queue_id} of {topic} holds {there.end - there.first:,} messages at the"
                f" target, and {each.end - each.first:,} at the source: something else writes there, or"
                " the source has let messages go; delete the topic at the target and copy again"
            )
        for messages in _messages(source, queue, at + shift, each.end):
            count = len(messages.bodies)
            if writer.write(queue, messages) != range(at, at + count):
                raise CopyRefused(
                    f"something else writes to queue {queue.queue_id} of {topic} at the target; stop it,"
                    " delete the topic there and copy again"
                )
            at += count
            copied += count
            told(count)
    return copied


def compare_topics(source: TopicReader, target: TopicReader, topic: str) -> list[QueueCopy]:
    """Reads both sides of a topic from begin to end, and returns what they hold.

    Raises:
        CopyRefused: they differ; names the queue and the first offset where they do.
        MessageQueueError, HeadraceError, TimeoutError: as the port.
    """
    found = []
    for each, there in _pairs(topic, source.ranges([topic]), target.ranges([topic])):
        queue = QueueRef(topic, each.queue_id)
        count = each.end - each.first
        if count != there.end - there.first:
            raise CopyRefused(
                f"queue {queue.queue_id} of {topic} holds {count:,} messages at the source, and"
                f" {there.end - there.first:,} at the target; stop what sends, and copy again"
            )
        whole = hashlib.sha256()
        sides = zip(
            _images(_messages(source, queue, each.first, each.end)),
            _images(_messages(target, queue, there.first, there.end)),
            strict=True,
        )
        for number, (one, other) in enumerate(sides):
            if one != other:
                raise CopyRefused(
                    f"queue {queue.queue_id} of {topic} has another message at offset {there.first + number:,} of the"
                    f" target than at {each.first + number:,} of the source; delete the topic at the"
                    " target and copy again"
                )
            whole.update(one)
        found.append(
            QueueCopy(
                topic=topic,
                queue=queue.queue_id,
                shift=each.first - there.first,
                first=there.first,
                messages=count,
                digest=whole.hexdigest(),
            )
        )
    return found


def _pairs(
    topic: str, held: Sequence[QueueRange], there: Sequence[QueueRange]
) -> Iterator[tuple[QueueRange, QueueRange]]:
    if len(held) != len(there):
        raise CopyRefused(
            f"{topic} has {len(held)} queues at the source and {len(there)} at the target; delete it"
            " there and copy again"
        )
    at: Mapping[int, QueueRange] = {each.queue_id: each for each in there}
    for each in sorted(held, key=lambda one: one.queue_id):
        other = at[each.queue_id]
        if other.first != max(other.start, 0):
            raise CopyRefused(
                f"queue {each.queue_id} of {topic} has let its first messages go at the target; delete the"
                " topic there and copy again"
            )
        yield each, other


def _messages(reader: TopicReader, queue: QueueRef, start: int, end: int) -> Iterator[Columns]:
    """Yields every message of a range; refuses one that lacks some, as offsets would change then."""
    at = start
    for part in reader.read(queue, start, end) if start < end else ():
        header, _, first, last = part
        if first == last or header.base_offset + first != at:
            break
        yield _part(part)
        at = header.base_offset + last
    if at != end:
        raise CopyRefused(
            f"queue {queue.queue_id} of {queue.topic} has no message that can be read at offset {at:,}, so"
            " it cannot be copied; an event topic need not be: a service that starts with the other"
            " address fills an empty one from the event store"
        )


def _part(part: Part) -> Columns:
    _, columns, first, last = part
    keys, tags, headers, bodies, _ = columns
    return Columns(keys[first:last], tags[first:last], headers[first:last], bodies[first:last], [])


def _images(pages: Iterator[Columns]) -> Iterator[bytes]:
    """Yields each message as bytes that only an equal message has."""
    for keys, tags, headers, bodies, _ in pages:
        for number, body in enumerate(bodies):
            texts = [keys[number] if keys else "", tags[number] if tags else ""]
            for pair in sorted(headers[number].items()) if headers else ():
                texts += pair
            parts = [*(text.encode() for text in texts), bytes(body)]
            yield b"".join([_length(len(parts)), *(_length(len(part)) + part for part in parts)])
