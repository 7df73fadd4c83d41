"""
The machines of a simulated group: logs in memory of which a part is on the disk, and what is on its way between them.

Used by `simulated_cluster`; a log here is what `headrace_mq.cluster.member` asks of one. It knows no faults.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace_mq.cluster.election import Patience
from headrace_mq.cluster.frames import Frame
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.record import GroupRecord, Identity, Proposal
from headrace_mq.store.replication.epochs import EpochHistory

__all__ = ["LOGS", "Entry", "Letter", "Request", "SimulatedLog", "SimulatedNode"]

LOGS = ("forever", "transient")

# The epoch that wrote it, and a number that stands for the message.
Entry = tuple[int, int]


class SimulatedLog:
    """A log in memory: entries, of which the first `durable` are on the disk."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.durable = 0
        self.history = EpochHistory()

    @property
    def end(self) -> int:
        """The number of entries."""
        return len(self.entries)

    def append(self, entries: Sequence[Entry]) -> None:
        """Appends entries of the leader of a later epoch; the epochs that they begin are noted before."""
        starts, last = [], self.history.last(self.end)
        for position, (epoch, _) in enumerate(entries, start=self.end):
            if epoch != last:
                starts.append((epoch, position))
                last = epoch
        if entries:
            self.history.take_over(self.end, starts)
        self.entries += entries

    def cut(self, position: int) -> None:
        """Cuts the entries from a position on, but not yet their epochs."""
        del self.entries[position:]
        self.durable = min(self.durable, position)

    def start(self) -> None:
        """What a start finds is durable; epochs without bytes are forgotten."""
        self.durable = self.end
        self.history.cut(self.end)


class Letter(NamedTuple):
    """A frame on its way, with the entries that a `Send` brings."""

    sender: str
    to: str
    frame: Frame
    entries: tuple[Entry, ...] = ()


class Request(NamedTuple):
    """A proposal on its way to the record, or its answer on the way back."""

    name: str
    start: int
    proposal: Proposal
    made: bool | None = None


class SimulatedNode:
    """One machine with a broker.

    Attributes:
        member: the rules of this start; None while it is down.
        starts: how often it was started.
        stands_still: whether it is paused.
        hands_over_to: set while a leader stops in order.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.store = 0
        self.logs = {log: SimulatedLog() for log in LOGS}
        self.member: ClusterMember | None = None
        self.seen: GroupRecord | None = None
        self.starts = 0
        self.stands_still = False
        self.ahead_ms = 0
        self.patience = Patience(0, 0)
        self.hands_over_to: Identity | None = None

    @property
    def me(self) -> Identity:
        """The broker with its present disk."""
        return Identity(self.name, f"store-{self.store}")

    def wipe(self) -> None:
        """Gives it an empty disk."""
        self.logs = {log: SimulatedLog() for log in LOGS}
        self.seen = None
