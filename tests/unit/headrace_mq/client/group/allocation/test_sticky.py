from collections.abc import Mapping, Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.group.allocation.sticky import sticky
from headrace_mq.message import QueueRef

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
    """How many queues have another owner than before; new queues move from nobody."""
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


def test_who_holds_most_keeps_the_larger_share() -> None:
    assert divide(3, ["a", "b"], {"a": [0], "b": [1, 2]}) == {"a": [0], "b": [1, 2]}


def test_of_two_claims_the_first_names_counts() -> None:
    assert divide(2, ["a", "b"], {"b": [0, 1], "a": [0]}) == {"a": [0], "b": [1]}


names = st.lists(st.sampled_from("abcdefghij"), min_size=1, unique=True)


@given(
    count=st.integers(1, 60),
    group=names,
    held=st.dictionaries(st.sampled_from("abcdefghijkl"), st.lists(st.integers(0, 80))),
)
def test_every_queue_has_one_owner_and_sizes_differ_by_one_whatever_was_reported(
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
