"""Groups with an operator break no promise, in bad weather."""

from collections.abc import Mapping

import pytest

from headrace_mq.cluster.frames import Follow
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.member import ClusterMember, Log
from headrace_mq.cluster.record import GroupRecord, Identity
from headrace_mq.testing.cluster.operated_cluster import run
from headrace_mq.testing.cluster.promises import BrokenPromise

SEEDS, CHUNK, SEARCH = 100, 50, 100


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_group_that_an_operator_touches_loses_only_what_was_accepted(first: int) -> None:
    total = sum((run(seed) for seed in range(first, first + CHUNK)), run(first + SEEDS))
    assert total["acknowledged"] > total["messages from before"] > CHUNK
    assert total["led"] > CHUNK
    assert min(total["removed"], total["promoted"], total["lost"], total["cuts"]) > CHUNK // 2


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


class CutsNothing(ClusterMember):
    """A promoted leader sends what follows any end within its log."""

    @staticmethod
    def _common(log: Log, frame: Follow) -> tuple[int, int]:
        return frame.last, min(frame.end, log.end)


def test_a_member_that_keeps_what_was_lost_is_noticed() -> None:
    def search() -> None:
        for seed in range(SEARCH):
            run(seed, CutsNothing)

    with pytest.raises((BrokenPromise, ValueError, IndexError)):
        search()
