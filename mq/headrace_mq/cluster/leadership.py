"""
What the leader of an epoch may commit, and who must have it.

    required = confirmed set and proposed set committed = the lowest durable end of all required members
    a member enters when its log reaches the leader's committed end and the beginning of the epoch
    a member leaves when the record says so, and not before

Used by `member`, for the time that it leads. Pure: it decides by what it was told of the record and of disks.
"""

from collections.abc import Mapping

from headrace_mq.cluster.record import GroupRecord, Identity, Proposal

__all__ = ["Leadership"]


class Leadership:
    """One epoch of one leader.

    Args:
        me: the leader.
        record: by which it leads.
        begins: where each log ended when the epoch began.
        min_in_sync: fewer members in sync commit nothing.

    Attributes:
        epoch: of the leader.
        confirmed: the in-sync set of the record, as far as is known.
        pending: a proposal whose outcome is not known yet, or None.
        durable: by member and log, what its disk has.
    """

    def __init__(
        self, me: Identity, record: GroupRecord, begins: Mapping[str, int], *, min_in_sync: int
    ) -> None:
        self.me = me
        self.epoch = record.epoch
        self.begins = dict(begins)
        self.confirmed = record.in_sync
        self.pending: Proposal | None = None
        self._joining: Identity | None = None
        self.durable: dict[Identity, dict[str, int]] = {me: dict(begins)}
        self._version, self._unclean = record.version, record.unclean
        self._min_in_sync = min_in_sync
        self._committed = dict.fromkeys(begins, 0)
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
        return self._committed[log]

    @property
    def serves(self) -> bool:
        """Whether all required members have the log up to the beginning of the epoch: before, no client is served.

        Those bytes may have been acknowledged by an earlier leader; until they are committed here, they could be
        lost with this broker, and an offset given twice.
        """
        return all(self._committed[log] >= begin for log, begin in self.begins.items())

    @property
    def shortage(self) -> str:
        """Why nothing is acknowledged, where too few are in sync, as a sentence; empty: there are enough."""
        count = len(self.confirmed)
        if count >= self._min_in_sync:
            return ""
        names = " ".join(sorted(member.name for member in self.confirmed))
        return (
            f"of the {self._min_in_sync} brokers that must be in sync, {count} is there: {names}; start another broker of the"
            f" group, which enters once it has everything, or start this one again with --min-in-sync {count}"
        )

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
                self.durable.get(member, {}).get(log, -1) < at for log, at in self.begins.items()
            )
        ]
        return f"it waits for {' '.join(behind)}, which must have every message first, or is taken out of the set within seconds"

    def on_durable(self, member: Identity, log: str, end: int) -> None:
        """Takes what a member's disk has of this epoch's log.

        An earlier disk of the same broker is forgotten: else it could enter the set again, and leave, without end.
        """
        ends = self.durable.get(member)
        if ends is None:
            for other in [m for m in self.durable if m.name == member.name]:
                del self.durable[other]
            ends = self.durable[member] = {}
        if end > ends.get(log, -1):
            ends[log] = max(end, 0)
            self._commit(log)

    def on_record(self, record: GroupRecord) -> None:
        """Takes over a record of this epoch that was read: it may confirm a proposal, but never that one failed."""
        if record.version < self._version:
            return
        self._version, self._unclean = record.version, record.unclean
        self.confirmed = record.in_sync
        if self.pending is not None and self.pending.in_sync == record.in_sync:
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

        Below the committed end it would lack what was acknowledged; below the beginning, what may have been.
        """
        ends = self.durable.get(member, {})
        return all(
            ends.get(log, -1) >= max(self._committed[log], begin)
            for log, begin in self.begins.items()
        )

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

    def _propose(self, in_sync: frozenset[Identity]) -> Proposal:
        self.pending = Proposal(self._version, self.epoch, self.me.name, in_sync, self._unclean)
        self._commit()
        return self.pending

    def _commit(self, *logs: str) -> None:
        """Commits what all required members have, of these logs or of all."""
        required = self.required
        if len(self.confirmed) < self._min_in_sync or self.me not in required:
            return
        ends = [self.durable.get(member, {}) for member in required]
        for log in logs or self._committed:
            end = min(each.get(log, 0) for each in ends)
            self._committed[log] = max(self._committed[log], end)
