"""
Which life of a topic there is at the broker, and what its queues hold: of all, or of those whose broker groups are there.

    one group       one client, and all queues or an error
    several groups  a client that goes on without groups that are away; who needs all of the topic gets an error then

Each client counts the losses of several groups by itself, so one client answers all questions. Used by `queue`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from headrace.transports.base import TopicLineage
from headrace_mq._net.address import BrokerAddress
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import NotLeader, TopicExists

__all__ = ["QueueLineage"]


class QueueLineage:
    """The topics at one address.

    Args:
        address: of the broker, or of its groups.
        ask: returns a client for which all groups must be there.

    Attributes:
        contested: the topics of which two groups had the same queue, or which they had made apart, at the last look.
    """

    def __init__(self, address: str, ask: Callable[[], Awaitable[AdminClient]]) -> None:
        self._address = address
        self._ask = ask
        self._patient: AdminClient | None = None
        self._asking = asyncio.Lock()
        self.contested: set[str] = set()

    async def whole(self, topic: str, known: Mapping[int, int] | None = None) -> TopicLineage:
        """Returns a topic's identity, and the ranges of all queues.

        Args:
            topic: its name.
            known: epochs that queues had before; `changed` says what was lost since.

        Raises:
            MessageQueueError: the broker or one of its groups is away, or there is no such topic.
        """
        found = await self.there(topic, known)
        if found.away:
            # The error says which group is away.
            await (await self._ask()).life_of(topic)
            raise NotLeader(f"queues of topic {topic!r} were away a moment ago; try again")
        return found

    async def there(self, topic: str, known: Mapping[int, int] | None = None) -> TopicLineage:
        """Returns a topic's identity, and the ranges of the queues whose groups are there; the others are away.

        Args:
            topic: its name.
            known: as of `whole`.

        Raises:
            MessageQueueError: no broker is there, there is no such topic, or groups contradict each other.
        """
        admin = await self._admin()
        try:
            life = await admin.life_of(topic, known)
        except TopicExists:
            self.contested.add(topic)
            raise
        self.contested.discard(topic)
        told = life.ranges
        ranges = {each.queue_id: (each.first, each.end) for each in told}
        return TopicLineage(
            identity=life.identity,
            epoch=life.epoch,
            lossy=life.lossy,
            ranges=ranges,
            # A broker that does not tell the start loses nothing.
            starts={each.queue_id: each.first if each.start < 0 else each.start for each in told},
            epochs={each.queue_id: each.epoch for each in told if each.epoch},
            changed={each.queue_id: each.changed_from for each in told if each.changed_from >= 0},
            away=frozenset(range(life.queues)) - ranges.keys(),
        )

    async def aclose(self) -> None:
        """Closes the connection."""
        if self._patient is not None:
            await self._patient.aclose()

    async def _admin(self) -> AdminClient:
        if len(BrokerAddress.parse(self._address).groups) <= 1:
            return await self._ask()
        async with self._asking:
            if self._patient is None:
                admin = AdminClient(self._address, patient=True)
                await admin.start()
                self._patient = admin
            return self._patient
