"""
Queues near their readers: machine rooms, racks, zones.

Sits between: an application that knows where members and queues are, and `client.group.rebalance`. Pure.
"""

from collections.abc import Callable, Collection, Sequence

from headrace_mq.client.group.allocation.average import average
from headrace_mq.client.group.allocation.strategy import Strategy, place_of
from headrace_mq.message import QueueRef

__all__ = ["in_rooms", "nearby"]


def in_rooms(rooms: Collection[str], room_of: Callable[[QueueRef], str]) -> Strategy:
    """Makes a strategy that reads only the queues of some rooms, in shares that differ by one.

    RocketMQ's AllocateMessageQueueByMachineRoom: equal blocks of neighbours first, then one of the
    rest to each of the first members.
    """
    chosen = frozenset(rooms)

    def allocate(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
        place = place_of(member, members, queues)
        if place is None:
            return []
        ours = [queue for queue in queues if room_of(queue) in chosen]
        size, rest = divmod(len(ours), len(members))
        share = ours[place * size : (place + 1) * size]
        if place < rest:
            share.append(ours[place + size * len(members)])
        return share

    return allocate


def nearby(
    room_of_member: Callable[[str], str],
    room_of_queue: Callable[[QueueRef], str],
    *,
    within: Strategy = average,
) -> Strategy:
    """Makes a strategy that divides a room's queues among the members of that room.

    Queues of rooms without any member are divided among all. RocketMQ's
    AllocateMachineRoomNearby; its strategy raises ValueError for a room without a name.

    Args:
        room_of_member: tells where a member is, by its name.
        room_of_queue: tells where a queue is.
        within: how the queues of one room are divided.
    """

    def allocate(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> list[QueueRef]:
        if place_of(member, members, queues) is None:
            return []
        rooms = {name: room_of_member(name) for name in members}
        if not all(rooms.values()) or not all(map(room_of_queue, queues)):
            raise ValueError("every member and every queue must be in a room that has a name")
        neighbours = [name for name in members if rooms[name] == rooms[member]]
        here = [queue for queue in queues if room_of_queue(queue) == rooms[member]]
        lonely = [queue for queue in queues if room_of_queue(queue) not in rooms.values()]
        share = list(within(member, neighbours, here)) if here else []
        return sorted(share + list(within(member, members, lonely)) if lonely else share)

    return allocate
