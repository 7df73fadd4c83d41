"""
A transport that seals messages to the event topic, and replaces foreign messages from it.

Used by all code of a process that writes or reads events; wraps the transport. It knows no reader.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from headrace.events.belief import Belief
from headrace.events.publisher import event_topic
from headrace.events.seals import Seal
from headrace.serialization import Serializer
from headrace.stores.base import EventStore
from headrace.transports.base import (
    Incoming,
    OffsetLoader,
    Outgoing,
    Place,
    QueueId,
    Report,
    Subscription,
    Transport,
)

__all__ = ["SealedSubscription", "SealedTransport", "seal_events"]


class SealedTransport:
    """Seals and checks the messages of one topic; everything else goes to the transport.

    Args:
        transport: the wrapped transport.
        topic: the event topic.
        seal: goes on messages to the topic.
        belief: finds foreign messages from the topic.
    """

    def __init__(self, transport: Transport, *, topic: str, seal: Seal, belief: Belief) -> None:
        self._transport = transport
        self._topic = topic
        self._seal = seal
        self._belief = belief

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def publish(self, message: Outgoing) -> Place:
        """As `Transport.publish`."""
        if message.topic == self._topic:
            message = self._sealed(message)
        return await self._transport.publish(message)

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        """As `Transport.publish_soon`."""
        if message.topic == self._topic:
            message = self._sealed(message)
        return self._transport.publish_soon(message, told)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> Subscription:
        """As `Transport.subscribe`."""
        subscription = await self._transport.subscribe(group, topics, offsets=offsets)
        if self._topic not in topics:
            return subscription
        return SealedSubscription(subscription, self._belief)

    async def read(self, queue: QueueId, first: int, end: int) -> AsyncIterator[list[Incoming]]:
        """As `Transport.read`; a foreign message of the topic is replaced."""
        async for messages in self._transport.read(queue, first, end):
            yield messages if queue[0] != self._topic else await self._belief.sift(messages)

    def _sealed(self, message: Outgoing) -> Outgoing:
        topic, key, body, tag, headers = message
        return Outgoing(topic, key, self._seal.put_on(body), tag, headers)


class SealedSubscription:
    """A subscription to the event topic; each foreign message is replaced by a heartbeat.

    Args:
        subscription: the wrapped subscription.
        belief: finds foreign messages.
    """

    def __init__(self, subscription: Subscription, belief: Belief) -> None:
        self._subscription = subscription
        self._belief = belief
        # Messages that are not checked yet: a cancelled poll must not lose them.
        self._unchecked: list[Incoming] = []

    async def poll(self) -> list[Incoming]:
        """As `Subscription.poll`; also raises errors of the event store, which may be away."""
        while not self._unchecked:
            self._unchecked = await self._subscription.poll()
        checked = await self._belief.sift(self._unchecked)
        self._unchecked = []
        return checked

    def ack(self, message: Incoming) -> None:
        """As `Subscription.ack`."""
        self._subscription.ack(message)

    def seek(self, queue: QueueId, offset: int) -> None:
        """As `Subscription.seek`."""
        self._unchecked = [each for each in self._unchecked if each.queue != queue]
        self._subscription.seek(queue, offset)

    async def aclose(self) -> None:
        """As `Subscription.aclose`."""
        await self._subscription.aclose()


async def seal_events(
    transport: Transport, name: str, store: EventStore, serializer: Serializer
) -> tuple[SealedTransport, Belief]:
    """Makes a transport that seals an application's events with the key of its event store.

    Args:
        transport: the application's transport.
        name: the application's name.
        store: its event store.
        serializer: decodes events.

    Returns:
        The transport, and the object that counts foreign messages.
    """
    seal = Seal(await store.identity())
    belief = Belief(seal=seal, find=store.find_stored, serializer=serializer)
    return SealedTransport(transport, topic=event_topic(name), seal=seal, belief=belief), belief
