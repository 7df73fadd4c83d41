"""
Administration of groups and connections: members, lag, connected clients.

A part of `AdminClient`.
"""

from collections.abc import Sequence
from typing import Literal

from headrace_mq.admin.topics import TopicAdministration, portions
from headrace_mq.protocol.administration import (
    BrokerStatus,
    ConnectionDescription,
    ConnectionsAnswer,
    DescribeGroup,
    DescribeLag,
    GroupDescription,
    GroupsAnswer,
    GroupSummary,
    LagAnswer,
    ListConnections,
    ListGroups,
)
from headrace_mq.protocol.bodies import BrokerDescription
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.limits import AS_IT_IS, GroupRules, HandOverTo, NoteChange, SetGroup

__all__ = ["GroupAdministration", "Role"]

Role = Literal["", "producer", "consumer", "reader"]


class GroupAdministration(TopicAdministration):
    """The calls about groups, connections and the broker as a whole."""

    async def groups(self) -> list[GroupSummary]:
        """All groups that have members or offsets, by name, with their lag over all queues."""
        found: list[GroupSummary] = []
        more = True
        while more:
            asked = ListGroups(after=found[-1].group if found else "")
            answer = await self._ask(GroupsAnswer, RequestCode.LIST_GROUPS, asked)
            found += answer.groups
            more = answer.more
        return found

    async def group(self, group: str) -> GroupDescription:
        """A group's members and topics. Raises GroupNotFound."""
        return await self._ask(GroupDescription, RequestCode.DESCRIBE_GROUP, DescribeGroup(group))

    async def set_group(
        self, group: str, *, consume: bool | None = None, retries: int | None = None
    ) -> GroupRules:
        """Says what holds for a group, over all its members, from now on; durable.

        Args:
            group: which need not have been seen yet.
            consume: False: the broker gives it no messages; its members stay, and go on once it is
                True. What they have taken already they handle. None: as it is.
            retries: how often each `RetryingConsumer` of it tries a failed record again before that
                goes to the dead letters, from the next heartbeat on; -1: as each was set up. None: as
                it is.

        Raises:
            InvalidArgument: a value is out of its range, or the broker has too many limits.
            StoreFull: the broker's disk is full; nothing was changed.
        """
        word = "" if consume is None else "on" if consume else "off"
        asked = SetGroup(group, word, AS_IT_IS if retries is None else retries)
        return await self._ask(GroupRules, RequestCode.SET_GROUP, asked)

    async def note_change(self, what: str, *, group: str = "") -> None:
        """Writes into the audit that you change something outside of the broker; durable.

        So an operator's tool asks whether you may do that, before it does it.

        Args:
            what: in words, such as "projection pause balances".
            group: the consumer group that it belongs to; empty: it belongs to the cluster.

        Raises:
            NotPermitted: you may not `update group:NAME`; without a group, not `administer cluster`.
            StoreFull: the broker's disk is full; nothing was noted.
        """
        await self._ask(NoteChange, RequestCode.NOTE_CHANGE, NoteChange(what, group))

    async def lag(self, group: str, topics: Sequence[str]) -> LagAnswer:
        """How far behind a group is in every queue of the topics, and the broker's time.

        The end of a queue is what the broker holds at that moment; a queue in which the group
        never committed is behind by all that it holds.

        Raises:
            TopicNotFound: there is no such topic.
        """
        known = [await self.topic(topic) for topic in topics]
        answer = LagAnswer(0, [])
        for names in portions(known):
            asked = DescribeLag(group, names)
            part = await self._ask(LagAnswer, RequestCode.DESCRIBE_LAG, asked)
            answer = LagAnswer(part.now_ms, answer.queues + part.queues)
        return answer

    async def connections(self, role: Role = "") -> list[ConnectionDescription]:
        """The connections, the oldest first.

        Args:
            role: only producers, members of groups, or readers without a group.
        """
        asked = ListConnections(role)
        answer = await self._ask(ConnectionsAnswer, RequestCode.LIST_CONNECTIONS, asked)
        return answer.connections

    async def describe(self) -> BrokerDescription:
        """The broker itself: address, epoch, connections, whether it still accepts messages."""
        return await self._ask(BrokerDescription, RequestCode.DESCRIBE_BROKER)

    async def hand_over(self, to: str = "") -> str:
        """Asks the leader of a group of brokers to let a replica lead; returns its name, before it leads.

        Args:
            to: the replica's name, HOST:PORT; empty: any one in sync.

        Raises:
            InvalidArgument: the broker is in no group, or the replica is not in sync.
        """
        return (await self._ask(HandOverTo, RequestCode.HAND_OVER, HandOverTo(to))).to

    async def status(self) -> BrokerStatus:
        """What the broker holds, and what goes through it."""
        return await self._ask(BrokerStatus, RequestCode.BROKER_STATUS)
