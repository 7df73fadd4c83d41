"""
All queues of some topics, for a broadcast consumer, which shares them with no other consumer.

It has the methods of a `Membership`, so that a consumer treats both alike. The broker knows of no
group and no member.

Used by `Consumer`, which it calls on every change.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from headrace_mq._net.link import Link
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.group.membership import Listeners
from headrace_mq.client.spread.topic_map import require_whole
from headrace_mq.errors import ConnectionLost, MessageQueueError, RequestTimeout
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    DescribeTopics,
    GroupChanged,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

__all__ = ["BroadcastQueues"]

_log = get_logger(__name__)


class BroadcastQueues:
    """One broadcast consumer's view of its topics.

    Args:
        link: the connection.
        topics: which topics; they need not exist yet.
        settings: how often to look for new queues.
        listeners: called on changes; without a group there are no heartbeats and no strategy.

    Attributes:
        generation: grows with each connection; -1 while there is none.
        first_seen: the queues that were there when the consumer first looked.
    """

    def __init__(
        self,
        link: Link,
        topics: Sequence[str],
        *,
        settings: ConsumerSettings,
        listeners: Listeners,
    ) -> None:
        self._link = link
        self._topics = sorted(set(topics))
        self._settings = settings
        self._listeners = listeners
        self._disturbed = asyncio.Event()
        self._joins = 0
        self._assigned: frozenset[QueueRef] | None = None
        self._looked = False
        self._missing = True
        self.generation = -1
        self.first_seen: frozenset[QueueRef] = frozenset()

    async def join(self) -> None:
        """Looks at the topics; when it returns, `on_change` has told their queues.

        Raises:
            BrokerError, ConnectionLost, RequestTimeout: nothing is known; join again.
        """
        queues = await self._look()
        if not self._link.is_up:
            raise ConnectionLost("the connection ended while the consumer looked at its topics")
        self._joins += 1
        self.generation = self._joins
        self._assigned = queues
        self._listeners.on_change(queues)

    async def stay(self) -> None:
        """Looks for new queues for ever, and joins again after every loss."""
        while True:
            try:
                if self.generation < 0:
                    await self.join()
                await self._wait()
                if self.generation >= 0:
                    self._change(await self._look())
            except MessageQueueError as error:
                if isinstance(error, RequestTimeout):
                    self._link.drop("the broker does not answer")
                if not isinstance(error, ConnectionLost):
                    _log.warning(
                        "topics could not be found; the consumer tries again",
                        topics=self._topics,
                        reason=str(error),
                    )
                    await asyncio.sleep(self._settings.heartbeat_ms / 1_000)

    async def leave(self) -> None:
        """Does nothing: the broker knows of no member."""

    def lost(self) -> None:
        """The connection is gone."""
        if self.generation >= 0:
            self.generation = -1
            self._listeners.on_lost()
        self._disturbed.set()

    def changed(self, change: GroupChanged) -> None:
        """Groups do not matter here."""

    async def _wait(self) -> None:
        pause_ms = self._settings.topics_refresh_ms
        if self._missing:
            pause_ms = min(pause_ms, self._settings.heartbeat_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1_000):
                await self._disturbed.wait()
        self._disturbed.clear()

    async def _look(self) -> frozenset[QueueRef]:
        body = encode(DescribeTopics(topics=self._topics))
        answer = await self._link.request(
            RequestCode.DESCRIBE_TOPICS, body, timeout_ms=self._settings.request_timeout_ms
        )
        topics = require_whole(decode(TopicsAnswer, answer).topics).values()
        self._missing = len(topics) < len(self._topics)
        queues = frozenset(
            QueueRef(topic.topic, number) for topic in topics for number in range(topic.queues)
        )
        if not self._looked:
            self._looked, self.first_seen = True, queues
        return queues

    def _change(self, queues: frozenset[QueueRef]) -> None:
        if self.generation >= 0 and queues != self._assigned:
            self._assigned = queues
            self._listeners.on_change(queues)
