"""
A ring of hashes: a member that comes or goes moves only its own queues; shares are uneven.

RocketMQ's AllocateMessageQueueConsistentHash, to the hash: each member stands at ten points of the
ring, those of the words `<member>-0` to `<member>-9`; a queue belongs to the first point at or
after that of the words `MessageQueue [topic=T, brokerName=B, queueId=N]`, around the end of the ring
to its beginning. A point is the first four bytes of a word's MD5, as a big-endian number.

Sits between: `client.group.rebalance` and `strategy`. Pure.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence

from headrace_mq.client.group.allocation.strategy import place_of
from headrace_mq.message import QueueRef

__all__ = ["consistent_hash", "md5_point"]

# RocketMQ's number; more points make the shares more even and the ring slower to build.
VIRTUAL_NODES = 10
# RocketMQ's queues name their broker; here there is one, and the name only has to be the same.
BROKER_NAME = "headrace"


def md5_point(word: str) -> int:
    """A word's place on the ring, 0 to 2^32 - 1."""
    digest = hashlib.md5(word.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def consistent_hash(
    member: str,
    members: Sequence[str],
    queues: Sequence[QueueRef],
    *,
    virtual_nodes: int = VIRTUAL_NODES,
    broker_name: str = BROKER_NAME,
    point_of: Callable[[str], int] = md5_point,
) -> list[QueueRef]:
    """The queues whose next point on the ring is the member's; `functools.partial` sets the rest.

    Args:
        member: whose queues.
        members: all members, sorted.
        queues: all queues of the topic, sorted.
        virtual_nodes: points of each member.
        broker_name: part of a queue's words.
        point_of: the hash.
    """
    if place_of(member, members, queues) is None:
        return []
    # Of two members at one point, the later name stands there.
    owners = {
        point_of(f"{name}-{number}"): name for name in members for number in range(virtual_nodes)
    }
    ring = sorted(owners)

    def owner(queue: QueueRef) -> str:
        words = f"MessageQueue [topic={queue.topic}, brokerName={broker_name}, queueId={queue.queue_id}]"
        place = bisect_left(ring, point_of(words))
        return owners[ring[place % len(ring)]]

    return [queue for queue in queues if owner(queue) == member]
