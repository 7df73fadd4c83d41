"""
A simulated group that an operator touches, in any weather.

Half of the runs begin with a broker that ran alone: its messages are there before the group is, and are as good as acknowledged. The
operator takes brokers out of the set at any time, those that run as well: that may cost a copy, and no promise.

Used by `tests/simulation/test_operated_cluster.py`; the machines, the faults and the promises are `simulated_cluster`'s.
"""

from collections import Counter

from headrace_mq.cluster.election import founding
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.operations import removal
from headrace_mq.cluster.record import GroupRecord
from headrace_mq.testing.cluster.machines import LOGS, SimulatedNode
from headrace_mq.testing.cluster.promises import check_change, require
from headrace_mq.testing.cluster.simulated_cluster import STEPS, SimulatedCluster

__all__ = ["OperatedCluster", "run"]

# How many runs begin with a broker that ran alone, and how many messages each of its logs has.
ALONE, MESSAGES_MAX = 0.5, 6
# How often the operator does something.
ACTS = 0.01


class OperatedCluster(SimulatedCluster):
    """One run.

    Args:
        seed: decides everything.
        member_type: the rules; tests plant defects.
    """

    def __init__(self, seed: int, member_type: type[ClusterMember] = ClusterMember) -> None:
        super().__init__(seed, member_type)
        if self.chosen.random() < ALONE:
            self._found(self.nodes["a"])

    def _found(self, node: SimulatedNode) -> None:
        """Lets a broker that ran alone found the group; it may have run alone again after it made the record."""
        made, last = sorted(self.chosen.choices(range(1, 9), k=2))
        self.record = GroupRecord(1, made, node.name, frozenset({node.me}))
        for log in LOGS:
            held = node.logs[log]
            for _ in range(self.chosen.randint(0, MESSAGES_MAX)):
                self._message += 1
                held.entries.append((last, self._message))
                self.acked[log].append((last, self._message))
            if held.entries:
                held.history.begin(last, 0)
        proposal = founding(node.me, self.record, last)
        if proposal is not None:
            self.record = GroupRecord(self.record.version + 1, *proposal[1:])
        require(self.record.epoch >= last, "the group begins below an epoch of its messages")
        for each in self.nodes.values():
            self.start(each)

    def step(self) -> None:
        """Lets one thing happen, of which the operator may be the cause."""
        super().step()
        if not self.record_is_away and self.chosen.random() < ACTS:
            self._remove_any()

    def _remove_any(self) -> None:
        others = sorted(one.name for one in self.record.in_sync if one.name != self.record.leader)
        if not others:
            return
        proposal = removal(self.record, [], self.chosen.choice(others))
        assert proposal is not None
        check_change(self.record, proposal)
        self.record = GroupRecord(self.record.version + 1, *proposal[1:])
        self.stats["removed"] += 1


def run(seed: int, member_type: type[ClusterMember] = ClusterMember) -> Counter[str]:
    """Runs one seed; returns what happened.

    Raises:
        BrokenPromise: and which.
    """
    cluster = OperatedCluster(seed, member_type)
    cluster.stats["messages from before"] = sum(map(len, cluster.acked.values()))
    for number in range(2 * STEPS):
        cluster.step()
        if not number % 20:
            cluster.check_logs()
    cluster.calm_down()
    acked = sum(map(len, cluster.acked.values()))
    return cluster.stats + Counter(acknowledged=acked, runs=1)
