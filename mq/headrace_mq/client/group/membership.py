"""
A consumer's membership in its group, and the queues that the member owns.

Joins, sends heartbeats, joins again when the connection or the membership was lost, and watches
the topics for new and frozen queues. From the group's view and the topics' sizes it computes the
member's own queues, as every other member does.

Used by `Consumer`, which it calls on every change.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace_mq._net.link import Link
from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.group.allocation import Strategy, sticky
from headrace_mq.client.group.rebalance import allocate
from headrace_mq.client.group.rules import CurrentGroupRules
from headrace_mq.client.names import member_of
from headrace_mq.client.spread.topic_map import require_whole
from headrace_mq.errors import (
    BrokerError,
    ConnectionLost,
    InconsistentGroup,
    MessageQueueError,
    NameTaken,
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
    HeldQueues,
    JoinGroup,
    LeaveGroup,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

__all__ = ["Listeners", "Membership", "Subscription"]

# What the broker passes on of a member's queues; holding more only moves more.
HELD_QUEUES_MAX = 1_024

_log = get_logger(__name__)


class Subscription(NamedTuple):
    """What a member joins: a group, for some topics, whose queues are divided by a strategy.

    `contract` is what all members have to do alike, as `contract_of` words it; `rules` hear what an
    operator said of the group.
    """

    group: str
    topics: Sequence[str]
    strategy: Strategy
    contract: dict[str, str]
    rules: CurrentGroupRules


class Listeners(NamedTuple):
    """What is called when a membership changes.

    on_change takes the member's queues after each (re)join and whenever they change; on_lost is
    called when the membership ended without our doing; on_error takes what the strategy raised, the
    queues then stay as they are; on_beat takes the moment an answered heartbeat was sent.
    """

    on_change: Callable[[frozenset[QueueRef]], None]
    on_lost: Callable[[], None]
    on_error: Callable[[Exception], None]
    on_beat: Callable[[int], None]


class Membership:
    """One member of one group.

    Args:
        link: the connection.
        subscription: what it joins; the topics need not exist yet.
        settings: how often to say so.
        clock: tells when to look for new queues, and when heartbeats were sent.
        listeners: called on changes.

    Attributes:
        generation: of the group's newest view; -1 while the member is not in the group.
        first_seen: the queues that were there when the member first looked.
    """

    def __init__(
        self,
        link: Link,
        subscription: Subscription,
        *,
        settings: ConsumerSettings,
        clock: Clock,
        listeners: Listeners,
    ) -> None:
        self._link = link
        self._group = subscription.group
        self._member = member_of(settings, link.client_id)
        # Any name that was not chosen is no other client's, and keeps no place.
        self._away_ms = settings.away_ms if settings.name else -1
        self._topics = sorted(set(subscription.topics))
        self._strategy = subscription.strategy
        self._contract = subscription.contract
        self._rules = subscription.rules
        self._settings = settings
        # Without locks the broker cannot see whose a queue is.
        self._reports = self._strategy is sticky or settings.handling == "parallel"
        self._clock = clock
        self._listeners = listeners
        # What this member held last, also while it is not in the group.
        self._held: frozenset[QueueRef] = frozenset()
        self._members: list[GroupMember] = []
        self._queues: dict[str, int] = {}
        # Those that are frozen for reading: no member gets them, as it would only wait.
        self._frozen: frozenset[QueueRef] = frozenset()
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
            joining = JoinGroup(
                self._group,
                self._member,
                self._topics,
                self._report(),
                self._contract,
                self._away_ms,
            )
            body = await self._request(RequestCode.JOIN_GROUP, encode(joining))
            answer = decode(GroupAnswer, body)
            await self._describe()
        except BaseException:
            self.lost()
            raise
        if not self._joined:
            raise ConnectionLost("the connection ended while the member joined")
        self._rules.hear(answer)
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
                    _log.warning(
                        "membership lost; the consumer joins again",
                        group=self._group,
                        reason=str(error),
                    )
                self.lost()
                if isinstance(error, InconsistentGroup | NameTaken):
                    self._listeners.on_error(error)
                if isinstance(error, BrokerError) and not isinstance(error, NotGroupMember):
                    await asyncio.sleep(self._settings.heartbeat_ms / 1_000)

    async def leave(self) -> None:
        """Leaves the group at once instead of by expiry; one whose place is kept only goes away."""
        if self._joined:
            self._joined = False
            leaving = LeaveGroup(self._group, self._member, self._away_ms > 0)
            await self._request(RequestCode.LEAVE_GROUP, encode(leaving))

    def lost(self) -> None:
        """The membership ended: the connection is gone, or the broker does not know the member."""
        if self._joined:
            self._joined = False
            self.generation = -1
            self._listeners.on_lost()
        self._disturbed.set()

    def changed(self, change: GroupChanged) -> None:
        """Takes the view of the group that the broker pushed."""
        heard = change.group == self._group and self._joined
        if heard and self._hear(change.generation, change.members):
            self._allocate()

    async def _request(self, code: RequestCode, body: bytes) -> memoryview:
        return await self._link.request(code, body, timeout_ms=self._settings.request_timeout_ms)

    async def _beat(self) -> None:
        """Waits for the next heartbeat's time and sends it; returns at once when disturbed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.heartbeat_ms / 1_000):
                await self._disturbed.wait()
        self._disturbed.clear()
        if not self._joined:
            return
        beat = Heartbeat(self._group, self._member, self._report())
        sent_at_ms = self._clock.monotonic_ms()
        answer = decode(GroupAnswer, await self._request(RequestCode.HEARTBEAT, encode(beat)))
        self._listeners.on_beat(sent_at_ms)
        self._rules.hear(answer)
        changed = self._is_stale() and await self._describe()
        if self._joined and (self._hear(answer.generation, answer.members) or changed):
            self._allocate()

    def _is_stale(self) -> bool:
        if self._described_at_ms is None or len(self._queues) < len(self._topics):
            return True
        age_ms = self._clock.monotonic_ms() - self._described_at_ms
        return age_ms >= self._settings.topics_refresh_ms

    async def _describe(self) -> bool:
        """Asks for the topics' queues; returns whether they, or those frozen, changed."""
        body = encode(DescribeTopics(topics=self._topics))
        answer = decode(TopicsAnswer, await self._request(RequestCode.DESCRIBE_TOPICS, body))
        queues = {name: topic.queues for name, topic in require_whole(answer.topics).items()}
        frozen = frozenset(
            QueueRef(topic.topic, number) for topic in answer.topics for number in topic.unreadable
        )
        if self._described_at_ms is None:
            self.first_seen = frozenset(
                QueueRef(topic, number)
                for topic, count in queues.items()
                for number in range(count)
            )
        self._described_at_ms = self._clock.monotonic_ms()
        changed = (queues, frozen) != (self._queues, self._frozen)
        self._queues, self._frozen = queues, frozen
        return changed

    def _hear(self, generation: int, members: list[GroupMember]) -> bool:
        if generation <= self.generation:
            return False
        self.generation = generation
        self._members = members
        return True

    def _allocate(self) -> None:
        try:
            assigned = allocate(
                self._member,
                members={member.member: member.topics for member in self._members},
                queues=self._queues,
                strategy=self._strategy,
                held={member.member: _queues(member.held) for member in self._members},
                frozen=self._frozen,
            )
        except Exception as error:  # noqa: BLE001 - the strategy may be the application's
            _log.exception("the allocation strategy failed", group=self._group)
            self._listeners.on_error(error)
            return
        if assigned != self._assigned:
            self._assigned = self._held = assigned
            if self._reports:
                # The next view should have what each member holds now.
                self._disturbed.set()
            self._listeners.on_change(assigned)

    def _report(self) -> list[HeldQueues]:
        """The queues that this member reports: for a sticky allocation, and for `group show`."""
        if not self._reports:
            return []
        topics: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self._held)[:HELD_QUEUES_MAX]:
            topics.setdefault(topic, []).append(queue_id)
        return [HeldQueues(topic, queue_ids) for topic, queue_ids in topics.items()]


def _queues(held: Sequence[HeldQueues]) -> list[QueueRef]:
    return [QueueRef(one.topic, number) for one in held for number in one.queue_ids]
