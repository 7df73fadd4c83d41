"""
Topics of which this broker group has some queues, and other groups the rest. PURE.

    before            asked for               kept
    none              8 queues, owned 4-7     8 queues, 4-7 here
    4 queues, all     8 queues, owned 0-3     8 queues, 0-3 here
    8 queues, 0-3     12 queues, owned 0-3    12 queues, 0-3 here

Queue numbers count over all groups. A queue never changes its group: a group keeps what it has, and gets only
queues that no group had before.

Used by `topics`.
"""

import msgspec

from headrace_mq.broker.topics.kept import KeptTopic
from headrace_mq.broker.topics.own_topics import JOURNALS
from headrace_mq.errors import InvalidArgument, QueueElsewhere, TopicExists
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import CreateTopic

__all__ = ["another_identity", "not_whole", "require_own", "spread", "witnessed"]


def require_own(queue: QueueRef, kept: KeptTopic) -> None:
    """Raises QueueElsewhere for a queue that another broker group has."""
    if kept.owned and queue.queue_id not in kept.owned:
        raise QueueElsewhere(
            f"queue {queue.topic}/{queue.queue_id} is in another broker group; name all groups of the topic in the"
            " address, as in nameserver://HOST:9875/CLUSTER/g1,g2"
        )


def spread(request: CreateTopic, kept: KeptTopic | None, queues: int) -> KeptTopic | None:
    """Returns what a topic of several groups is like now; None: it stays as it is.

    Args:
        request: what is asked for, in its range; `owned` empty confirms a topic that is spread.
        kept: what there is.
        queues: how many queues all groups have together.

    Raises:
        InvalidArgument: the queues are none of the topic, or this group would lose one, or take one that may be
            another group's; or the topic cannot be spread.
    """
    topic, owned = request.topic, tuple(sorted(set(request.owned)))
    if not owned:
        if kept is not None and queues > kept.queues:
            raise InvalidArgument(
                f"topic {topic!r} is spread over broker groups and has {kept.queues} queues; add some with `headrace topic"
                " spread`"
            )
        return None
    if topic in JOURNALS or topic.startswith("%"):
        raise InvalidArgument(f"{topic} is the queue's own topic, which stays in one broker group")
    if not 0 <= owned[0] <= owned[-1] < queues:
        wrong = owned[0] if owned[0] < 0 else owned[-1]
        raise InvalidArgument(f"topic {topic!r} would have queues 0 to {queues - 1}, not {wrong}")
    if not request.identity:
        raise InvalidArgument("a topic that is spread over broker groups has one identity; name it")
    if kept is None:
        return _closed(KeptTopic(queues, request.retention, settled=True, owned=owned))
    if queues < kept.queues:
        raise InvalidArgument(
            f"topic {topic!r} has {kept.queues} queues over all broker groups, and cannot have fewer"
        )
    if queues > kept.queues and kept.retention == "compact":
        raise InvalidArgument(
            f"topic {topic!r} is compacted and keeps its {kept.queues} queues: with more of them keys would move; create"
            " another topic and copy the state"
        )
    before = set(kept.numbers)
    lost = sorted(before.difference(owned))
    taken = [number for number in owned if number < kept.queues and number not in before]
    if lost or taken:
        raise InvalidArgument(
            f"queue {topic}/{(lost or taken)[0]} cannot change its broker group: this one has"
            f" {', '.join(map(str, sorted(before)))}, and queues that are added count from {kept.queues} on"
        )
    if (queues, owned) == (kept.queues, kept.owned):
        return None
    settled = kept.settled and queues == kept.queues
    return _closed(msgspec.structs.replace(kept, queues=queues, owned=owned, settled=settled))


def witnessed(kept: KeptTopic, number: int) -> KeptTopic:
    """Returns what a topic is like whose messages in the store show that this group has a queue of this number."""
    queues = max(kept.queues, number + 1)
    if not kept.owned:
        return msgspec.structs.replace(kept, queues=queues, settled=False)
    return _closed(
        msgspec.structs.replace(
            kept,
            queues=queues,
            settled=False,
            owned=tuple(sorted({*kept.owned, number})),
            unwritable=tuple(one for one in kept.unwritable if one != number),
            unreadable=tuple(one for one in kept.unreadable if one != number),
        )
    )


def _closed(kept: KeptTopic) -> KeptTopic:
    foreign = kept.foreign
    return msgspec.structs.replace(
        kept,
        unwritable=tuple(sorted(foreign.union(kept.unwritable))),
        unreadable=tuple(sorted(foreign.union(kept.unreadable))),
    )


def another_identity(topic: str) -> TopicExists:
    """Returns the error for a topic that was made apart from that of the other groups."""
    return TopicExists(
        f"topic {topic!r} exists in this broker group too, and is another one than that of the other groups: use another"
        " name, or delete it in one of them"
    )


def not_whole(topic: str) -> InvalidArgument:
    """Returns the error for what needs all queues of a topic in one group."""
    return InvalidArgument(
        f"topic {topic!r} is spread over several broker groups: its messages cannot be scheduled or part of a transaction"
        " of the queue, and its queues cannot be deleted one by one"
    )
