"""
Reads topics whose queues are in several broker groups: one reader for each group, opened when it is needed.

You learn what a topic holds for all of its queues or not at all: a rebuild of a part would look whole.

Used by `BlockingReader`, from one thread at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from headrace_mq._net.address import BrokerAddress
from headrace_mq.client.spread.merge import same_identity
from headrace_mq.client.spread.topic_map import TopicMap, both_have
from headrace_mq.errors import QueueElsewhere, QueueNotFound, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns
from headrace_mq.protocol.bodies import QueueRange, QueueRangesAnswer, TopicIdentity

__all__ = ["GroupReaders", "OneGroup", "require_all"]


class OneGroup(Protocol):
    """What reads in one broker group."""

    def held(self, topic: str, known: Mapping[QueueRef, int] | None = None) -> QueueRangesAnswer:
        """What the group has of a topic. Raises TopicNotFound."""
        ...

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        """As of `BlockingReader`."""
        ...

    def committed(self, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
        """As of `BlockingReader`."""
        ...

    def commit(self, group: str, offsets: Mapping[QueueRef, int]) -> None:
        """As of `BlockingReader`."""
        ...

    def read(
        self,
        queue: QueueRef,
        start: int,
        end: int,
        *,
        bytes_max: int,
        wanted: Callable[[BatchHeader], bool] | None,
    ) -> Iterator[tuple[BatchHeader, Columns, int, int]]:
        """As of `BlockingReader`."""
        ...

    def close(self) -> None:
        """Closes its connection."""
        ...


class GroupReaders:
    """The readers of the broker groups that an address names.

    Args:
        address: names the groups.
        connect: opens the reader of one group.
    """

    def __init__(self, address: BrokerAddress, connect: Callable[[str], OneGroup]) -> None:
        self._addresses = {group: str(one) for group, one in address.of_each_group().items()}
        self._connect = connect
        self._readers: dict[str, OneGroup] = {}
        self._holders: dict[str, dict[int, str]] = {}

    def close(self) -> None:
        """Closes all connections."""
        for reader in self._readers.values():
            reader.close()

    def ranges(
        self, topics: Sequence[str], known: Mapping[QueueRef, int] | None = None
    ) -> list[QueueRange]:
        """As of `BlockingReader`, in the order of topics and queues."""
        return [each for topic in dict.fromkeys(topics) for each in self._look(topic, known)[0]]

    def identity(self, topic: str) -> TopicIdentity:
        """What all groups say of a topic."""
        return self._look(topic)[1]

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        """As of `BlockingReader`."""
        return self._of_topics(topics, lambda reader, mine: reader.offsets_at(mine, time_ms))

    def committed(self, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
        """As of `BlockingReader`."""
        return self._of_topics(topics, lambda reader, mine: reader.committed(group, mine))

    def commit(self, group: str, offsets: Mapping[QueueRef, int]) -> None:
        """As of `BlockingReader`; each broker group stores its own, all or none."""
        parts: dict[str, dict[QueueRef, int]] = {}
        for queue, offset in offsets.items():
            parts.setdefault(self._holder(queue), {})[queue] = offset
        for place, part in parts.items():
            self._reader(place).commit(group, part)

    def read(
        self,
        queue: QueueRef,
        start: int,
        end: int,
        *,
        bytes_max: int,
        wanted: Callable[[BatchHeader], bool] | None,
    ) -> Iterator[tuple[BatchHeader, Columns, int, int]]:
        """As of `BlockingReader`."""
        reader = self._reader(self._holder(queue))
        return reader.read(queue, start, end, bytes_max=bytes_max, wanted=wanted)

    def _reader(self, group: str) -> OneGroup:
        reader = self._readers.get(group)
        if reader is None:
            reader = self._readers[group] = self._connect(self._addresses[group])
        return reader

    def _holder(self, queue: QueueRef) -> str:
        if queue.queue_id not in self._holders.get(queue.topic, {}):
            self._look(queue.topic)
        holder = self._holders[queue.topic].get(queue.queue_id)
        if holder is None:
            raise QueueNotFound(f"topic {queue.topic!r} has no queue {queue.queue_id}")
        return holder

    def _look(
        self, topic: str, known: Mapping[QueueRef, int] | None = None
    ) -> tuple[list[QueueRange], TopicIdentity]:
        ranges: dict[int, QueueRange] = {}
        identities: list[TopicIdentity] = []
        holders: dict[int, str] = {}
        for group in TopicMap(list(self._addresses)).places([topic]):
            try:
                held = self._reader(group).held(topic, known)
            except TopicNotFound:
                continue
            identities += held.identities
            for each in held.ranges:
                other = holders.setdefault(each.queue_id, group)
                if other != group:
                    raise both_have(other, group, QueueRef(topic, each.queue_id))
                ranges[each.queue_id] = each
        if not holders:
            raise TopicNotFound(
                f"there is no topic {topic!r} in the broker groups {', '.join(self._addresses)}; correct the name"
            )
        self._holders[topic] = holders
        found = [ranges[number] for number in sorted(ranges)]
        (identity,) = same_identity(identities) or [TopicIdentity(topic, "")]
        require_all(found, [identity])
        return found, identity

    def _of_topics(
        self,
        topics: Sequence[str],
        ask: Callable[[OneGroup, list[str]], dict[QueueRef, int]],
    ) -> dict[QueueRef, int]:
        parts: dict[str, list[str]] = {}
        for topic in dict.fromkeys(topics):
            self._look(topic)
            for group in dict.fromkeys(self._holders[topic].values()):
                parts.setdefault(group, []).append(topic)
        found: dict[QueueRef, int] = {}
        for group, mine in parts.items():
            found |= ask(self._reader(group), mine)
        return found


def require_all(ranges: Sequence[QueueRange], identities: Sequence[TopicIdentity]) -> None:
    """Raises QueueElsewhere unless all queues of the topics are there."""
    for each in identities:
        count = sum(one.topic == each.topic for one in ranges)
        if count < each.queues:
            raise QueueElsewhere(
                f"topic {each.topic!r} has {each.queues} queues, and the broker groups of the address have {count} of them;"
                " name all groups of the topic, as in nameserver://HOST:9875/CLUSTER/g1,g2"
            )
