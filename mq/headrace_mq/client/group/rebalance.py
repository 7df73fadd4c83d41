"""
Which queues of a group's topics belong to which member.

Every member computes the same answer from the same sorted members and queues, so no member has to
decide for the others. Topics are divided one by one: members may subscribe to different topics.

Used by `membership`, with the view of the group that the broker sends. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from headrace_mq.client.group.allocation import Strategy, average, circle, consistent_hash, sticky
from headrace_mq.message import QueueRef

__all__ = ["STRATEGIES", "allocate"]

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "average": average,
        "circle": circle,
        "consistent_hash": consistent_hash,
        "sticky": sticky,
    }
)
_NOTHING: Mapping[str, Collection[QueueRef]] = MappingProxyType({})


def allocate(
    member: str,
    *,
    members: Mapping[str, Sequence[str]],
    queues: Mapping[str, int],
    strategy: Strategy = average,
    held: Mapping[str, Collection[QueueRef]] = _NOTHING,
    frozen: Collection[QueueRef] = (),
) -> frozenset[QueueRef]:
    """A member's queues over all its topics.

    Args:
        member: whose queues.
        members: each member of the group and the topics it subscribed to.
        queues: each topic that exists and its number of queues.
        strategy: how one topic is divided.
        held: what each member held before, for the strategy that moves the fewest.
        frozen: queues that give no messages; no member gets them.

    Raises:
        ValueError: the strategy gave what it was not given.
        Exception: what the application's own strategy raises.
    """
    if strategy is sticky:
        strategy = partial(sticky, held=held)
    share: set[QueueRef] = set()
    for topic in members.get(member, ()):
        if queues.get(topic, 0) > 0:
            subscribed = sorted(name for name, topics in members.items() if topic in topics)
            numbered = [QueueRef(topic, number) for number in range(queues[topic])]
            everything = [queue for queue in numbered if queue not in frozen]
            if not everything:
                continue
            given = frozenset(strategy(member, subscribed, everything))
            if not given.issubset(everything):
                raise ValueError(
                    f"the allocation strategy gave {sorted(given.difference(everything))[0]}, which"
                    f" is none of the {len(everything)} queues of topic {topic!r} that it was given"
                )
            share |= given
    return frozenset(share)
