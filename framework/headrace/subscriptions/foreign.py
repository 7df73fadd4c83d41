"""
Messages of the event topic that hold no events: every reader skips them.

Any client can publish such a message, and a retry does not help. It belongs to no aggregate and has no
version. So the reader parks nothing, and nothing waits for it.

Used by all readers of the event topic, live and in bulk, to decode messages.
"""

from collections.abc import Callable
from typing import TypeVar

from headrace._runtime.log import get_logger
from headrace.errors import NoEventStream
from headrace.transports.base import QueueId

__all__ = ["stream_or_none"]

S = TypeVar("S")

log = get_logger(__name__)


def stream_or_none(
    decode: Callable[[bytes], S], body: bytes, queue: QueueId, offset: int
) -> S | None:
    """Decodes a message; logs a warning and returns None if it holds no events.

    Args:
        decode: makes a stream from a body, and raises NoEventStream.
        body: the message's body.
        queue: the message's queue.
        offset: the message's offset in it.

    Raises:
        SerializationError, UnknownMessageType: the message belongs to an aggregate, but does not decode.
    """
    try:
        return decode(body)
    except NoEventStream as error:
        topic, number = queue
        log.warning(
            "left out a message of the event topic that carries no event stream",
            topic=topic,
            queue=number,
            offset=offset,
            error=str(error),
        )
        return None
