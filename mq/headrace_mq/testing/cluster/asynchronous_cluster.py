"""
A simulated group whose leaders may acknowledge alone, in any weather.

An operator chooses again and again who acknowledges. While that is the leader alone, or all in sync are not yet known to have what it
acknowledged so, an election may lose messages: then the record says so, and who has them keeps them when it cuts them. All
other promises hold, those of documents in every case, and all of them once all in sync acknowledge again.

Used by `tests/simulation/test_asynchronous_cluster.py`; the machines, the faults and the promises are `simulated_cluster`'s.
"""

from collections import Counter

from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.member import ClusterMember, Cut
from headrace_mq.cluster.operations import acknowledgement
from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    FEATURE_LEVEL,
    Proposal,
    Registration,
)
from headrace_mq.testing.cluster.machines import LOGS, Entry, SimulatedLog, SimulatedNode
from headrace_mq.testing.cluster.promises import check_readable, require
from headrace_mq.testing.cluster.simulated_cluster import STEPS, SimulatedCluster

__all__ = ["AsynchronousCluster", "run"]

# How often the operator chooses.
CHOICES = 0.01


class AsynchronousCluster(SimulatedCluster):
    """One run.

    Args:
        seed: decides everything.
        member_type: the rules; tests plant defects.

    Attributes:
        lost: what was acknowledged, and is promised no longer.
    """

    documents = LOGS[1:]

    def __init__(self, seed: int, member_type: type[ClusterMember] = ClusterMember) -> None:
        self.lost: set[tuple[str, Entry]] = set()
        # The latest epoch that a leader has begun.
        self._led = 0
        super().__init__(seed, member_type)
        if self.chosen.random() < 0.5:
            self.choose(ACK_LEADER)

    def step(self) -> None:
        """Lets one thing happen, of which the operator may be the cause."""
        super().step()
        if not self.record_is_away and self.chosen.random() < CHOICES:
            self.choose(self.chosen.choice((ACK_LEADER, ACK_IN_SYNC)))

    def choose(self, wanted: str) -> None:
        """Chooses who acknowledges."""
        known = [Registration(node.me, (), 0, FEATURE_LEVEL) for node in self.nodes.values()]
        change = acknowledgement(self.record, known, wanted)
        if change is not None:
            self.stats[f"chose {wanted}"] += 1
            self._change(change)

    def calm_down(self) -> None:
        """Ends all faults; the group must also acknowledge with all in sync again."""
        self.choose(ACK_IN_SYNC)
        super().calm_down()

    def _change(self, proposal: Proposal) -> None:
        before = self.record
        super()._change(proposal)
        if proposal.epoch > before.epoch and before.ack != ACK_IN_SYNC:
            self.stats["elected without loss"] += self.record.lossy < proposal.epoch
            self.stats["handed over without loss"] += proposal.complete
        if self.record.ack == ACK_IN_SYNC != before.ack:
            self.stats["in sync again"] += 1
            for name in LOGS:
                for position, entry in enumerate(self.acked[name]):
                    self._check_copies(self.record.epoch, name, position, entry)

    def _is_late(self, epoch: int, log: str) -> bool:
        """Whether what was acknowledged in an epoch may be lost: there was an election with loss since."""
        return log not in self.documents and epoch < self.record.last_loss

    def _acknowledge_log(self, leadership: Leadership, name: str, log: SimulatedLog) -> None:
        if not self._is_late(leadership.epoch, name):
            super()._acknowledge_log(leadership, name, log)
            self._check_shared(leadership, name)
            return
        acked = self.acked[name]
        for position, entry in enumerate(log.entries[: leadership.committed(name)]):
            if acked[position : position + 1] != [entry]:
                self.lost.add((name, entry))

    def _check_shared(self, leadership: Leadership, name: str) -> None:
        """What a leader may throw away, because all in sync have it, is on their disks."""
        if self.record.epoch == leadership.epoch:
            for member in self.record.in_sync - self._wiped:
                there = self.nodes[member.name].logs[name].durable >= leadership.shared(name)
                require(there, f"{member.name} of the set lacks what may be thrown away")

    def _check_copies(self, epoch: int, log: str, position: int, entry: Entry) -> None:
        if log in self.documents or self.record.ack == ACK_IN_SYNC:
            super()._check_copies(epoch, log, position, entry)

    def _check_leader(self, node: SimulatedNode, name: str) -> None:
        if not self._is_late(self._led, name):
            super()._check_leader(node, name)
            return
        held, acked = node.logs[name], self.acked[name]
        pairs = zip(held.entries, acked, strict=False)
        kept = next(
            (at for at, (one, other) in enumerate(pairs) if one != other),
            min(held.end, len(acked)),
        )
        self.lost |= {(name, entry) for entry in acked[kept:]}
        self.stats["lost"] += len(acked) - kept
        del acked[kept:]

    def _lead(self, node: SimulatedNode, member: ClusterMember) -> None:
        super()._lead(node, member)
        self._led = member.epoch

    def _check_readable(self, node: SimulatedNode) -> None:
        epoch = 0 if node.member is None else node.member.epoch
        check_readable(node, self.acked, [name for name in LOGS if self._is_late(epoch, name)])

    def _cut(self, node: SimulatedNode, cut: Cut) -> None:
        entries = node.logs[cut.log].entries[cut.position :]
        lost = sum((cut.log, entry) in self.lost for entry in entries)
        require(not lost or cut.loses, f"{node.name} cuts what was acknowledged, and keeps it not")
        self.stats["kept"] += lost
        super()._cut(node, cut)

    def _is_whole(self) -> bool:
        return super()._is_whole() and self.record.ack == ACK_IN_SYNC


def run(
    seed: int,
    member_type: type[ClusterMember] = ClusterMember,
    kind: type[AsynchronousCluster] = AsynchronousCluster,
) -> Counter[str]:
    """Runs one seed; returns what happened.

    Raises:
        BrokenPromise: and which.
    """
    cluster = kind(seed, member_type)
    for number in range(STEPS):
        cluster.step()
        if not number % 20:
            cluster.check_logs()
    cluster.calm_down()
    acked = sum(map(len, cluster.acked.values()))
    return cluster.stats + Counter(acknowledged=acked, runs=1)
