"""
Who may propose itself as the leader, and when it tries.

Used by `member`. The set decides alone who may: its members have everything that was acknowledged. Time decides
nothing but when: of two that try at once the record takes one, and one that tries too early costs a failover, and no message. Pure: the time is passed in, of a clock that does not jump.
"""

from headrace_mq.cluster.record import GroupRecord, Identity, Proposal
from headrace_mq.errors import MessageQueueError

__all__ = [
    "LEASE_MS",
    "RENEW_MS",
    "SPREAD_MS_MAX",
    "Patience",
    "candidacy",
    "founding",
    "may_stand",
]

# A leader that says nothing for this long is taken for lost, as etcd and Patroni do within seconds. Shorter: a slow disk
# costs a failover. Longer: producers wait.
LEASE_MS = 3_000
# Three chances within a lease.
RENEW_MS = 1_000
# Candidates wait up to this much longer, so that most elections have one.
SPREAD_MS_MAX = 200


def may_stand(me: Identity, record: GroupRecord) -> bool:
    """Whether this broker, with this disk, may propose itself: only as a member of the in-sync set."""
    return me in record.in_sync


def candidacy(me: Identity, record: GroupRecord, *, keep_leader: bool = False) -> Proposal | None:
    """Returns the proposal of a broker to lead the next epoch; None if it may not.

    Args:
        me: the broker.
        record: as it was read last.
        keep_leader: the old leader handed over, so it stays in the set.
    """
    if not may_stand(me, record):
        return None
    gone = record.leader if record.leader != me.name and not keep_leader else None
    in_sync = frozenset(m for m in record.in_sync if m.name != gone)
    return Proposal(record.version, record.epoch + 1, me.name, in_sync, record.unclean)


def founding(
    me: Identity, record: GroupRecord, epoch: int, holds: str = "messages"
) -> Proposal | None:
    """Returns the change with which a broker founds a group on messages from before; None: none is needed.

    Only the record that this disk made, or would make, may have them: each other group has messages of its own at
    the same positions.

    Args:
        me: the broker, alone in the set of a record that it made.
        record: as `create` returned it; of an earlier start, if that was killed.
        epoch: the highest one of the messages; the broker may have run alone since it made the record.
        holds: what the folder would lose if it joined the group of others; for the sentence.

    Raises:
        MessageQueueError: the record is of other brokers.
    """
    if record.in_sync != {me}:
        names = " ".join(sorted(one.name for one in record.in_sync))
        raise MessageQueueError(
            f"the brokers {names} have made this group already, and this folder holds {holds} of its own, from before;"
            " choose another --group for them, or start with an empty folder to join this one"
        )
    if record.epoch >= epoch:
        return None
    return Proposal(record.version, epoch, me.name, record.in_sync, record.unclean)


class Patience:
    """How long a member waits for its leader before it stands.

    Args:
        now_ms: the time.
        spread_ms: this member's own delay, 0 to SPREAD_MS_MAX; drawn by its owner.
    """

    def __init__(self, now_ms: int, spread_ms: int) -> None:
        self._heard_ms = now_ms
        self._spread_ms = spread_ms
        self._gone = False

    def heard(self, now_ms: int) -> None:
        """Notes that a frame of the leader came."""
        self._heard_ms = max(self._heard_ms, now_ms)
        self._gone = False

    def refused(self) -> None:
        """Notes that the leader's machine refuses connections: its process is gone, so there is nothing to wait for."""
        self._gone = True

    def is_over(self, now_ms: int) -> bool:
        """Whether to stand now."""
        return self._gone or now_ms >= self._heard_ms + LEASE_MS + self._spread_ms
