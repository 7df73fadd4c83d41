"""
A consumer's membership in its group, and the queues that follow from it.

Joins, sends heartbeats, joins again when the connection or the membership was lost, and watches
the topics for new queues. From the group's view and the topics' sizes it computes the member's own
queues, as every other member does.

Sits between: the broker's group and `consumer`, which is told of every change.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from headrace_mq._net.link import Link
from headrace_mq._runtime.clock import Clock
from headrace_mq.client.rebalance import STRATEGIES, allocate
from headrace_mq.errors import (
    BrokerError,
    ConnectionLost,
    MessageQueueError,
    NotGroupMember,
    RequestTimeout,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    DescribeTopics,
    GroupAnswer,
    GroupChanged,
    GroupMember,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

__all__ = ["Membership"]

_log = structlog.get_logger(__name__)


class Membership:
    """One member of one group.

    Args:
        link: the connection; its client id is the member's name.
        group: the group.
        topics: what the member subscribes to; they need not exist yet.
        settings: how often to say so.
        clock: tells when to look for new queues.
        on_change: takes the member's queues after each (re)join and whenever they change.
        on_lost: called when the membership ended without our doing.

    Attributes:
        generation: of the group's newest view; -1 while the member is not in the group.
        first_seen: the queues that were there when the member first looked.
    """

    def __init__(
        self,
        link: Link,
        *,
        group: str,
        topics: Sequence[str],
        settings: ConsumerSettings,
        clock: Clock,
        on_change: Callable[[frozenset[QueueRef]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._link = link
        self._group = group
        self._topics = sorted(set(topics))
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._on_lost = on_lost
        self._members: list[GroupMember] = []
        self._queues: dict[str, int] = {}
        self._described_at_ms: int | None = None
        self._disturbed = asyncio.Event()
        self._joined = False
        self._assigned: frozenset[QueueRef] | None = None
        self.generation = -1
        self.first_seen: frozenset[QueueRef] = frozenset()

    async def join(self) -> None:
        """Enters the group; when it returns, `on_change` has told the member's queues.

        Raises:
            BrokerError: the broker refuses the member.
            ConnectionLost, RequestTimeout: nothing is known; join again.
        """
        # The answer may be read after a push of a newer view that arrived behind it.
        self.generation = -1
        self._assigned = None
        self._joined = True
        try:
            joining = JoinGroup(group=self._group, member=self._member, topics=self._topics)
            body = await self._request(RequestCode.JOIN_GROUP, encode(joining))
            answer = decode(GroupAnswer, body)
            await self._describe()
        except BaseException:
            self.lost()
            raise
        if not self._joined:
            raise ConnectionLost("the connection ended while the member joined")
        self._hear(answer.generation, answer.members)
        self._allocate()

    async def stay(self) -> None:
        """Keeps the membership alive for ever, joining again after every loss."""
        while True:
            try:
                if not self._joined:
                    await self.join()
                await self._beat()
            except MessageQueueError as error:
                if isinstance(error, RequestTimeout):
                    self._link.drop("the broker does not answer heartbeats")
                if not isinstance(error, ConnectionLost):
                    _log.warning("membership lost", group=self._group, reason=str(error))
                self.lost()
                if isinstance(error, BrokerError) and not isinstance(error, NotGroupMember):
                    await asyncio.sleep(self._settings.heartbeat_ms / 1_000)

    async def leave(self) -> None:
        """Leaves the group at once instead of by expiry."""
        if self._joined:
            self._joined = False
            leaving = LeaveGroup(group=self._group, member=self._member)
            await self._request(RequestCode.LEAVE_GROUP, encode(leaving))

    def lost(self) -> None:
        """The membership ended: the connection is gone, or the broker does not know the member."""
        if self._joined:
            self._joined = False
            self.generation = -1
            self._on_lost()
        self._disturbed.set()

    def changed(self, change: GroupChanged) -> None:
        """Takes the view of the group that the broker pushed."""
        heard = change.group == self._group and self._joined
        if heard and self._hear(change.generation, change.members):
            self._allocate()

    @property
    def _member(self) -> str:
        return self._link.client_id

    async def _request(self, code: RequestCode, body: bytes) -> memoryview:
        return await self._link.request(code, body, timeout_ms=self._settings.request_timeout_ms)

    async def _beat(self) -> None:
        """Waits for the next heartbeat's time and sends it; returns at once when disturbed."""
        self._disturbed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.heartbeat_ms / 1_000):
                await self._disturbed.wait()
        if not self._joined:
            return
        beat = Heartbeat(group=self._group, member=self._member)
        answer = decode(GroupAnswer, await self._request(RequestCode.HEARTBEAT, encode(beat)))
        grown = self._is_stale() and await self._describe()
        if self._joined and (self._hear(answer.generation, answer.members) or grown):
            self._allocate()

    def _is_stale(self) -> bool:
        if self._described_at_ms is None or len(self._queues) < len(self._topics):
            return True
        age_ms = self._clock.monotonic_ms() - self._described_at_ms
        return age_ms >= self._settings.topics_refresh_ms

    async def _describe(self) -> bool:
        """Asks for the topics' queues; returns whether they changed."""
        body = encode(DescribeTopics(topics=self._topics))
        answer = decode(TopicsAnswer, await self._request(RequestCode.DESCRIBE_TOPICS, body))
        queues = {topic.topic: topic.queues for topic in answer.topics}
        if self._described_at_ms is None:
            self.first_seen = frozenset(
                QueueRef(topic, number)
                for topic, count in queues.items()
                for number in range(count)
            )
        self._described_at_ms = self._clock.monotonic_ms()
        grown, self._queues = queues != self._queues, queues
        return grown

    def _hear(self, generation: int, members: list[GroupMember]) -> bool:
        if generation <= self.generation:
            return False
        self.generation = generation
        self._members = members
        return True

    def _allocate(self) -> None:
        assigned = allocate(
            self._member,
            members={member.member: member.topics for member in self._members},
            queues=self._queues,
            strategy=STRATEGIES[self._settings.allocation],
        )
        if assigned != self._assigned:
            self._assigned = assigned
            self._on_change(assigned)
