"""The simulation of a group repeats a run by its seed, and names the promise that was broken."""

import pytest

from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.record import GroupRecord, Identity
from headrace_mq.testing.cluster.promises import BrokenPromise
from headrace_mq.testing.cluster.simulated_cluster import SimulatedCluster, run


def test_a_seed_gives_the_same_run() -> None:
    assert run(5) == run(5)
    assert run(5) != run(6)


def test_a_run_has_all_that_it_is_to_show() -> None:
    total = sum((run(seed) for seed in range(20)), run(20))
    assert set(total) >= {
        "acknowledged", "changes", "crashes", "cuts", "epochs", "handed over", "led", "wiped",
    }  # fmt: skip


def test_a_group_that_cannot_come_back_is_named() -> None:
    class Idle(ClusterMember):
        def stand(self, *, keep_leader: bool = False) -> None:
            return None

    with pytest.raises(BrokenPromise, match="does not come back"):
        run(1, Idle)


def test_a_record_that_goes_back_is_noticed() -> None:
    cluster = SimulatedCluster(3)
    node = next(iter(cluster.nodes.values()))
    assert node.member is not None
    cluster.record = GroupRecord(9, 4, "a", frozenset({Identity("a", "store-0")}))
    cluster.read_record(node, node.member)
    cluster.record = GroupRecord(8, 4, "a", frozenset({Identity("a", "store-0")}))
    with pytest.raises(BrokenPromise, match="went back"):
        cluster.read_record(node, node.member)
