"""
Messages of the event topic that are nobody's events: left out by all who read it.

Any client can publish such a message, and no attempt makes events of it. It has no aggregate that could
be parked, takes no version, and so nothing waits for it.

Sits between: all readers of the event topic, live and in bulk, and the serializer.
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
    """Decodes a message; None, and a line in the log, where it is nobody's events.

    Args:
        decode: makes a stream of a body, and raises NoEventStream.
        body: of the message.
        queue: where it stands.
        offset: the same.

    Raises:
        SerializationError, UnknownMessageType: it is some aggregate's, and does not decode.
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
