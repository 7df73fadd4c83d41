"""
What holds of a simulated group at every moment, in any weather.

Used by `simulated_cluster`, which checks the promises that need its record and its clients itself; reads `machines`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from headrace_mq.cluster.record import GroupRecord, Proposal
from headrace_mq.testing.cluster.machines import Entry, SimulatedNode

__all__ = [
    "BrokenPromise",
    "check_change",
    "check_copies",
    "check_epochs",
    "check_leader",
    "check_readable",
    "require",
]


class BrokenPromise(Exception):
    """A promise that a run broke."""


def require(holds: bool, promise: str) -> None:
    """Raises BrokenPromise unless the promise holds."""
    if not holds:
        raise BrokenPromise(promise)


def check_copies(members: Iterable[SimulatedNode], log: str, position: int, entry: Entry) -> None:
    """Every member of the set has an acknowledged entry on its disk.

    Raises:
        BrokenPromise: one lacks it.
    """
    for node in members:
        held = node.logs[log]
        require(
            position < held.durable and held.entries[position] == entry,
            f"{log} {position} is acknowledged, but {node.name} of the set lacks it",
        )


def check_leader(node: SimulatedNode, log: str, acked: Sequence[Entry]) -> None:
    """A new leader has everything that was acknowledged.

    Raises:
        BrokenPromise: it lacks some.
    """
    held = node.logs[log]
    for position, entry in enumerate(acked):
        there = position < held.end and held.entries[position] == entry
        require(there, f"leader {node.name} lacks {log} {position}")


def check_readable(
    node: SimulatedNode, acked: Mapping[str, Sequence[Entry]], without: Collection[str] = ()
) -> None:
    """Readers see only what is acknowledged, at its place.

    Args:
        node: may be down; then it shows nothing.
        acked: the acknowledged entries of each log.
        without: logs of which it may show others.

    Raises:
        BrokenPromise: it shows another entry.
    """
    member = node.member
    if member is None:
        return
    for name, log in node.logs.items():
        for position in range(0 if name in without else member.readable(name)):
            there = position < len(acked[name]) and log.entries[position] == acked[name][position]
            require(there, f"{node.name} shows {name} {position}, which is not acknowledged")


def check_epochs(node: SimulatedNode) -> None:
    """Epochs grow along each log, and its history says where they begin.

    Raises:
        BrokenPromise: they fall, or the history is of another log.
    """
    for name, log in node.logs.items():
        epochs = [epoch for epoch, _ in log.entries]
        require(epochs == sorted(epochs), f"epochs of {node.name} {name} fall")
        if node.member is not None:
            wrong = [at for at, e in enumerate(epochs) if log.history.last(at + 1) != e]
            require(not wrong, f"the epochs of {node.name} {name} are not its entries'")


def check_change(record: GroupRecord, proposal: Proposal) -> None:
    """An epoch has one leader, elected from the set before, and epochs grow one by one.

    Args:
        record: as it is.
        proposal: is about to change it.

    Raises:
        BrokenPromise: it is no such change.
    """
    require(proposal.epoch in {record.epoch, record.epoch + 1}, "the epoch jumped")
    if proposal.epoch == record.epoch:
        require(proposal.leader == record.leader, "two leaders by one epoch")
        return
    before = {member.name for member in record.in_sync}
    require(proposal.leader in before, f"{proposal.leader} was elected from outside the set")
