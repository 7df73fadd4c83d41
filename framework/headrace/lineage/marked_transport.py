"""
A transport whose readers are known: what each has seen last, and that all stop where they must.

Sits between: the loops that read events, and the transport; `check` looks at what it noted.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from headrace.errors import HeadraceError
from headrace.events.publisher import HEARTBEAT
from headrace.lineage.verdict import Mark
from headrace.transports.base import (
    DAMAGED,
    Incoming,
    OffsetLoader,
    QueueId,
    Subscription,
    Transport,
)

__all__ = ["MarkedSubscription", "MarkedTransport", "Seen", "TopicReplaced"]


class TopicReplaced(HeadraceError):
    """The event topic is another one now; whoever subscribes again reads that."""


class Seen:
    """What one reader has seen since it was asked last."""

    def __init__(self) -> None:
        self.last: dict[int, Incoming] = {}
        self.streams: dict[int, Incoming] = {}
        self.changed = False

    def note(self, message: Incoming) -> None:
        """Takes note of a message that is done."""
        number = message.queue[1]
        self.last[number] = message
        self.changed = True
        if message.tag != HEARTBEAT and DAMAGED not in message.headers:
            self.streams[number] = message

    def marks(self) -> dict[int, Mark]:
        """Returns what it has seen, by queue."""
        return {
            number: Mark(
                next_offset=message.offset + 1,
                message_id=message.headers.get("command", ""),
                stream=_stream_of(self.streams.get(number)),
            )
            for number, message in self.last.items()
        }


class MarkedTransport:
    """A transport that notes what readers of events have seen; all else is the transport's own.

    Args:
        transport: what it stands for.
        readers: the name of the reader by its group.
        enter: awaited before a reader begins, or goes on over another connection; raises where it
            must not.
        damaged: awaited with the messages that stand for damaged ones, before a reader gets them.
    """

    def __init__(
        self,
        transport: Transport,
        readers: Mapping[str, str],
        enter: Callable[[], Awaitable[None]],
        damaged: Callable[[Sequence[Incoming]], Awaitable[None]],
    ) -> None:
        self._transport = transport
        self._note_damage = damaged
        self._readers = readers
        self._enter = enter
        self.seen: dict[str, Seen] = {name: Seen() for name in readers.values()}
        # One more for each topic that took the place of another.
        self.life = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> Subscription:
        """As `Transport.subscribe`; raises what `enter` raises."""
        reader = self._readers.get(group)
        if reader is None:
            return await self._transport.subscribe(group, topics, offsets=offsets)
        await self._enter()

        async def load(queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
            await self._enter()
            assert offsets is not None, "only given where there are some"
            return await offsets(queues)

        subscription = await self._transport.subscribe(
            group, topics, offsets=None if offsets is None else load
        )
        return MarkedSubscription(subscription, self, self.seen[reader])

    async def note_damage(self, messages: Sequence[Incoming]) -> None:
        """Tells of those that stand for damaged ones, before anybody goes past them."""
        markers = [each for each in messages if DAMAGED in each.headers]
        if markers:
            await self._note_damage(markers)

    def begin_life(self) -> None:
        """Lets every reader subscribe again: the topic is another one."""
        self.life += 1
        for seen in self.seen.values():
            seen.last.clear()
            seen.streams.clear()


class MarkedSubscription:
    """A subscription that notes what is acknowledged."""

    def __init__(self, subscription: Subscription, transport: MarkedTransport, seen: Seen) -> None:
        self._subscription = subscription
        self._transport = transport
        self._seen = seen
        self._life = transport.life
        # Came, and what is damaged among them is not noted yet: a poll that is given up meanwhile must
        # not lose it.
        self._unnoted: list[Incoming] = []

    async def poll(self) -> list[Incoming]:
        """As `Subscription.poll`; raises `TopicReplaced` when it belongs to a topic that is gone."""
        self._check()
        if not self._unnoted:
            self._unnoted = await self._subscription.poll()
        self._check()
        if self._transport.damaged():
            await self._transport.note_damage(self._unnoted)
        messages, self._unnoted = self._unnoted, []
        return messages

    def ack(self, message: Incoming) -> None:
        """As `Subscription.ack`."""
        if self._life == self._transport.life:
            self._subscription.ack(message)
            self._seen.note(message)

    def seek(self, queue: QueueId, offset: int) -> None:
        """As `Subscription.seek`."""
        self._unnoted = [each for each in self._unnoted if each.queue != queue]
        self._subscription.seek(queue, offset)

    async def aclose(self) -> None:
        """As `Subscription.aclose`."""
        await self._subscription.aclose()

    def _check(self) -> None:
        if self._life != self._transport.life:
            raise TopicReplaced("the event topic is another one now")


def _stream_of(message: Incoming | None) -> tuple[str, str] | None:
    return None if message is None else (message.key, message.headers.get("command", ""))
