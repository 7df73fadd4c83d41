"""
What the leader of an epoch may commit, and who must have it.

    required = confirmed set and proposed set
    shared = the lowest durable end of all required members
    committed = shared; where the leader acknowledges alone: its own durable end, and shared for documents
    a member enters when its log reaches the leader's committed end and the beginning of the epoch
    a member leaves when the record says so, and not before

Used by `member`, for the time that it leads. Pure: it decides by what it was told of the record and of disks.
"""

from collections.abc import Collection, Mapping

from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    ACK_TO_IN_SYNC,
    GroupRecord,
    Identity,
    Proposal,
)

__all__ = ["Leadership"]


class Leadership:
    """One epoch of one leader.

    Args:
        me: the leader.
        record: by which it leads.
        begins: where each log ended when the epoch began.
        min_in_sync: fewer members in sync commit nothing, unless the leader acknowledges alone.
        documents: the logs that all required members must have in any case.

    Attributes:
        epoch: of the leader.
        ack: who must have a message before it is acknowledged, as the record says.
        confirmed: the in-sync set of the record, as far as is known.
        pending: a proposal whose outcome is not known yet, or None.
        durable: by member and log, what its disk has.
    """

    def __init__(
        self,
        me: Identity,
        record: GroupRecord,
        begins: Mapping[str, int],
        *,
        min_in_sync: int,
        documents: Collection[str] = (),
    ) -> None:
        self.me = me
        self.epoch = record.epoch
        self.ack = record.ack
        self.begins = dict(begins)
        self.confirmed = record.in_sync
        self.pending: Proposal | None = None
        self._joining: Identity | None = None
        self.durable: dict[Identity, dict[str, int]] = {me: dict(begins)}
        self._version, self._unclean = record.version, record.unclean
        self._min_in_sync = min_in_sync
        self._documents = frozenset(documents)
        self._shared = dict.fromkeys(begins, 0)
        # What the leader acknowledged alone, as long as some required member may lack some of it.
        self._alone: dict[str, int] = {}
        # The version by which another member may be elected that has everything; -1: none.
        self._bound = -1
        self._commit()

    @property
    def joining(self) -> Identity | None:
        """A member outside the set that nearly has the whole log; what it lacks is not committed meanwhile.

        Else a busy leader's committed end would stay ahead of it for ever. None: no member.
        """
        return self._joining

    @joining.setter
    def joining(self, member: Identity | None) -> None:
        if member != self._joining:
            self._joining = member
            self._commit()

    @property
    def required(self) -> frozenset[Identity]:
        """The members that must have a message before it is acknowledged: of either set while one is proposed."""
        required = self.confirmed
        if self._joining is not None:
            required |= {self._joining}
        if self.pending is not None:
            required |= self.pending.in_sync
        return required

    def committed(self, log: str) -> int:
        """Returns the position below which a log may be acknowledged and read."""
        if self._alone:
            return max(self._shared[log], self._alone.get(log, 0))
        return self._shared[log]

    def shared(self, log: str) -> int:
        """Returns the position below which all required members have a log, so that each of them has it if it is elected."""
        return self._shared[log]

    @property
    def is_ahead(self) -> bool:
        """Whether some of what is committed may be on the leader's disk alone: only what is shared may be thrown away."""
        return bool(self._alone)

    @property
    def acknowledges_alone(self) -> bool:
        """Whether the leader waits for no replica: not while another member may be elected that has everything."""
        return self.ack == ACK_LEADER and self._version > self._bound

    def bind(self) -> int:
        """Acknowledges nothing alone by the version of the record that is known, which is returned; see `settle`."""
        self._bound = self._version
        return self._version

    @property
    def serves(self) -> bool:
        """Whether all required members have the log up to the beginning of the epoch: before, no client is served.

        Those bytes may have been acknowledged by an earlier leader; until they are committed here, they could be
        lost with this broker, and an offset given twice.
        """
        return all(self.committed(log) >= begin for log, begin in self.begins.items())

    @property
    def shortage(self) -> str:
        """Why nothing is acknowledged, where too few are in sync, as a sentence; empty: there are enough."""
        count = len(self.confirmed)
        if not self._are_too_few:
            return ""
        names = " ".join(sorted(member.name for member in self.confirmed))
        return (
            f"of the {self._min_in_sync} brokers that must be in sync, {count} is there: {names}; start another broker of the"
            f" group, which enters once it has everything, or start this one again with --min-in-sync {count}"
        )

    @property
    def _are_too_few(self) -> bool:
        return len(self.confirmed) < self._min_in_sync and self.ack != ACK_LEADER

    @property
    def hindrance(self) -> str:
        """What keeps this leader from serving clients, as a sentence; empty: it serves."""
        if self.serves:
            return ""
        if why := self.shortage:
            return why
        behind = [
            member.name
            for member in sorted(self.required - {self.me})
            if any(
                self.durable.get(member, {}).get(log, -1) < at > self.committed(log)
                for log, at in self.begins.items()
            )
        ]
        return f"it waits for {' '.join(behind)}, which must have every message first, or is taken out of the set within seconds"

    def on_durable(self, member: Identity, log: str, end: int) -> None:
        """Takes what a member's disk has of this epoch's log.

        An earlier disk of the same broker is forgotten: else it could enter the set again, and leave, without end. Documents
        count once the member has reported every other log in this epoch. Until then it may not have cut one, and where it
        becomes the next leader, its messages would differ from those acknowledged here.
        """
        ends = self.durable.get(member)
        if ends is None:
            for other in [m for m in self.durable if m.name == member.name]:
                del self.durable[other]
            ends = self.durable[member] = {}
        if log in self._documents and not ends.keys() | self._documents >= self.begins.keys():
            return
        if end > ends.get(log, -1):
            ends[log] = max(end, 0)
            self._commit(log)

    def on_record(self, record: GroupRecord) -> None:
        """Takes over a record of this epoch that was read: it may confirm a proposal, but never that one failed."""
        if record.version < self._version:
            return
        self._version, self._unclean = record.version, record.unclean
        self.confirmed, self.ack = record.in_sync, record.ack
        if self.pending is not None and _is_made(self.pending, record):
            self.pending = None
        self._commit()

    def on_refused(self, proposal: Proposal) -> None:
        """Drops a proposal that was refused: its request is void, because the record has another version.

        Call it after `on_record` with the record that is there: an earlier request with the same content may have
        been made.
        """
        if self.pending == proposal:
            self.pending = None
        self._commit()

    def entrants(self) -> list[Identity]:
        """Returns the members outside the set whose logs are complete enough to enter it."""
        return sorted(m for m in self.durable if m not in self.confirmed and self.may_enter(m))

    def may_enter(self, member: Identity) -> bool:
        """Whether a member's log reaches the committed end and the beginning of the epoch, on its disk.

        Below the committed end it would lack what was acknowledged; below the beginning, what may have been. Where the leader
        acknowledges alone, what is shared is enough: below that, the leader may have thrown messages away.
        """
        ends = self.durable.get(member, {})
        behind = self.shared if self.ack == ACK_LEADER else self.committed
        return all(
            ends.get(log, -1) >= max(behind(log), begin) for log, begin in self.begins.items()
        )

    def _has_all(self, member: Identity) -> bool:
        """Whether a member has everything that was acknowledged, and all from before the epoch."""
        ends = self.durable.get(member, {})
        return all(
            ends.get(log, -1) >= max(self.committed(log), begin)
            for log, begin in self.begins.items()
        )

    def settle(self) -> Proposal | None:
        """Returns the change that is due because of who acknowledges; None: there is none, or another one is pending.

        On the way back to all in sync: that they are, once all required members have everything. After a hand-over that
        failed: nothing but another version, by which the other member is not elected any more.
        """
        if self.pending is not None:
            return None
        if self.ack == ACK_TO_IN_SYNC and not self._are_too_few:
            if all(map(self._has_all, self.required)):
                return self._propose(self.confirmed, ACK_IN_SYNC)
        elif self.ack == ACK_LEADER and not self.acknowledges_alone:
            return self._propose(self.confirmed)
        return None

    def grow(self, member: Identity) -> Proposal | None:
        """Proposes that a member enters the set; it is required from now on. None if one is pending."""
        if self.pending is not None or not self.may_enter(member):
            return None
        # The same broker with an earlier disk leaves.
        others = frozenset(m for m in self.confirmed if m.name != member.name)
        return self._propose(others | {member})

    def shrink(self, member: Identity) -> Proposal | None:
        """Proposes that a member leaves the set; it stays required until that is confirmed. None if one is pending."""
        if self.pending is not None or member not in self.confirmed or member == self.me:
            return None
        return self._propose(self.confirmed - {member})

    def _propose(self, in_sync: frozenset[Identity], ack: str = "") -> Proposal:
        self.pending = Proposal(
            self._version, self.epoch, self.me.name, in_sync, self._unclean, ack
        )
        self._commit()
        return self.pending

    def _commit(self, *logs: str) -> None:
        """Commits what all required members have, of these logs or of all; and what the leader has, if that is enough."""
        required = self.required
        if self._are_too_few or self.me not in required:
            return
        ends = [self.durable.get(member, {}) for member in required]
        for log in logs or self._shared:
            end = min(each.get(log, 0) for each in ends)
            self._shared[log] = max(self._shared[log], end)
        if self.acknowledges_alone:
            own = self.durable[self.me]
            for log in logs or self._shared:
                if log not in self._documents:
                    self._alone[log] = max(self._alone.get(log, 0), own.get(log, 0))
        elif self._alone and all(self._shared[log] >= end for log, end in self._alone.items()):
            self._alone = {}


def _is_made(pending: Proposal, record: GroupRecord) -> bool:
    """Whether a record shows that a proposal was made."""
    return (
        pending.in_sync == record.in_sync
        and record.version > pending.seen
        and pending.ack in {"", record.ack}
    )
