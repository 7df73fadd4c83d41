"""
What `topics.json` holds of topics: their queues, what is frozen, and where deleted queues ended.

Used by `topics`, and by what repairs the file. Plain values.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import TopicDescription

__all__ = [
    "KeptGrave",
    "KeptTopic",
    "KeptTopics",
    "count",
    "description_of",
    "graves_within",
    "identities_of",
    "start_of",
]


class KeptTopic(msgspec.Struct, frozen=True, omit_defaults=True):
    """One topic as the file holds it; queue numbers in order.

    `settled`: each key has had one queue since the topic was made. An older file says it of no topic.
    `owned`: of a topic that is spread over broker groups, the queues of this group; empty: all of them are here.
    Queues of other groups count as frozen, so that no message ever gets into them here.
    """

    queues: int
    retention: str
    unwritable: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()
    settled: bool = False
    owned: tuple[int, ...] = ()

    @property
    def numbers(self) -> Sequence[int]:
        """The queues that this broker has."""
        return self.owned or range(self.queues)

    @property
    def foreign(self) -> frozenset[int]:
        """The queues that other broker groups have."""
        return frozenset(range(self.queues)).difference(self.owned) if self.owned else frozenset()


class KeptGrave(msgspec.Struct, frozen=True):
    """The deleted queues of a topic: number -> the offset behind what they held.

    `retention` names the log that the messages stand in; a queue cannot change it.
    """

    retention: str
    ends: dict[int, int]


class KeptTopics(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of `topics.json`; older files hold no identities, and each topic gets one."""

    topics: dict[str, KeptTopic]
    graves: dict[str, KeptGrave] = {}
    identities: dict[str, str] = {}


def description_of(topic: str, kept: KeptTopic) -> TopicDescription:
    """Returns what clients hear of a topic: of its frozen queues, those of this group."""
    unwritable, unreadable = list(kept.unwritable), list(kept.unreadable)
    if kept.owned:
        mine = frozenset(kept.owned)
        unwritable = [number for number in unwritable if number in mine]
        unreadable = [number for number in unreadable if number in mine]
    return TopicDescription(
        topic, kept.queues, kept.retention, unwritable, unreadable, list(kept.owned)
    )


def start_of(graves: Mapping[str, KeptGrave], queue: QueueRef) -> int:
    """Returns the offset below which messages belong to a deleted queue of the same name."""
    grave = graves.get(queue.topic)
    return grave.ends.get(queue.queue_id, 0) if grave else 0


def identities_of(topics: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Returns the identity of each topic; one that has none gets one."""
    return {topic: known.get(topic) or str(uuid.uuid4()) for topic in topics}


def graves_within(
    graves: Mapping[str, KeptGrave], ends: Mapping[QueueRef, int]
) -> dict[str, KeptGrave]:
    """Returns the graves as far as the store reaches.

    A store that lost its tail, or was exchanged, gives offsets below a grave's end once more: new
    messages there must not be taken for deleted ones.
    """
    within = {}
    for topic, grave in graves.items():
        held = {number: ends.get(QueueRef(topic, number), 0) for number in grave.ends}
        left = {number: min(end, held[number]) for number, end in grave.ends.items()}
        if kept := {number: end for number, end in left.items() if end}:
            within[topic] = KeptGrave(grave.retention, kept)
    return within


def count(topics: Mapping[str, KeptTopic], graves: Mapping[str, KeptGrave]) -> int:
    """Returns how many queues there are, deleted ones that had messages included."""
    counts = {topic: kept.queues for topic, kept in topics.items()}
    dead = (
        number >= counts.get(topic, 0) for topic, grave in graves.items() for number in grave.ends
    )
    return sum(len(kept.numbers) for kept in topics.values()) + sum(dead)
