"""
A transport that notes what each reader of events has seen, and can stop all of them.

Used by the runners that read events; wraps the transport. `check` reads what it has noted.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
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


Require = Callable[[str, Mapping[int, int], Collection[int] | None], Awaitable[None]]


class TopicReplaced(HeadraceError):
    """The event topic is another one now; subscribe again to read it."""


class Seen:
    """The last messages that one reader has acknowledged, by queue."""

    def __init__(self) -> None:
        self.last: dict[int, Incoming] = {}
        self.streams: dict[int, Incoming] = {}
        self.changed = False

    def note(self, message: Incoming) -> None:
        """Notes a message that is done."""
        number = message.queue[1]
        self.last[number] = message
        self.changed = True
        if message.tag != HEARTBEAT and DAMAGED not in message.headers:
            self.streams[number] = message

    def marks(self) -> dict[int, Mark]:
        """Returns the reader's marks, by queue."""
        return {
            number: Mark(
                next_offset=message.offset + 1,
                message_id=message.headers.get("command", ""),
                stream=_stream_of(self.streams.get(number)),
            )
            for number, message in self.last.items()
        }


class MarkedTransport:
    """A transport that notes what readers of events have seen; it passes everything else on.

    Args:
        transport: the wrapped transport.
        readers: the readers' names by consumer group.
        enter: awaited before a reader subscribes, or connects again; raises if the reader may not run.
        require: awaited with a reader's name, the offsets where it begins, by queue, and which queues these
            are, or None for all; raises if the topic does not hold the messages from there on.
        damaged: awaited with the messages that mark damage, before a reader gets them.
    """

    def __init__(
        self,
        transport: Transport,
        readers: Mapping[str, str],
        enter: Callable[[], Awaitable[None]],
        damaged: Callable[[Sequence[Incoming]], Awaitable[None]],
        require: Require,
    ) -> None:
        self._transport = transport
        self._require = require
        self._note_damage = damaged
        self._readers = readers
        self._enter = enter
        self.seen: dict[str, Seen] = {name: Seen() for name in readers.values()}
        # Counts the topics that have replaced an earlier one.
        self.epoch = 0

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
        if offsets is None:
            await self._require(reader, await self._transport.committed(group, topics[0]), None)

        async def load(queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
            await self._enter()
            assert offsets is not None, "only given where there are some"
            found = await offsets(queues)
            begins = {number: offset for (_, number), offset in found.items()}
            await self._require(reader, begins, {number for _, number in queues})
            return found

        subscription = await self._transport.subscribe(
            group, topics, offsets=None if offsets is None else load
        )
        return MarkedSubscription(subscription, self, self.seen[reader])

    async def note_damage(self, messages: Sequence[Incoming]) -> None:
        """Reports the messages that mark damage, before a reader gets them."""
        markers = [each for each in messages if DAMAGED in each.headers]
        if markers:
            await self._note_damage(markers)

    def begin_epoch(self) -> None:
        """Makes every reader subscribe again, because the topic is another one."""
        self.epoch += 1
        for seen in self.seen.values():
            seen.last.clear()
            seen.streams.clear()


class MarkedSubscription:
    """A subscription that notes acknowledged messages."""

    def __init__(self, subscription: Subscription, transport: MarkedTransport, seen: Seen) -> None:
        self._subscription = subscription
        self._transport = transport
        self._seen = seen
        self._epoch = transport.epoch
        # Messages whose damage is not noted yet: a cancelled poll must not lose them.
        self._unnoted: list[Incoming] = []

    async def poll(self) -> list[Incoming]:
        """As `Subscription.poll`; raises `TopicReplaced` if another topic has replaced this one."""
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
        if self._epoch == self._transport.epoch:
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
        if self._epoch != self._transport.epoch:
            raise TopicReplaced("the event topic is another one now")


def _stream_of(message: Incoming | None) -> tuple[str, str] | None:
    return None if message is None else (message.key, message.headers.get("command", ""))
