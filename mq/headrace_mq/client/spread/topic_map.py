"""
Which broker group has which queue of a topic, as the groups say. PURE.

    g1: orders, 8 queues, of which 0-3 ─┐
    g2: orders, 8 queues, of which 4-7 ─┴─▶ orders has 8 queues; 5 is in g2
    g1: audit, 1 queue ────────────────────▶ audit is whole, in g1

What a group said last stays good while it is away. Once it is back, its word about spread topics is in doubt until it says it
again: a disk that is empty would take messages for a topic of its own. Used by `spread_link`.
"""

from collections.abc import Collection, Sequence

from headrace_mq.errors import QueueElsewhere, TopicExists
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import TopicDescription

__all__ = ["TopicMap", "both_have", "require_whole"]

# Topics of the queue itself: each group may have its own, and that of the first group is meant.
_OWN = "%"


class TopicMap:
    """What all groups of an address say of topics.

    Args:
        groups: their names; topics of the queue itself are those of the first one.
    """

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups
        self._said: dict[str, dict[str, TopicDescription]] = {}
        self._owners: dict[str, dict[int, str]] = {}
        self._doubted: dict[str, set[str]] = {}

    @property
    def topics(self) -> list[str]:
        """The names of all topics that are known."""
        return sorted(self._said)

    def hear(
        self, group: str, asked: Collection[str], answer: Collection[TopicDescription]
    ) -> None:
        """Takes what a group said of the topics that it was asked for; of none means of all.

        Args:
            group: its name.
            asked: the topics; those that are not in the answer are not there.
            answer: of DESCRIBE_TOPICS.
        """
        told = {each.topic: each for each in answer}
        for topic in {*(asked or self._said), *told}:
            said = self._said.setdefault(topic, {})
            if topic in told:
                said[group] = told[topic]
            else:
                said.pop(group, None)
            if not said:
                del self._said[topic]
            self._owners.pop(topic, None)
            self._doubted.get(group, set()).discard(topic)

    def doubt(self, group: str) -> None:
        """A group is connected again, and may have lost its disk: `doubted` has its spread topics until it is heard."""
        mine = [topic for topic, said in self._said.items() if group in said]
        self._doubted[group] = {topic for topic in mine if self.is_spread(topic)}

    def doubted(self, group: str) -> list[str]:
        """The spread topics that a group has not described over its connection."""
        return sorted(self._doubted.get(group, ()))

    def is_doubted(self, group: str, topic: str) -> bool:
        """Whether a topic is one of `doubted`."""
        return topic in self._doubted.get(group, ())

    def holders(self, topic: str) -> list[str]:
        """The groups that have queues of a topic, in the order of the address."""
        said = self._said.get(topic, {})
        return [group for group in self.places([topic]) if group in said]

    def places(self, topics: Collection[str]) -> list[str]:
        """The groups that may have one of these topics, in the order of the address."""
        if all(topic.startswith(_OWN) for topic in topics):
            return list(self._groups[:1] if topics else ())
        return list(self._groups)

    def owner(self, queue: QueueRef) -> str | None:
        """The group that has a queue; None: none that is known. Raises TopicExists as `merged`."""
        owners = self._owners.get(queue.topic)
        if owners is None:
            owners = self._owners[queue.topic] = self._owners_of(queue.topic)
        return owners.get(queue.queue_id)

    def merged(self, topic: str) -> TopicDescription | None:
        """A topic as if one group had all of its queues; None: no group has it.

        Raises:
            TopicExists: two groups have the same queue, or topics of one name that differ.
        """
        holders = self.holders(topic)
        if not holders:
            return None
        self.owner(QueueRef(topic, 0))
        said = [self._said[topic][group] for group in holders]
        kinds = {each.retention for each in said}
        if len(kinds) > 1:
            raise TopicExists(
                f"groups {' and '.join(holders)} have topics {topic!r} of the kinds {' and '.join(sorted(kinds))}: they"
                " are not one topic; use another name, or delete it in one of them"
            )
        return TopicDescription(
            topic,
            max(each.queues for each in said),
            said[0].retention,
            sorted({number for each in said for number in each.unwritable}),
            sorted({number for each in said for number in each.unreadable}),
        )

    def is_spread(self, topic: str) -> bool:
        """Whether groups have parts of a topic."""
        return any(self._said[topic][group].owned for group in self.holders(topic))

    def unowned(self, topic: str) -> list[int]:
        """The queues of a topic that no known group has."""
        found = self.merged(topic)
        count = 0 if found is None else found.queues
        return [number for number in range(count) if self.owner(QueueRef(topic, number)) is None]

    def _owners_of(self, topic: str) -> dict[int, str]:
        owners: dict[int, str] = {}
        for group in self.holders(topic):
            said = self._said[topic][group]
            for number in said.owned or range(said.queues):
                other = owners.setdefault(number, group)
                if other != group:
                    raise both_have(other, group, QueueRef(topic, number))
        return owners


def both_have(one: str, other: str, queue: QueueRef) -> TopicExists:
    """What is wrong if two groups have the same queue."""
    return TopicExists(
        f"groups {one} and {other} both have queue {queue.topic}/{queue.queue_id}: delete the topic in one of them, or name only"
        " the other one in the address"
    )


def require_whole(topics: Collection[TopicDescription]) -> dict[str, TopicDescription]:
    """Returns topics by name, for a client that knows one group.

    Raises:
        QueueElsewhere: one is spread over several groups, so that the client would see a part of it.
    """
    for each in topics:
        if each.owned:
            raise QueueElsewhere(
                f"topic {each.topic!r} is spread over several broker groups, and the address names one; name all of them,"
                " as in nameserver://HOST:9875/CLUSTER/g1,g2"
            )
    return {each.topic: each for each in topics}
