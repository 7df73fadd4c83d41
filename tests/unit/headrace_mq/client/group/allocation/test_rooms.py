import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.group.allocation.average import circle
from headrace_mq.client.group.allocation.rooms import in_rooms, nearby
from headrace_mq.client.group.allocation.strategy import Strategy
from headrace_mq.message import QueueRef


def queue(number: int) -> QueueRef:
    return QueueRef("t", number)


def in_three_rooms(one: QueueRef) -> str:
    return f"room-{one.queue_id % 3}"


def of_name(member: str) -> str:
    return member.partition("@")[0]


def numbers(strategy: Strategy, count: int, group: list[str]) -> list[list[int]]:
    everything = [queue(number) for number in range(count)]
    return [[one.queue_id for one in strategy(name, group, everything)] for name in group]


def test_only_the_queues_of_the_rooms_are_read_in_blocks_and_then_one_by_one() -> None:
    strategy = in_rooms(["room-0", "room-1"], in_three_rooms)
    # 0 1 3 4 6 7 9 10 are in the rooms: blocks of two for three members, 9 and 10 are the rest.
    assert numbers(strategy, 11, ["a", "b", "c"]) == [[0, 1, 9], [3, 4, 10], [6, 7]]
    assert strategy("stranger", ["a"], [queue(0)]) == []


def test_members_read_in_their_own_room_and_share_the_rooms_without_members() -> None:
    group = ["room-0@a", "room-0@b", "room-1@c"]
    assert numbers(nearby(of_name, in_three_rooms), 9, group) == [[0, 2, 3], [5, 6], [1, 4, 7, 8]]
    divided = numbers(nearby(of_name, in_three_rooms, within=circle), 9, group)
    assert divided == [[0, 2, 6], [3, 5], [1, 4, 7, 8]]
    assert nearby(of_name, in_three_rooms)("room-0@x", group, [queue(0)]) == []


def test_a_room_without_a_name_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="a room that has a name"):
        nearby(lambda _: "", in_three_rooms)("a", ["a"], [queue(0)])


@given(
    count=st.integers(1, 100),
    group=st.lists(
        st.builds("room-{}@{}".format, st.integers(0, 4), st.integers(0, 20)),
        min_size=1,
        unique=True,
    ),
)
def test_every_queue_has_one_owner_and_occupied_rooms_serve_themselves(
    count: int, group: list[str]
) -> None:
    group = sorted(group)
    divided = numbers(nearby(of_name, in_three_rooms), count, group)
    assert sorted(n for share in divided for n in share) == list(range(count))
    rooms = {of_name(name) for name in group}
    for name, share in zip(group, divided, strict=True):
        for number in share:
            room = in_three_rooms(queue(number))
            assert room == of_name(name) or room not in rooms
