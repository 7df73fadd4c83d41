"""
Neighbouring queues in shares of equal size: RocketMQ's default.

Sits between: `client.group.rebalance` and `strategy`. Pure.
"""

from collections.abc import Sequence

from headrace_mq.client.group.allocation.strategy import place_of
from headrace_mq.message import QueueRef

__all__ = ["average", "circle"]


def average(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
    """Neighbouring queues, sizes that differ by one at most; the first members get the larger ones.

    Ten queues and four members: 0-2, 3-5, 6-7, 8-9. RocketMQ's AllocateMessageQueueAveragely.
    """
    place = place_of(member, members, queues)
    if place is None:
        return []
    size, larger = divmod(len(queues), len(members))
    start = place * size + min(place, larger)
    return list(queues[start : start + size + (1 if place < larger else 0)])


def circle(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
    """Queue q to member q modulo their number: RocketMQ's AllocateMessageQueueAveragelyByCircle."""
    place = place_of(member, members, queues)
    return [] if place is None else list(queues[place :: len(members)])
