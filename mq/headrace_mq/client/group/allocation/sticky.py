"""
Equal shares with the fewest moves from what each member held before.

What was held before cannot be computed from names: the members report it, and the broker puts what
it knows of every member into each new view of the group. All compute from the same view, so all
come to the same answer even where a report is late; a late report costs moves, nothing else.

Sits between: `client.group.rebalance`, which passes the view's reports, and `strategy`. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from headrace_mq.client.group.allocation.strategy import place_of
from headrace_mq.message import QueueRef

__all__ = ["sticky"]

_NOTHING: Mapping[str, Collection[QueueRef]] = MappingProxyType({})


def sticky(
    member: str,
    members: Sequence[str],
    queues: Sequence[QueueRef],
    *,
    held: Mapping[str, Collection[QueueRef]] = _NOTHING,
) -> list[QueueRef]:
    """Sizes that differ by one at most, and as many queues as possible where they are.

    Args:
        member: whose queues.
        members: all members, sorted.
        queues: all queues of the topic, sorted.
        held: what each member held; of several claims to a queue the first name's counts.
    """
    if place_of(member, members, queues) is None:
        return []
    claims = {queue: name for name in reversed(members) for queue in held.get(name, ())}
    shares: dict[str, list[QueueRef]] = {name: [] for name in members}
    free: list[QueueRef] = []
    for queue in queues:
        shares[claims[queue]].append(queue) if queue in claims else free.append(queue)
    size, larger = divmod(len(queues), len(members))
    # Whoever holds most gets the larger shares: any other choice would move more.
    by_held = sorted(members, key=lambda name: -len(shares[name]))
    sizes = {name: size + (place < larger) for place, name in enumerate(by_held)}
    for name in members:
        free += shares[name][sizes[name] :]
        del shares[name][sizes[name] :]
    free.sort()
    for name in members:
        room = sizes[name] - len(shares[name])
        shares[name] += free[:room]
        del free[:room]
    return sorted(shares[member])
