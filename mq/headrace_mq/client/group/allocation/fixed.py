"""
Queues chosen by hand.

Sits between: an application that knows better and `client.group.rebalance`. Pure.
"""

from collections.abc import Collection, Sequence

from headrace_mq.client.group.allocation.strategy import Strategy
from headrace_mq.message import QueueRef

__all__ = ["fixed"]


def fixed(mine: Collection[QueueRef]) -> Strategy:
    """Makes a strategy that gives this member these queues, whoever else is there.

    That every queue has exactly one owner is for whoever writes the lists to see to. RocketMQ's
    AllocateMessageQueueByConfig.
    """
    chosen = frozenset(mine)

    def allocate(
        _member: str, _members: Sequence[str], queues: Sequence[QueueRef]
    ) -> list[QueueRef]:
        return [queue for queue in queues if queue in chosen]

    return allocate
