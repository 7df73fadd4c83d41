"""
Queues dealt out one by one.

Sits between: `client.group.rebalance` and `strategy`. Pure.
"""

from collections.abc import Sequence

from headrace_mq.client.group.allocation.strategy import place_of
from headrace_mq.message import QueueRef

__all__ = ["circle"]


def circle(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
    """Queue q to member q modulo their number: RocketMQ's AllocateMessageQueueAveragelyByCircle."""
    place = place_of(member, members, queues)
    return [] if place is None else list(queues[place :: len(members)])
