from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_mq.client.group.allocation import Strategy, sticky
from headrace_mq.client.group.rebalance import STRATEGIES, allocate
from headrace_mq.message import QueueRef


def queues(count: int, topic: str = "t") -> list[QueueRef]:
    return [QueueRef(topic, number) for number in range(count)]


def members(count: int) -> list[str]:
    return sorted(f"member-{number}" for number in range(count))


def numbers(strategy: Strategy, queue_count: int, member_count: int) -> list[list[int]]:
    group = members(member_count)
    return [[q.queue_id for q in strategy(m, group, queues(queue_count))] for m in group]


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=30, deadline=None)
@given(queue_count=st.integers(1, 300), member_count=st.integers(1, 50))
def test_every_queue_has_one_owner_and_equal_shares_differ_by_one_at_most(
    name: str, queue_count: int, member_count: int
) -> None:
    shares = numbers(STRATEGIES[name], queue_count, member_count)
    assert sorted(number for share in shares for number in share) == list(range(queue_count))
    sizes = [len(share) for share in shares]
    assert name == "consistent_hash" or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_unknown_member_gets_nothing(name: str) -> None:
    assert STRATEGIES[name]("stranger", members(2), queues(4)) == []


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    ("member", "group", "held"), [("", ["a"], 1), ("a", [], 1), ("a", ["a"], 0)]
)
def test_a_division_without_queues_or_members_is_an_error(
    name: str, member: str, group: list[str], held: int
) -> None:
    with pytest.raises(ValueError, match="an allocation needs"):
        STRATEGIES[name](member, group, queues(held))


subscriptions = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4", "m5"]),
    st.sets(st.sampled_from(["a", "b", "c"])).map(sorted),
    min_size=1,
)


@given(
    group=subscriptions,
    sizes=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 20)),
    name=st.sampled_from(sorted(STRATEGIES)),
)
def test_a_topics_queues_are_divided_among_its_subscribers(
    group: dict[str, list[str]], sizes: dict[str, int], name: str
) -> None:
    shares = {
        member: allocate(member, members=group, queues=sizes, strategy=STRATEGIES[name])
        for member in group
    }
    dealt = sorted(queue for share in shares.values() for queue in share)
    wanted = {topic for topics in group.values() for topic in topics}
    assert dealt == sorted(q for t in wanted for q in queues(sizes.get(t, 0), t))
    for member, share in shares.items():
        assert {queue.topic for queue in share} <= set(group[member])


def test_a_member_that_is_not_in_the_view_holds_nothing() -> None:
    assert allocate("me", members={"other": ["t"]}, queues={"t": 4}) == frozenset()


def test_the_order_in_which_members_are_listed_does_not_matter() -> None:
    one = allocate("b", members={"a": ["t"], "b": ["t"]}, queues={"t": 4})
    other = allocate("b", members={"b": ["t"], "a": ["t"]}, queues={"t": 4})
    assert one == other == frozenset(queues(4)[2:])


def test_a_sticky_allocation_gets_what_was_held() -> None:
    held = {"a": queues(4)[2:], "b": queues(4)[:2]}
    share = allocate(
        "a", members={"a": ["t"], "b": ["t"]}, queues={"t": 4}, strategy=sticky, held=held
    )
    assert share == frozenset(queues(4)[2:])


def test_an_applications_own_strategy_divides() -> None:
    def backwards(
        member: str, group: Sequence[str], everything: Sequence[QueueRef]
    ) -> list[QueueRef]:
        return [everything[-1 - group.index(member)]]

    share = allocate("b", members={"a": ["t"], "b": ["t"]}, queues={"t": 3}, strategy=backwards)
    assert share == {QueueRef("t", 1)}


def test_a_strategy_that_gives_what_is_not_there_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="none of the 2 queues of topic 't'"):
        allocate("a", members={"a": ["t"]}, queues={"t": 2}, strategy=lambda *_: [QueueRef("t", 2)])


@given(
    group=subscriptions,
    frozen=st.frozensets(st.builds(QueueRef, st.just("a"), st.integers(0, 7))),
    name=st.sampled_from(sorted(STRATEGIES)),
)
def test_frozen_queues_are_left_out_and_the_others_are_divided_as_if_they_were_all(
    group: dict[str, list[str]], frozen: frozenset[QueueRef], name: str
) -> None:
    strategy = STRATEGIES[name]
    open_ones = [queue for queue in queues(6, "a") if queue not in frozen]
    subscribed = sorted(member for member, topics in group.items() if "a" in topics)
    for member in group:
        share = allocate(
            member, members=group, queues={"a": 6}, strategy=strategy, frozen=frozen,
            held=dict.fromkeys(group, frozen),
        )  # fmt: skip
        divided = open_ones and member in subscribed
        assert share == set(strategy(member, subscribed, open_ones) if divided else ())
