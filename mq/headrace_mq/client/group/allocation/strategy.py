"""
What a strategy is.

Sits between: `client.group.rebalance` and the strategies, the application's own among them. Pure.
"""

from collections.abc import Callable, Sequence

from headrace_mq.message import QueueRef

__all__ = ["Strategy", "place_of"]

# Given a member, all members and all queues of one topic (both sorted), returns the member's share.
Strategy = Callable[[str, Sequence[str], Sequence[QueueRef]], Sequence[QueueRef]]


def place_of(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> int | None:
    """The member's place among all; None: it is not one of them, and gets nothing.

    Raises:
        ValueError: there is nothing to divide, or nobody to get it.
    """
    if not member or not members or not queues:
        raise ValueError("an allocation needs a member, the group's members and the topic's queues")
    return members.index(member) if member in members else None
