import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_mq.client.group.allocation import (
    Strategy,
    average,
    circle,
    consistent_hash,
    fixed,
    in_rooms,
    md5_point,
    nearby,
    place_of,
    sticky,
)
from headrace_mq.message import QueueRef


def queues(count: int) -> list[QueueRef]:
    return [QueueRef("t", number) for number in range(count)]


def shares(strategy: Strategy, queue_count: int, member_count: int) -> list[list[int]]:
    """Divides so many queues among so many members; returns the numbers each member gets."""
    group = [f"member-{number:04d}" for number in range(member_count)]
    return [[q.queue_id for q in strategy(m, group, queues(queue_count))] for m in group]


Q = QueueRef("t", 0)


def test_a_members_place_is_its_number_among_all() -> None:
    assert place_of("b", ["a", "b"], [Q]) == 1
    assert place_of("stranger", ["a", "b"], [Q]) is None


@pytest.mark.parametrize(
    ("member", "group", "held"), [("", ["a"], [Q]), ("a", [], [Q]), ("a", ["a"], [])]
)
def test_an_allocation_without_queues_or_members_is_an_error(
    member: str, group: list[str], held: list[QueueRef]
) -> None:
    with pytest.raises(ValueError, match="an allocation needs"):
        place_of(member, group, held)


def test_average_gives_neighbours_and_the_larger_shares_to_the_first() -> None:
    assert shares(average, 10, 4) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert shares(average, 8, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert shares(average, 2, 3) == [[0], [1], []]
    assert shares(average, 3, 3) == [[0], [1], [2]]


def rocketmq_average(place: int, queue_count: int, member_count: int) -> range:
    """The description of RocketMQ's AVG in its own terms."""
    mod = queue_count % member_count
    if queue_count <= member_count:
        size = 1
    else:
        size = queue_count // member_count + (1 if place < mod else 0)
    start = place * size if place < mod else place * size + mod
    return range(start, min(start + size, queue_count))


@given(queue_count=st.integers(1, 200), member_count=st.integers(1, 60))
def test_average_divides_as_rocketmq_does(queue_count: int, member_count: int) -> None:
    expected = [list(rocketmq_average(n, queue_count, member_count)) for n in range(member_count)]
    assert shares(average, queue_count, member_count) == expected


def test_circle_deals_the_queues_out_one_by_one() -> None:
    assert shares(circle, 5, 2) == [[0, 2, 4], [1, 3]]
    assert shares(circle, 1, 2) == [[0], []]


@given(queue_count=st.integers(1, 200), member_count=st.integers(1, 60))
def test_circle_gives_queue_q_to_member_q_modulo_their_number(
    queue_count: int, member_count: int
) -> None:
    expected = [
        [q for q in range(queue_count) if q % member_count == n] for n in range(member_count)
    ]
    assert shares(circle, queue_count, member_count) == expected


few = settings(max_examples=30, deadline=None)
groups = st.sets(st.integers(0, 200), min_size=1, max_size=40).map(
    lambda numbers: sorted(f"client-{number}" for number in numbers)
)


def owners(count: int, group: list[str]) -> dict[QueueRef, str]:
    """Every queue's owner; fails where a queue has two or none."""
    found = [(q, name) for name in group for q in consistent_hash(name, group, queues(count))]
    assert sorted(queue for queue, _ in found) == queues(count)
    return dict(found)


def test_a_point_is_the_first_four_bytes_of_the_md5() -> None:
    # echo -n a-0 | md5sum
    assert md5_point("a-0") == 0xA165EFD1


def test_a_ring_worked_out_by_hand() -> None:
    # b-0 34f25f6f, a-1 737c191a, a-0 a165efd1, b-1 b1d10db2; the queues 0 to 5 of broker-a:
    # 02c04ab7 0472fb6c 8aee53f2 a9158b8b 2ab122a2 6fe55e69
    ring = partial(consistent_hash, virtual_nodes=2, broker_name="broker-a")
    assert [q.queue_id for q in ring("a", ["a", "b"], queues(6))] == [2, 5]
    assert [q.queue_id for q in ring("b", ["a", "b"], queues(6))] == [0, 1, 3, 4]
    assert ring("stranger", ["a", "b"], queues(6)) == []


def test_behind_the_last_point_comes_the_first() -> None:
    points = {"a-0": 10, "b-0": 20, "MessageQueue [topic=t, brokerName=headrace, queueId=0]": 30}
    share = consistent_hash(
        "a", ["a", "b"], queues(1), virtual_nodes=1, point_of=points.__getitem__
    )
    assert share == queues(1)


@few
@given(count=st.integers(1, 60), group=groups)
def test_consistent_hash_divides_as_rocketmq_does(count: int, group: list[str]) -> None:
    def point(word: str) -> int:
        return int(hashlib.md5(word.encode(), usedforsecurity=False).hexdigest()[:8], 16)

    ring = [(point(f"{name}-{number}"), name) for name in group for number in range(10)]
    for queue, name in owners(count, group).items():
        at = point(f"MessageQueue [topic=t, brokerName=headrace, queueId={queue.queue_id}]")
        behind = [one for one in ring if one[0] >= at]
        assert name == min(behind or ring)[1]


@few
@given(count=st.integers(1, 60), group=groups, data=st.data())
def test_a_member_that_goes_moves_only_its_queues_and_they_return_with_it(
    count: int, group: list[str], data: st.DataObject
) -> None:
    if len(group) == 1:
        group = [*group, "another"]
    gone = data.draw(st.sampled_from(group))
    before = owners(count, group)
    after = owners(count, [name for name in group if name != gone])
    assert all(after[queue] == name for queue, name in before.items() if name != gone)


Shares = dict[str, list[int]]


def divide(count: int, group: Sequence[str], held: Mapping[str, Sequence[int]]) -> Shares:
    """Every member's share, by the numbers of the queues."""
    queues = [QueueRef("t", number) for number in range(count)]
    before = {name: [QueueRef("t", n) for n in numbers] for name, numbers in held.items()}
    return {
        name: [queue.queue_id for queue in sticky(name, sorted(group), queues, held=before)]
        for name in group
    }


def moves(before: Mapping[str, Sequence[int]], after: Shares) -> int:
    """How many queues have another owner than before; new queues do not count."""
    owner = {number: name for name, numbers in before.items() for number in numbers}
    return sum(
        owner.get(number, name) != name for name, numbers in after.items() for number in numbers
    )


def test_without_history_shares_are_neighbours_of_equal_size() -> None:
    assert divide(5, ["a", "b"], {}) == {"a": [0, 1, 2], "b": [3, 4]}


def test_a_member_that_comes_gets_the_surplus_and_nothing_else_moves() -> None:
    before = {"a": [0, 1, 2], "c": [3, 4, 5]}
    assert divide(6, ["a", "b", "c"], before) == {"a": [0, 1], "b": [2, 5], "c": [3, 4]}


def test_a_member_that_leaves_gives_its_queues_and_nothing_else_moves() -> None:
    before = {"a": [0, 1], "b": [2, 5], "c": [3, 4]}
    assert divide(6, ["a", "c"], before) == {"a": [0, 1, 2], "c": [3, 4, 5]}


def test_the_member_that_holds_most_keeps_the_larger_share() -> None:
    assert divide(3, ["a", "b"], {"a": [0], "b": [1, 2]}) == {"a": [0], "b": [1, 2]}


def test_the_claim_of_the_first_name_counts_of_two() -> None:
    assert divide(2, ["a", "b"], {"b": [0, 1], "a": [0]}) == {"a": [0], "b": [1]}


names = st.lists(st.sampled_from("abcdefghij"), min_size=1, unique=True)


@given(
    count=st.integers(1, 60),
    group=names,
    held=st.dictionaries(st.sampled_from("abcdefghijkl"), st.lists(st.integers(0, 80))),
)
def test_every_queue_has_one_owner_and_sizes_differ_by_one_for_any_report(
    count: int, group: list[str], held: dict[str, list[int]]
) -> None:
    shares = divide(count, group, held)
    assert sorted(n for share in shares.values() for n in share) == list(range(count))
    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1


@given(count=st.integers(1, 60), first=names, steps=st.lists(st.sampled_from("abcdefghij")))
def test_a_member_that_comes_or_goes_moves_no_more_than_its_own_share(
    count: int, first: list[str], steps: list[str]
) -> None:
    group, shares = list(first), divide(count, first, {})
    for name in steps:
        if group == [name]:
            continue
        after = sorted(set(group) ^ {name})
        moved = divide(count, after, shares)
        share = len(moved[name]) if name in moved else len(shares[name])
        assert moves(shares, moved) == share
        group, shares = after, moved


@given(
    count=st.integers(1, 6),
    group=st.sampled_from(["a", "ab", "abc"]),
    owners=st.lists(st.sampled_from("abcd"), min_size=6, max_size=6),
)
def test_no_equal_division_moves_less(count: int, group: str, owners: list[str]) -> None:
    held: dict[str, list[int]] = {}
    for number in range(count):
        held.setdefault(owners[number], []).append(number)
    fewest = count
    for choice in product(group, repeat=count):
        sizes = [choice.count(name) for name in group]
        if max(sizes) - min(sizes) <= 1:
            fewest = min(fewest, sum(choice[n] != owners[n] for n in range(count)))
    assert moves(held, divide(count, group, held)) == fewest


A, B, C = (QueueRef("t", number) for number in range(3))


def test_a_member_gets_the_queues_that_were_chosen_for_it_by_hand() -> None:
    strategy = fixed([C, A, QueueRef("other", 0)])
    assert strategy("m", ["m"], [A, B, C]) == [A, C]
    assert strategy("m", ["a", "m"], [A, B, C]) == [A, C]
    assert strategy("m", ["m"], [B]) == []


def queue(number: int) -> QueueRef:
    return QueueRef("t", number)


def in_three_rooms(one: QueueRef) -> str:
    return f"room-{one.queue_id % 3}"


def of_name(member: str) -> str:
    return member.partition("@")[0]


def numbers(strategy: Strategy, count: int, group: list[str]) -> list[list[int]]:
    everything = [queue(number) for number in range(count)]
    return [[one.queue_id for one in strategy(name, group, everything)] for name in group]


def test_members_read_only_the_queues_of_their_rooms_in_blocks_and_then_one_by_one() -> None:
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


def test_a_room_without_a_name_is_an_error() -> None:
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
