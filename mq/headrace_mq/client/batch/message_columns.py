"""
Messages of one topic as columns: one list per field instead of one object per message.

A loop over messages in Python costs more than all other work on them; the same work on whole lists
costs a tenth.

Used by `producer` and by `transactions.prepare_batcher`. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from headrace_mq.message import Message, not_text

__all__ = ["MessageColumns", "text_bytes"]

# Field lengths in msgpack and the born delta, rounded up, of a message and of each of its headers.
MESSAGE_OVERHEAD_BYTES = 32
HEADER_OVERHEAD_BYTES = 10
# Text that is shorter than these, in characters, is within its limit in bytes for certain.
KEY_SURELY_SHORT, TAG_SURELY_SHORT = 256, 32
# The most bytes that such a key and tag can take in addition to the body.
_SURELY_BYTES_MAX = 4 * (KEY_SURELY_SHORT + TAG_SURELY_SHORT) + MESSAGE_OVERHEAD_BYTES


class MessageColumns:
    """Some messages of one topic; a column of defaults only is empty.

    Args:
        bodies: one for each message.
        keys, tags, headers: as many, or none.

    Attributes:
        size: the most bytes the messages can take on the wire.

    Raises:
        ValueError: the columns differ in length.
        TypeError: a key, a tag or a header is no text.
    """

    __slots__ = ("bodies", "headers", "keys", "size", "tags")

    def __init__(
        self,
        bodies: Sequence[bytes],
        keys: Sequence[str] = (),
        tags: Sequence[str] = (),
        headers: Sequence[Mapping[str, str]] = (),
    ) -> None:
        count = len(bodies)
        if any(len(column) not in {0, count} for column in (keys, tags, headers)):
            raise ValueError(
                f"keys, tags and headers have one entry for each of the {count} bodies, or none"
            )
        self.bodies = bodies
        self.keys = keys if any(keys) else ()
        self.tags = tags if any(tags) else ()
        self.headers = headers if any(headers) else ()
        try:
            self.size = (
                sum(map(len, bodies))
                + MESSAGE_OVERHEAD_BYTES * count
                + text_bytes(self.keys)
                + text_bytes(self.tags)
                + sum(map(_header_bytes, self.headers))
            )
        except (TypeError, AttributeError) as error:
            raise TypeError(self._wrong() or str(error)) from error

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "MessageColumns":
        """Turns messages on their side; their topics are not looked at."""
        return cls(
            [message.body for message in messages],
            [message.key for message in messages],
            [message.tag for message in messages],
            [message.headers for message in messages],
        )

    @classmethod
    def measured(cls, messages: Sequence[Message], size: int) -> "MessageColumns":
        """Like `of`, for messages that were checked and whose size is known."""
        part = cls.__new__(cls)
        part.bodies = [message.body for message in messages]
        keys = [message.key for message in messages]
        tags = [message.tag for message in messages]
        headers = [message.headers for message in messages]
        part.keys = keys if any(keys) else ()
        part.tags = tags if any(tags) else ()
        part.headers = headers if any(headers) else ()
        part.size = size
        return part

    def __len__(self) -> int:
        return len(self.bodies)

    def messages(self, topic: str) -> Iterator[Message]:
        """The messages one by one."""
        for number, body in enumerate(self.bodies):
            yield Message(
                topic=topic,
                body=body,
                key=self.keys[number] if self.keys else "",
                tag=self.tags[number] if self.tags else "",
                headers=self.headers[number] if self.headers else {},
            )

    def _wrong(self) -> str:
        """Says which is the first message with a field of a wrong type."""
        for number, message in enumerate(self.messages("")):
            told = not_text(message)
            if not isinstance(message.body, bytes):
                told = f"a message body is bytes, not {type(message.body).__name__}"
            if told:
                return f"message {number} of these: {told}"
        return ""

    def pick(self, places: Sequence[int] | range) -> "MessageColumns":
        """The messages at some places, in that order; there is at least one place."""
        if len(places) == 1:
            places = range(places[0], places[0] + 1)
        take = (
            itemgetter(slice(places.start, places.stop, places.step))
            if isinstance(places, range)
            else itemgetter(*places)
        )
        if self.tags or self.headers:
            return MessageColumns(
                take(self.bodies),
                take(self.keys) if self.keys else (),
                take(self.tags) if self.tags else (),
                take(self.headers) if self.headers else (),
            )
        # What most parts are, without the checks that the whole has passed.
        part = MessageColumns.__new__(MessageColumns)
        part.tags = part.headers = ()
        part.bodies = take(self.bodies)
        part.size = sum(map(len, part.bodies)) + MESSAGE_OVERHEAD_BYTES * len(part.bodies)
        keys = take(self.keys) if self.keys else ()
        part.keys = keys if any(keys) else ()
        if keys:
            part.size += text_bytes(keys)
        return part

    def surely_fits(self, message_bytes_max: int) -> bool:
        """Whether every message is certain to be within all limits; if not, look at each one."""
        return (
            not self.headers
            and set(map(type, self.bodies)) == {bytes}
            # Where all of them together are small enough, each one is.
            and (
                self.size + _SURELY_BYTES_MAX <= message_bytes_max
                or max(map(len, self.bodies)) + _SURELY_BYTES_MAX <= message_bytes_max
            )
            and max(map(len, self.keys), default=0) <= KEY_SURELY_SHORT
            and max(map(len, self.tags), default=0) <= TAG_SURELY_SHORT
        )


def text_bytes(texts: Sequence[str]) -> int:
    """How many bytes the texts take together in UTF-8; raises TypeError where one is no text."""
    joined = "".join(texts)
    return len(joined) if joined.isascii() else len(joined.encode())


def _header_bytes(headers: Mapping[str, str]) -> int:
    return (
        text_bytes([*headers, *headers.values()]) + HEADER_OVERHEAD_BYTES * len(headers)
        if headers
        else 0
    )
