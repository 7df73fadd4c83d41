import hashlib
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_mq.client.group.allocation.consistent_hash import consistent_hash, md5_point
from headrace_mq.message import QueueRef

few = settings(max_examples=30, deadline=None)
groups = st.sets(st.integers(0, 200), min_size=1, max_size=40).map(
    lambda numbers: sorted(f"client-{number}" for number in numbers)
)


def queues(count: int) -> list[QueueRef]:
    return [QueueRef("t", number) for number in range(count)]


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
def test_it_is_rocketmqs(count: int, group: list[str]) -> None:
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
