"""
The record of a group: the one thing that its brokers must agree on, changed by compare-and-set alone.

    version 7 │ epoch 3 │ leader a │ in sync {a, b, c}      propose(seen=7, …) ─▶ version 8, or `Refused` with what is there

Used by `leadership`, `election` and `member`, which decide, and by the owner of a member, who keeps the record in one of
`records`. Pure, but for the port: a database keeps the record.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from headrace_mq.errors import MessageQueueError

__all__ = [
    "ACK_IN_SYNC",
    "ACK_LEADER",
    "ACK_TO_IN_SYNC",
    "FEATURE_LEVEL",
    "RECORD_TIMEOUT_MS",
    "GroupRecord",
    "Identity",
    "LogPlace",
    "OutcomeUnknown",
    "Proposal",
    "RecordKeeper",
    "RecordUnavailable",
    "Refused",
    "Registration",
    "is_of_another_group",
    "silence_of",
    "went_back",
]

# A change of one row or key takes a millisecond; a leader's lease of three seconds holds two such waits.
RECORD_TIMEOUT_MS = 1_000

# Who must have a message on its disk before it is acknowledged. All in sync: no election loses one.
ACK_IN_SYNC = "in_sync"
# All in sync again, but what the leader acknowledged alone may still be on its disk alone: an election may lose that. The
# leader ends this step by itself.
ACK_TO_IN_SYNC = "to_in_sync"
# The leader alone, and replicas follow behind: an election may lose what no other disk has.
ACK_LEADER = "leader"
# What a broker of this version knows of groups, as it reports it. 0: nothing of this; 1: that a leader may acknowledge alone.
FEATURE_LEVEL = 1


class Identity(NamedTuple):
    """A broker of a group with the disk that it has: an empty disk is another member under the same name."""

    name: str
    store_id: str


class GroupRecord(NamedTuple):
    """What the group agreed on.

    Attributes:
        version: grows by one with each change.
        epoch: of the leader; grows with each beginning of leading.
        leader: its name.
        in_sync: the members without which nothing is acknowledged, and of which one is elected.
        unclean: the epoch in which an operator last promoted a broker that lacks messages; 0: none, or it was settled.
        lossy: the epoch of the last such promotion, settled or not, or of the last election that may have lost messages
            because leaders acknowledge alone: a broker that was away must see it later as well.
        group_id: made with the record, and never changed: another record of the same name is of another group; empty: not
            known, as an earlier version kept it.
        ack: who must have a message before it is acknowledged: `ACK_IN_SYNC`, `ACK_TO_IN_SYNC` or `ACK_LEADER`.
    """

    version: int
    epoch: int
    leader: str
    in_sync: frozenset[Identity]
    unclean: int = 0
    lossy: int = 0
    group_id: str = ""
    ack: str = ACK_IN_SYNC

    @property
    def last_loss(self) -> int:
        """The epoch that last began with a loss, or may have; a record of an earlier version has the mark of a promotion alone."""
        return max(self.lossy, self.unclean)

    def changed(self, proposal: "Proposal") -> "GroupRecord":
        """Returns the record that a proposal makes of this one."""
        lost = proposal.epoch if self.may_lose(proposal) else 0
        return GroupRecord(
            self.version + 1, proposal.epoch, proposal.leader, proposal.in_sync, proposal.unclean,
            max(self.last_loss, proposal.unclean, lost), self.group_id, proposal.ack or self.ack,
        )  # fmt: skip

    def may_lose(self, proposal: "Proposal") -> bool:
        """Whether a change elects a leader that may lack what an earlier one acknowledged alone.

        The same leader with the same disk lacks nothing of that. Keepers with a database say the same in its language.
        """
        if proposal.epoch <= self.epoch or self.ack == ACK_IN_SYNC or proposal.complete:
            return False
        before = {one for one in self.in_sync if one.name == self.leader}
        return not any(one in before and one.name == proposal.leader for one in proposal.in_sync)


class Proposal(NamedTuple):
    """A change of the record; `seen` is the version that it changes. The rest is what the record has then.

    Attributes:
        ack: who must have a message before it is acknowledged; empty: as before.
        complete: the new leader has everything that was acknowledged, and nothing more is acknowledged by the record that it
            saw: its leader hands over.
    """

    seen: int
    epoch: int
    leader: str
    in_sync: frozenset[Identity]
    unclean: int = 0
    ack: str = ""
    complete: bool = False


class LogPlace(NamedTuple):
    """Where a broker's log ends on its disk, and the epoch of its last byte."""

    log: str
    epoch: int
    end: int


class Registration(NamedTuple):
    """What a broker last reported of itself, and how long ago by the clock of the record's database.

    `level`: what it knows of groups, see `FEATURE_LEVEL`; 0: a broker of an earlier version reported.
    """

    member: Identity
    logs: tuple[LogPlace, ...]
    age_ms: int
    level: int = 0


class Refused(MessageQueueError):
    """The record was changed before: the proposal is void. `record` is what is there now."""

    def __init__(self, record: GroupRecord) -> None:
        super().__init__(f"the group's record has version {record.version} already")
        self.record = record


class RecordUnavailable(MessageQueueError):
    """The record cannot be read: no failover and no change of the set meanwhile, and nothing else."""


class OutcomeUnknown(RecordUnavailable):
    """A proposal was sent and no answer came: it may be made, now or later. Only another change of the record ends that."""


class RecordKeeper(Protocol):
    """Keeps the record of one group; every call has a time limit."""

    async def read(self) -> GroupRecord:
        """Returns the record, as the last confirmed change left it.

        Raises:
            RecordUnavailable: no answer in time, or no group of that name.
        """
        ...

    async def create(
        self, leader: Identity, in_sync: Collection[Identity], epoch: int = 1
    ) -> GroupRecord:
        """Makes the record at version 1, or returns the one that is there.

        Args:
            leader: leads it by name; it takes the next epoch before it does.
            in_sync: its members.
            epoch: no lower than that of any byte that the leader has.

        Raises:
            RecordUnavailable: no answer in time; call it again.
        """
        ...

    async def propose(self, proposal: Proposal, group_id: str = "") -> GroupRecord:
        """Changes the record if it has the version that the proposal saw; durable on return.

        Args:
            proposal: the change.
            group_id: of the group that it is for; empty: of any.

        Raises:
            Refused: it has another version, or is of another group.
            OutcomeUnknown: no answer in time.
        """
        ...

    async def register(
        self, member: Identity, logs: Sequence[LogPlace], level: int = FEATURE_LEVEL
    ) -> frozenset[str]:
        """Keeps what a broker reports of itself; returns the names of all that have.

        Args:
            member: the broker.
            logs: how far its logs are.
            level: what it knows of groups.

        Raises:
            RecordUnavailable: no answer in time.
        """
        ...

    async def registered(self) -> list[Registration]:
        """Returns what each broker reported last, in the order of their names. Raises RecordUnavailable."""
        ...

    async def forget(self, name: str) -> None:
        """Drops what a broker reported. Raises RecordUnavailable."""
        ...

    async def aclose(self) -> None:
        """Gives its connections back."""
        ...


def silence_of(group: str, error: Exception) -> str:
    """Says that a keeper does not answer, why, and what follows."""
    return (
        f"the record of the group {group!r} does not answer ({type(error).__name__}: {error}); start or repair"
        " its database: the leader goes on meanwhile, and no other is elected"
    )


def is_of_another_group(seen: GroupRecord, found: GroupRecord) -> bool:
    """Whether a record is of another group than one that was seen: a mistyped address, or it was deleted and made again."""
    return bool(seen.group_id and found.group_id) and seen.group_id != found.group_id


def went_back(seen: GroupRecord, found: GroupRecord) -> bool:
    """Whether a record is older than one that was seen, or of another group.

    A database was restored, or failed over and lost a change; see also `is_of_another_group`. Nothing may be decided by such a record: a set that it names may lack a member that acknowledged since.
    """
    # What an earlier version kept lacks the epoch of the last loss, the id, and who acknowledges.
    ack = found.ack if seen.ack == ACK_IN_SYNC else seen.ack
    same = seen._replace(lossy=found.lossy, group_id=found.group_id, ack=ack)
    return (
        is_of_another_group(seen, found)
        or (found.epoch, found.version) < (seen.epoch, seen.version)
        or (found.version == seen.version and same != found)
    )
