"""
How large a message can become on the wire, and whether it may be sent at all.

Used by `producer.send_buffer` and `transactions.transactional_producer`, before they take a message.
Pure.
"""

from headrace_mq.client.batch.message_columns import (
    HEADER_OVERHEAD_BYTES,
    KEY_SURELY_SHORT,
    MESSAGE_OVERHEAD_BYTES,
    TAG_SURELY_SHORT,
    text_bytes,
)
from headrace_mq.message import Message, check_message, not_text

__all__ = ["FRAME_OVERHEAD_BYTES", "UNKNOWN_BYTES", "measure", "message_bytes_max", "quick_size"]

# Frame and batch headers and the topic's name, rounded up.
FRAME_OVERHEAD_BYTES = 1 << 10
# What a broker keeps free in a frame in addition to a batch, so that a FETCH answer can carry it.
FRAME_RESERVE_BYTES_MAX = 32 << 10
# More than any limit: what `quick_size` does not know.
UNKNOWN_BYTES = 1 << 63


def message_bytes_max(frame_bytes_max: int) -> int:
    """The largest message, all fields counted, that fits a frame even if it does not compress."""
    reserve = min(FRAME_RESERVE_BYTES_MAX, frame_bytes_max // 4)
    # What lz4 and zstd add to bytes that do not compress is below one in 200.
    return frame_bytes_max - reserve - frame_bytes_max // 200 - FRAME_OVERHEAD_BYTES


def measure(message: Message, bytes_max: int, *, routed: bool = False) -> int:
    """Checks a message and returns the most bytes it can take on the wire.

    Args:
        message: to be sent.
        bytes_max: of the broker.
        routed: its topic has a route, so it needs no check.

    Raises:
        ValueError, TypeError: it cannot be sent; the sentence says what to change.
    """
    if routed and (size := quick_size(message)) <= bytes_max:
        return size
    headers = message.headers
    try:
        text = text_bytes([message.key, message.tag, *headers, *headers.values()])
    except TypeError as error:
        raise TypeError(not_text(message) or str(error)) from error
    check_message(message)
    size = text + len(message.body) + MESSAGE_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * len(headers)
    if size > bytes_max:
        raise ValueError(
            f"a message of {size} bytes is over the broker's limit of {bytes_max}; send a reference"
            " to the content, or raise the broker's frame_bytes_max"
        )
    return size


def quick_size(message: Message) -> int:
    """What `measure` says of most messages, at a third of its price; UNKNOWN_BYTES of the others."""
    key, tag, body = message.key, message.tag, message.body
    if (
        type(body) is bytes
        and type(key) is type(tag) is str
        and key.isascii()
        and tag.isascii()
        and len(key) <= KEY_SURELY_SHORT
        and len(tag) <= TAG_SURELY_SHORT
        and not message.headers
    ):
        return len(body) + len(key) + len(tag) + MESSAGE_OVERHEAD_BYTES
    return UNKNOWN_BYTES
