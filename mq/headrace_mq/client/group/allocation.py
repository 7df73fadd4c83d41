"""
Strategies that divide a topic's queues among the members of a group.

    average, circle     equal shares: neighbours, or dealt out one by one
    consistent_hash     a member that comes or goes moves only its own queues; shares are uneven
    sticky              equal shares with the fewest moves from what each member held before
    fixed               queues that you choose by hand
    in_rooms, nearby    queues near their readers: machine rooms, racks, zones

Every member computes its own share, so a strategy is a pure function: the same members, queues and
former owners give the same answer to all. All but `sticky` divide as RocketMQ does, to the queue.

Used by `rebalance`, one topic at a time, and by applications that choose a strategy. Pure.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from headrace_mq.message import QueueRef

__all__ = [
    "Strategy",
    "average",
    "circle",
    "consistent_hash",
    "fixed",
    "in_rooms",
    "md5_point",
    "nearby",
    "place_of",
    "sticky",
]

# Given a member, all members and all queues of one topic (both sorted), returns the member's share.
Strategy = Callable[[str, Sequence[str], Sequence[QueueRef]], Sequence[QueueRef]]


def place_of(member: str, members: Sequence[str], queues: Sequence[QueueRef]) -> int | None:
    """The member's place among all; None: it is not one of them, and gets nothing.

    Raises:
        ValueError: there is no queue to divide, or no member to get one.
    """
    if not member or not members or not queues:
        raise ValueError("an allocation needs a member, the group's members and the topic's queues")
    return members.index(member) if member in members else None


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


# Points of the ring for each member: RocketMQ's number. More points make the shares more even and the ring slower to build.
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
    """The queues whose next point on a ring of hashes is the member's.

    RocketMQ's AllocateMessageQueueConsistentHash, to the hash: each member stands at ten points of
    the ring, those of the words `<member>-0` to `<member>-9`. A queue belongs to the first point at
    or after that of the words `MessageQueue [topic=T, brokerName=B, queueId=N]`; after the last
    point of the ring comes the first. A point is the first four bytes of a word's MD5, as a
    big-endian number. Set the last three arguments with `functools.partial`.

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


_NOTHING: Mapping[str, Collection[QueueRef]] = MappingProxyType({})


def sticky(
    member: str,
    members: Sequence[str],
    queues: Sequence[QueueRef],
    *,
    held: Mapping[str, Collection[QueueRef]] = _NOTHING,
) -> list[QueueRef]:
    """Sizes that differ by one at most, and as many queues as possible where they are.

    The members report what they hold, and the broker puts the reports into each new view of the
    group. All members compute from the same view, so they agree even where a report is late: a late
    report only costs moves.

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
    # The members that hold most get the larger shares: any other choice would move more.
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


def fixed(mine: Collection[QueueRef]) -> Strategy:
    """Makes a strategy that gives this member these queues, whichever other members there are.

    You must see to it that the lists give every queue exactly one owner. RocketMQ's
    AllocateMessageQueueByConfig.
    """
    chosen = frozenset(mine)

    def allocate(
        _member: str, _members: Sequence[str], queues: Sequence[QueueRef]
    ) -> list[QueueRef]:
        return [queue for queue in queues if queue in chosen]

    return allocate


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
