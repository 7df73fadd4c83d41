"""
Which queues of a group's topics belong to which member.

Every member computes the same answer from the same sorted members and queues, so nobody has to
decide for the others. Topics are divided one by one: members may subscribe to different topics.

Sits between: the group's view that the broker sends and the consumer. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from headrace_mq.message import QueueRef

__all__ = ["STRATEGIES", "Strategy", "allocate", "average", "circle"]

# Given a member, all members and all queues of one topic (both sorted), returns the member's share.
Strategy = Callable[[str, Sequence[str], Sequence[QueueRef]], list[QueueRef]]


def _place_of(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> int | None:
    if not member or not members or not queues:
        raise ValueError("an allocation needs a member, the group's members and the topic's queues")
    return members.index(member) if member in members else None


def average(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
    """Neighbouring queues, sizes that differ by one at most; the first members get the larger ones.

    Ten queues and four members: 0-2, 3-5, 6-7, 8-9. This is RocketMQ's default.
    """
    place = _place_of(member, members, queues)
    if place is None:
        return []
    size, larger = divmod(len(queues), len(members))
    start = place * size + min(place, larger)
    return list(queues[start : start + size + (1 if place < larger else 0)])


def circle(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
    """Queue q to member q modulo their number."""
    place = _place_of(member, members, queues)
    return [] if place is None else list(queues[place :: len(members)])


STRATEGIES: Mapping[str, Strategy] = MappingProxyType({"average": average, "circle": circle})


def allocate(
    member: str,
    *,
    members: Mapping[str, Sequence[str]],
    queues: Mapping[str, int],
    strategy: Strategy = average,
) -> frozenset[QueueRef]:
    """A member's queues over all its topics.

    Args:
        member: whose queues.
        members: each member of the group and the topics it subscribed to.
        queues: each topic that exists and its number of queues.
        strategy: how one topic is divided.
    """
    share: set[QueueRef] = set()
    for topic in members.get(member, ()):
        if queues.get(topic, 0) > 0:
            subscribed = sorted(name for name, topics in members.items() if topic in topics)
            everything = [QueueRef(topic, number) for number in range(queues[topic])]
            share.update(strategy(member, subscribed, everything))
    return frozenset(share)
