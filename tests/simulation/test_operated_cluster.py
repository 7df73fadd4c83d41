"""Groups with an operator break no promise, in bad weather."""

from collections.abc import Mapping

import pytest

from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.record import GroupRecord, Identity
from headrace_mq.testing.cluster.operated_cluster import run
from headrace_mq.testing.cluster.promises import BrokenPromise

SEEDS, CHUNK, SEARCH = 100, 50, 100


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_messages_from_before_a_group_and_its_own_survive(first: int) -> None:
    total = sum((run(seed) for seed in range(first, first + CHUNK)), run(first + SEEDS))
    assert total["acknowledged"] > total["messages from before"] > CHUNK
    assert total["led"] > CHUNK
    assert total["removed"] > CHUNK


class EntersEmpty(Leadership):
    """A member enters without the messages from before the group."""

    def may_enter(self, member: Identity) -> bool:
        return member in self.durable


class Leads(ClusterMember):
    """With that defect."""

    def _leadership(self, record: GroupRecord, begins: Mapping[str, int]) -> Leadership:
        return EntersEmpty(self.me, record, begins, min_in_sync=self._min_in_sync)


def test_a_member_that_enters_without_messages_from_before_is_noticed() -> None:
    def search() -> None:
        for seed in range(SEARCH):
            run(seed, Leads)

    with pytest.raises((BrokenPromise, IndexError)):
        search()
