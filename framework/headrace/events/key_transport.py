"""
A transport that reads the keys of personal fields before it hands over messages.

Keys in a database are read for all messages of a poll at once. While the database is away, the poll fails and
is repeated: no message is decoded without its keys. Used by services; wraps the transport.
"""

from collections.abc import Sequence
from typing import Any, cast

from headrace.serialization import Serializer
from headrace.subjects.cipher import FieldCipher
from headrace.transports.base import Incoming, OffsetLoader, QueueId, Subscription, Transport

__all__ = ["KeySubscription", "KeyTransport", "with_keys"]


class KeyTransport:
    """Reads keys ahead for its subscriptions; all else is the transport's own.

    Args:
        transport: the wrapped transport.
        cipher: reads the keys.
    """

    def __init__(self, transport: Transport, cipher: FieldCipher) -> None:
        self._transport = transport
        self._cipher = cipher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> Subscription:
        """As `Transport.subscribe`."""
        subscription = await self._transport.subscribe(group, topics, offsets=offsets)
        return KeySubscription(subscription, self._cipher)


class KeySubscription:
    """A subscription whose messages come when their keys are here.

    Args:
        subscription: the wrapped subscription.
        cipher: reads the keys.
    """

    def __init__(self, subscription: Subscription, cipher: FieldCipher) -> None:
        self._subscription = subscription
        self._cipher = cipher
        # Messages whose keys are not here yet: a cancelled poll must not lose them.
        self._waiting: list[Incoming] = []

    async def poll(self) -> list[Incoming]:
        """As `Subscription.poll`; also raises SubjectKeysAway."""
        while not self._waiting:
            self._waiting = await self._subscription.poll()
        await self._cipher.find_ahead(each.body for each in self._waiting)
        messages, self._waiting = self._waiting, []
        return messages

    def ack(self, message: Incoming) -> None:
        """As `Subscription.ack`."""
        self._subscription.ack(message)

    def seek(self, queue: QueueId, offset: int) -> None:
        """As `Subscription.seek`."""
        self._waiting = [each for each in self._waiting if each.queue != queue]
        self._subscription.seek(queue, offset)

    async def aclose(self) -> None:
        """As `Subscription.aclose`."""
        await self._subscription.aclose()


def with_keys(transport: Transport, serializer: Serializer) -> Transport:
    """Returns a transport that reads keys ahead; the same one where no message has personal fields."""
    cipher = serializer.cipher
    if cipher is None:
        return transport
    return cast("Transport", KeyTransport(transport, cipher))
