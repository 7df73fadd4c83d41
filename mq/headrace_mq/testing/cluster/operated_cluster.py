"""
A simulated group that an operator touches, in any weather.

Half of the runs begin with a broker that ran alone: its messages are there before the group is, and are as good as acknowledged. The
operator takes brokers out of the set at any time, those that run as well: that may cost a copy, and no promise. Where all of the set
are down, another one is promoted: what it lacks is promised no longer, and all other promises hold.

Used by `tests/simulation/test_operated_cluster.py`; the machines, the faults and the promises are `simulated_cluster`'s.
"""

from collections import Counter

from headrace_mq.cluster.election import founding
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.operations import promotion, removal
from headrace_mq.cluster.record import GroupRecord, Registration
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
            self.record = self.record.changed(proposal)
        require(self.record.epoch >= last, "the group begins below an epoch of its messages")
        for each in self.nodes.values():
            self.start(each)

    def step(self) -> None:
        """Lets one thing happen, of which the operator may be the cause."""
        super().step()
        if not self.record_is_away and self.chosen.random() < ACTS:
            if all(
                node.member is None
                for node in self.nodes.values()
                if node.me in self.record.in_sync
            ):
                self._promote_any()
            else:
                self._remove_any()

    def _remove_any(self) -> None:
        others = sorted(one.name for one in self.record.in_sync if one.name != self.record.leader)
        known = [
            Registration(one, (), 0)
            for one in self.record.in_sync
            if one.name == self.record.leader
        ]
        # Before the first election none leads.
        if not others or not known:
            return
        proposal = removal(self.record, known, self.chosen.choice(others))
        assert proposal is not None
        check_change(self.record, proposal)
        self._change(proposal)
        self.stats["removed"] += 1

    def _promote_any(self) -> None:
        alive = [node for node in self.nodes.values() if node.member is not None]
        if not alive:
            return
        node = self.chosen.choice(alive)
        kept = {log: self._kept(node, log) for log in LOGS}
        # What a broker shows to readers may be lost as well; here that would look like a broken promise.
        if any(
            each.member is not None and each.member.readable(log) > kept[log]
            for each in alive
            for log in LOGS
        ):
            return
        self._change(
            promotion(self.record, [Registration(each.me, (), 0) for each in alive], node.name)
        )
        # All that is under way is older than the silence of those in sync.
        self.letters.clear()
        for log in LOGS:
            self.stats["lost"] += len(self.acked[log]) - kept[log]
            del self.acked[log][kept[log] :]
        self.stats["promoted"] += 1

    def _kept(self, node: SimulatedNode, log: str) -> int:
        """How many acknowledged entries a broker has on its disk."""
        held, acked = node.logs[log], self.acked[log]
        pairs = zip(held.entries[: held.durable], acked, strict=False)
        return next(
            (at for at, (one, other) in enumerate(pairs) if one != other),
            min(held.durable, len(acked)),
        )


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
