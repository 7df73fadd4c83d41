"""
Administration of topics and queues: create, grow, describe, freeze, delete.

Used by `groups`, which builds on it; a part of `AdminClient`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace_mq.admin.connection import AdminConnection
from headrace_mq.errors import TopicNotFound
from headrace_mq.message import QUEUES_PER_TOPIC_MAX
from headrace_mq.protocol.administration import (
    DeleteQueues,
    DescribeQueues,
    FreezeQueues,
    QueueDeletions,
    QueueDescription,
    QueuesAnswer,
)
from headrace_mq.protocol.bodies import (
    CreateTopic,
    DescribeTopics,
    KnownEpoch,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    TopicDescription,
    TopicIdentity,
    TopicsAnswer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.keys import topics_in_parts
from headrace_mq.protocol.releases import QueueRelease, ReleaseAnswer, ReleaseMessages

__all__ = ["TopicAdministration", "TopicLife", "portions"]


class TopicLife(NamedTuple):
    """A topic at one moment.

    Attributes:
        identity: a UUID, made with the topic; see `TopicAdministration.lineage`.
        ranges: of its queues.
        epoch: of the broker that says this; 0: it is of a version that does not know.
        lossy: the epoch in which the broker's group last lost messages; 0: it never did. If it is later than an epoch that you
            were served in, other messages may stand at the offsets that you know. If the address names several groups, both
            are this client's count of their losses; compare those of one client only.
        queues: how many there are over all groups of brokers; a patient client may have ranges of fewer.
    """

    identity: str
    ranges: list[QueueRange]
    epoch: int
    lossy: int
    queues: int


class TopicAdministration(AdminConnection):
    """The calls about topics and their queues."""

    async def create_topic(
        self, topic: str, queues: int = 0, retention: str = "transient"
    ) -> TopicDescription:
        """Creates a topic, or confirms that it exists with at least these settings.

        Args:
            topic: its name.
            queues: how many; 0 for the broker's choice.
            retention: "forever", "transient" (deleted by age), or "compact" (the last message of
                each key is kept).

        Raises:
            TopicExists: it exists with other settings.
            InvalidArgument: a value is out of its range.
        """
        asked = CreateTopic(topic=topic, queues=queues, retention=retention)
        answer = await self._ask(TopicsAnswer, RequestCode.CREATE_TOPIC, asked)
        return answer.topics[0]

    async def own_queues(
        self, topic: str, queues: int, retention: str, owned: Sequence[int], identity: str
    ) -> TopicDescription:
        """Says which queues of a topic this broker group has; durable. `spread.spread_topic` says it to all groups.

        Args:
            topic: its name.
            queues: how many all groups have together.
            retention: as of `create_topic`.
            owned: the numbers of this group's queues: those that it has, and new ones.
            identity: the UUID that the topic has in all groups.

        Raises:
            InvalidArgument: the group would lose a queue, or get one that may be another group's.
            TopicExists: there is another topic of the name.
        """
        asked = CreateTopic(topic, queues, retention, list(owned), identity)
        return (await self._ask(TopicsAnswer, RequestCode.CREATE_TOPIC, asked)).topics[0]

    async def add_queues(self, topic: str, queues: int) -> TopicDescription:
        """Lets an existing topic have at least this many queues in all; durable.

        Producers and consumers find the new queues by themselves within seconds. From then on a
        key may belong to another queue than before. Its messages are stored in their order; they
        are handled in it if consumers have handled what the old queue holds.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: the number is out of its range.
        """
        known = await self.topic(topic)
        return await self.create_topic(topic, queues, known.retention)

    async def topics(self) -> list[TopicDescription]:
        """All topics, by name."""
        answer = await self._ask(TopicsAnswer, RequestCode.DESCRIBE_TOPICS, DescribeTopics())
        return sorted(answer.topics, key=lambda topic: topic.topic)

    async def topic(self, topic: str) -> TopicDescription:
        """One topic. Raises TopicNotFound."""
        asked = DescribeTopics(topics=[topic])
        answer = await self._ask(TopicsAnswer, RequestCode.DESCRIBE_TOPICS, asked)
        if not answer.topics:
            raise TopicNotFound(
                f"there is no topic {topic!r}; create it first, or correct the name"
            )
        return answer.topics[0]

    async def ranges(self, topics: Sequence[str]) -> list[QueueRange]:
        """The lowest offset held and the next readable one of every queue of the topics."""
        found: list[QueueRange] = []
        for names in topics_in_parts(topics):
            asked = QueueRanges(topics=names)
            answer = await self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, asked)
            found += answer.ranges
        return found

    async def lineage(self, topic: str) -> tuple[str, list[QueueRange]]:
        """A topic's identity, a UUID made with it, and the ranges of its queues at that moment.

        A topic that is deleted and made again, or a broker whose directory was lost, has another
        one; a copy of the directory that takes its place has the same. Empty: the broker is of a
        version that does not know.

        Raises:
            TopicNotFound: there is no such topic.
        """
        life = await self.life_of(topic)
        return life.identity, life.ranges

    async def life_of(self, topic: str, known: Mapping[int, int] | None = None) -> TopicLife:
        """A topic's identity and ranges, and the epochs of its broker, all at one moment.

        Args:
            topic: its name.
            known: by number of the queue, the `epoch` of a range that you had before; `changed_from` of the ranges then
                says where messages have changed since.

        A patient client gets the ranges of those queues whose broker groups are there.

        Raises:
            TopicNotFound: there is no such topic.
        """
        epochs = [KnownEpoch(topic, number, epoch) for number, epoch in (known or {}).items()]
        asked = QueueRanges(topics=[topic], known=epochs)
        answer = await self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, asked)
        told, ranges = next(iter(answer.identities), TopicIdentity(topic, "")), answer.ranges
        count = max(told.queues, len(ranges))
        return TopicLife(told.identity, ranges, answer.epoch, answer.lossy, count)

    async def queues(self, topics: Sequence[TopicDescription]) -> list[QueueDescription]:
        """The state of every queue of the topics. Raises TopicNotFound."""
        found: list[QueueDescription] = []
        for names in portions(topics):
            asked = DescribeQueues(topics=names)
            answer = await self._ask(QueuesAnswer, RequestCode.DESCRIBE_QUEUES, asked)
            found += answer.queues
        return found

    async def freeze(
        self,
        topic: str,
        queues: Sequence[int] = (),
        *,
        writing: bool = False,
        reading: bool = False,
    ) -> TopicDescription:
        """Freezes queues for writing, for reading, or both; durable.

        Args:
            topic: an existing topic.
            queues: their numbers; none means all of the topic's.
            writing: no message is taken any more; producers send to the other queues.
            reading: consumers get nothing, as if no message came.

        Raises:
            TopicNotFound, QueueNotFound: the topic or a queue does not exist.
            InvalidArgument: neither writing nor reading is meant.
        """
        asked = FreezeQueues(topic, list(queues), writing, reading, frozen=True)
        return (await self._ask(TopicsAnswer, RequestCode.FREEZE_QUEUES, asked)).topics[0]

    async def thaw(
        self,
        topic: str,
        queues: Sequence[int] = (),
        *,
        writing: bool = True,
        reading: bool = True,
    ) -> TopicDescription:
        """Takes back what `freeze` did; raises what it raises."""
        asked = FreezeQueues(topic, list(queues), writing, reading, frozen=False)
        return (await self._ask(TopicsAnswer, RequestCode.FREEZE_QUEUES, asked)).topics[0]

    async def delete_queues(
        self, topic: str, keep: int = 0, *, dry_run: bool = False
    ) -> QueueDeletions:
        """Deletes a topic, or its queues from number `keep` on; durable.

        They must be frozen for writing and reading, and every group must have consumed them.
        Their messages are gone for everyone at once; the disk is freed with their segments.

        Args:
            topic: an existing topic.
            keep: how many queues stay; with 0 the topic goes.
            dry_run: only tell what would go and what hinders.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: it has not that many queues.
            TopicInUse: something hinders; nothing was deleted.
        """
        asked = DeleteQueues(topic=topic, keep=keep, dry_run=dry_run)
        return await self._ask(QueueDeletions, RequestCode.DELETE_QUEUES, asked)

    async def release(
        self, topic: str, before: Mapping[int, int], *, dry_run: bool = False
    ) -> ReleaseAnswer:
        """Lets the broker delete messages of a topic kept forever; durable.

        They go with their segment, once every topic kept forever has released what it has in it. Readers
        that keep offsets of their own, as projections do, are not asked: look at them first.

        Args:
            topic: an existing topic.
            before: by number of the queue the offset below which messages may go.
            dry_run: only tell what hinders.

        Raises:
            TopicNotFound, QueueNotFound: an entry names what does not exist.
            InvalidArgument: the topic is not kept forever, or the broker has an archive.
            OffsetOutOfRange: an offset is beyond its queue's end.
            TopicInUse: a group has not consumed the messages; nothing was released.
        """
        queues = [QueueRelease(number, offset) for number, offset in sorted(before.items())]
        asked = ReleaseMessages(topic, queues, dry_run)
        return await self._ask(ReleaseAnswer, RequestCode.RELEASE_MESSAGES, asked)


def portions(topics: Sequence[TopicDescription]) -> list[list[str]]:
    """Splits topics so that one request asks for as many queues as a broker describes at once."""
    portions: list[list[str]] = []
    room = 0
    for topic in topics:
        if topic.queues > room:
            portions.append([])
            room = QUEUES_PER_TOPIC_MAX
        portions[-1].append(topic.topic)
        room -= topic.queues
    return portions
