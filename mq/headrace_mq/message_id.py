"""
The name of one stored message: `topic:queue:offset`, such as `orders:3:1042`.

No two messages have the same id. It is known as soon as a message is acknowledged, and says where to
read the message.

Used by applications and the command line, which show, log and parse ids. Pure.
"""

from typing import NamedTuple

from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef, Record, check_topic

__all__ = ["MessageId", "message_id"]

_OFFSET_MAX = (1 << 63) - 1


class MessageId(NamedTuple):
    """One message of one queue; `str` gives the text form."""

    queue: QueueRef
    offset: int

    def __str__(self) -> str:
        return f"{self.queue.topic}:{self.queue.queue_id}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "MessageId":
        """Reads the text form.

        Raises:
            ValueError: the text is not an id; the sentence says what is wrong.
        """
        parts = text.split(":")
        if len(parts) != 3:
            raise ValueError(
                f"{text!r} is no message id; one looks like orders:3:1042 (topic:queue:offset)"
            )
        topic, queue_id, offset = parts
        return cls(
            QueueRef(
                check_topic(topic),
                _number(text, "queue", queue_id, QUEUES_PER_TOPIC_MAX - 1),
            ),
            _number(text, "offset", offset, _OFFSET_MAX),
        )


def message_id(record: Record) -> MessageId:
    """Returns the id of a message that was read."""
    return MessageId(record.queue, record.offset)


def _number(text: str, name: str, digits: str, largest: int) -> int:
    # The largest offset has 19 digits; longer text would be costly to turn into a number.
    if digits.isascii() and digits.isdigit() and len(digits) <= 19 and int(digits) <= largest:
        return int(digits)
    raise ValueError(
        f"the {name} in message id {text!r} is a whole number from 0 to {largest}, not {digits!r}"
    )
