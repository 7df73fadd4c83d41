"""
Messages that wait for a route or for room in the send buffer, first in, first out.

Used by `send_buffer`, which decides when the first may go on. Pure.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from headrace_mq.client.batch.batch import Place
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message

__all__ = ["InLine", "Line"]


class InLine(NamedTuple):
    """A message that waits; `place` ends when it has one.

    `size` is the most bytes that it takes on the wire; it is given up at `deadline_ms` of the
    monotonic clock.
    """

    message: Message
    size: int
    born_ms: int
    deadline_ms: int
    place: asyncio.Future[Place]


class Line:
    """The messages of one producer that have no place yet.

    Attributes:
        waiting: those in line, the first one first.
        size: the bytes of all of them.
    """

    __slots__ = ("size", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[InLine] = deque()
        self.size = 0

    def join(self, last: InLine) -> None:
        """Takes a message in behind all others."""
        self.waiting.append(last)
        self.size += last.size

    def head(self) -> InLine | None:
        """The first message whose sender still waits; those of cancelled senders leave."""
        while self.waiting:
            first = self.waiting[0]
            if not first.place.done():
                return first
            self.leave()
        return None

    def leave(self) -> InLine:
        """Takes the first message out; there is one."""
        first = self.waiting.popleft()
        self.size -= first.size
        return first

    def expired(self, now_ms: int) -> list[InLine]:
        """Takes out those whose time is up and whose sender still waits."""
        late: list[InLine] = []
        while self.waiting and self.waiting[0].deadline_ms <= now_ms:
            late.append(self.leave())
        return [one for one in late if not one.place.done()]

    def refuse(self, topic: str, error: MessageQueueError) -> None:
        """Fails the messages to a topic."""
        kept = deque(one for one in self.waiting if one.message.topic != topic)
        refused = [one for one in self.waiting if one.message.topic == topic]
        self.waiting, self.size = kept, sum(one.size for one in kept)
        _fail(refused, error)

    def abandon(self, error: MessageQueueError) -> None:
        """Fails all of them."""
        left, self.waiting, self.size = self.waiting, deque(), 0
        _fail(left, error)


def _fail(messages: Iterable[InLine], error: MessageQueueError) -> None:
    for one in messages:
        if not one.place.done():
            # One error object raised by every sender would collect all their tracebacks.
            one.place.set_exception(type(error)(*error.args))
