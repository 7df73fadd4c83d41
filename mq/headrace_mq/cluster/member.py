"""
One broker of a group, without its disk, its network and its clock: what it may do next.

    record ──▶ on_record ──▶ LEAD: open the log as a leader, note the epoch, `lead`
                        └──▶ FOLLOW: stop leading; ask the new leader
    frames ──▶ on_follow, on_send, on_parted, on_durable ──▶ a frame to answer with, or what to do with the log

Used by the owner of a store, who carries out what it returns: a cut is a close, a cut and an open; bytes are taken by the
store's raw append. Uses `leadership`, `election` and the epochs of `store.replication`. Pure.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from headrace_mq.cluster.election import candidacy
from headrace_mq.cluster.frames import DurableEnd, Follow, HandOver, Parted, Send, StaleEpoch
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.record import GroupRecord, Identity, Proposal, went_back
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.replication.epochs import EpochHistory

__all__ = ["ClusterMember", "Cut", "Log", "Turn"]


class Log(Protocol):
    """What a member must know of one of its logs.

    After a start, the log's owner forgets epochs that begin at its end or later (`EpochFile.open`).
    """

    @property
    def end(self) -> int:
        """Where it ends, written or not synced yet."""
        ...

    @property
    def durable(self) -> int:
        """Below this position every byte is on the disk."""
        ...

    @property
    def history(self) -> EpochHistory:
        """Where its epochs begin."""
        ...


class Turn(Enum):
    """What a record that was read asks of a member."""

    GO_ON = "go on as before"
    LEAD = "make the log durable, note the epoch, then call `lead`"
    FOLLOW = "stop leading, and ask the leader of the record"
    WENT_BACK = "the record is older than one seen, or of another group: decide nothing by it, and raise an alarm"


class Cut(NamedTuple):
    """Cut a log at a position, with its epochs, durably; then ask the leader again.

    `loses`: what is cut may have been acknowledged, because a broker led since that lacked messages; keep it in a file.
    """

    log: str
    position: int
    loses: bool = False


class ClusterMember:
    """One start of one broker.

    Args:
        me: the broker, with the id of its store.
        logs: by name; the member reads them whenever it decides.
        seen: the newest record that this broker ever saw, from its disk; None at the first start.
        min_in_sync: fewer members in sync commit nothing, unless the leader acknowledges alone.
        documents: of the logs, those that all in sync must have in any case.

    Attributes:
        epoch: the highest one seen; frames of a lower one change nothing.
        leadership: of this epoch, while it leads.
        seen: the newest record.
        is_frozen: whether the record was older than one seen, or of another group, when it was read last: nothing may be
            proposed.
    """

    def __init__(
        self,
        me: Identity,
        logs: Mapping[str, Log],
        *,
        seen: GroupRecord | None = None,
        min_in_sync: int = 1,
        documents: Collection[str] = (),
    ) -> None:
        self.me = me
        self.seen = seen
        self.leadership: Leadership | None = None
        self.is_frozen = False
        self._logs = logs
        self._min_in_sync = min_in_sync
        self._documents = documents
        newest = [log.history.last(log.end) for log in logs.values()]
        self.epoch = max([seen.epoch if seen else 0, *newest])
        # Of epoch `_won`, this start won the election itself.
        self._stands_for = 0
        self._verified: set[str] = set()
        self._committed = dict.fromkeys(logs, 0)
        self._shared = dict.fromkeys(logs, 0)

    # The record.

    def on_record(self, record: GroupRecord) -> Turn:
        """Takes over a record that was read, or that a proposal returned."""
        if self.seen is not None and went_back(self.seen, record):
            self.is_frozen = True
            return Turn.WENT_BACK
        self.is_frozen = False
        if self.seen is not None and record.last_loss > self.seen.last_loss:
            # An operator accepted that the new leader lacks messages, or leaders acknowledge alone, so what was committed may
            # be cut. The alarm may be settled already.
            self._committed = dict.fromkeys(self._logs, 0)
            self._shared = dict.fromkeys(self._logs, 0)
        self.seen = record
        led = self.leadership is not None
        if record.epoch > self.epoch:
            self._go_to(record.epoch)
        if self.leadership is not None:
            self.leadership.on_record(record)
            return Turn.GO_ON
        if self._is_won(record):
            return Turn.LEAD
        return Turn.FOLLOW if led else Turn.GO_ON

    def on_refused(self, proposal: Proposal, record: GroupRecord) -> Turn:
        """Takes over that a proposal was refused, and the record that is there."""
        turn = self.on_record(record)
        if self.leadership is not None and turn is not Turn.WENT_BACK:
            self.leadership.on_refused(proposal)
        elif turn is not Turn.LEAD and proposal.epoch == self._stands_for:
            # An operator may promote this member in the same epoch: then it stands for the next one, as after a start.
            self._stands_for = 0
        return turn

    def stand(self, *, keep_leader: bool = False) -> Proposal | None:
        """Returns the proposal to lead the next epoch, or None if this member may not."""
        if self.seen is None or self.leadership is not None or self.is_frozen:
            return None
        proposal = candidacy(self.me, self.seen, keep_leader=keep_leader)
        if proposal is not None:
            self._stands_for = proposal.epoch
        return proposal

    def lead(self) -> Leadership:
        """Begins to lead, after `Turn.LEAD` was carried out: the log is durable, and its epoch is noted."""
        assert self.seen is not None
        begins = {name: log.end for name, log in self._logs.items()}
        self.leadership = self._leadership(self.seen, begins)
        for name, log in self._logs.items():
            self.leadership.on_durable(self.me, name, log.durable)
        return self.leadership

    def resign(self) -> None:
        """Leads no longer in this epoch, as after a restart: another may lead a later one, which this one cannot know."""
        self.leadership = None
        self._stands_for = 0
        self._verified.clear()

    def _leadership(self, record: GroupRecord, begins: Mapping[str, int]) -> Leadership:
        return Leadership(
            self.me, record, begins, min_in_sync=self._min_in_sync, documents=self._documents
        )

    def _is_won(self, record: GroupRecord) -> bool:
        """Whether this start of this broker proposed the epoch itself: an earlier one's is taken up by no other."""
        return (
            record.leader == self.me.name
            and self.me in record.in_sync
            and record.epoch == self.epoch == self._stands_for
        )

    def _go_to(self, epoch: int) -> None:
        self.epoch = epoch
        self.leadership = None
        self._verified.clear()

    # As the leader.

    def on_synced(self) -> None:
        """Takes over how far the own disk is."""
        if self.leadership is not None:
            for name, log in self._logs.items():
                self.leadership.on_durable(self.me, name, log.durable)

    def on_follow(self, frame: Follow) -> Send | Parted | StaleEpoch | None:
        """Answers a replica; None if this member cannot."""
        if not self._is_current(frame.epoch):
            return StaleEpoch(self.epoch) if frame.epoch < self.epoch else None
        if self.leadership is None:
            return None
        log = self._logs[frame.log]
        found, found_end = self._common(log, frame)
        if frame.end > found_end or found < frame.last:
            asked = (frame.log, frame.end, frame.last)
            return Parted(self.epoch, *asked, found, found_end, self.last_loss)
        shared = self.leadership.shared(frame.log) if self.leadership.is_ahead else -1
        committed = self.leadership.committed(frame.log)
        return Send(self.epoch, frame.log, frame.end, committed, shared)

    def on_durable(self, frame: DurableEnd) -> None:
        """Takes over what a replica's disk has; of another epoch, it may be of another log."""
        if self._is_current(frame.epoch) and self.leadership is not None:
            end = min(frame.end, self._logs[frame.log].end)
            self.leadership.on_durable(frame.member, frame.log, end)

    def grow(self, member: Identity) -> Proposal | None:
        """Proposes that a member enters the set; see `Leadership.grow`. None if it may not, or the record went back."""
        if self.leadership is None or self.is_frozen:
            return None
        return self.leadership.grow(member)

    def shrink(self, member: Identity) -> Proposal | None:
        """Proposes that a member leaves the set; see `Leadership.shrink`."""
        if self.leadership is None or self.is_frozen:
            return None
        return self.leadership.shrink(member)

    def settle(self) -> Proposal | None:
        """Proposes what is due because of who acknowledges; see `Leadership.settle`. Not while this member hands over."""
        if self.leadership is None or self.is_frozen:
            return None
        return self.leadership.settle()

    def hand_over(self, to: Identity) -> HandOver | None:
        """Returns the frame that asks a member of the set to lead, once its disk has all of every log; else None.

        The leader accepts no message meanwhile, and goes on to accept them if no later epoch comes in time. Until the record
        has another version, it acknowledges none alone then: that member may still be elected by this one.
        """
        if self.leadership is None or to not in self.leadership.confirmed or to == self.me:
            return None
        ends = self.leadership.durable.get(to, {})
        complete = all(ends.get(name, -1) >= log.end for name, log in self._logs.items())
        return HandOver(self.epoch, version=self.leadership.bind()) if complete else None

    @property
    def group_id(self) -> str:
        """Of the group; empty while it is not known."""
        return "" if self.seen is None else self.seen.group_id

    @property
    def last_loss(self) -> int:
        """The epoch in which the group last lost messages, as far as is known; 0: it never did."""
        return 0 if self.seen is None else self.seen.last_loss

    @staticmethod
    def _common(log: Log, frame: Follow) -> tuple[int, int]:
        return log.history.end_of(frame.last, log.end)

    def _is_current(self, epoch: int) -> bool:
        """Whether a frame is of this epoch; a later one ends the leading."""
        if epoch > self.epoch:
            self._go_to(epoch)
            return False
        return epoch == self.epoch

    # As a replica.

    def follow(self, log: str) -> Follow:
        """Returns the question to the leader."""
        held = self._logs[log]
        return Follow(self.epoch, self.me, log, held.end, held.history.last(held.end))

    def on_stale(self, frame: StaleEpoch) -> None:
        """Takes over a later epoch; the next question has it."""
        self._is_current(frame.epoch)

    def on_send(self, frame: Send, length: int) -> bool:
        """Returns whether to append the bytes that came with the frame.

        The log is verified then: in this epoch the leader confirmed what stands before them.

        Args:
            frame: of the leader.
            length: of the bytes, in bytes; may be 0.
        """
        log = self._logs[frame.log]
        if not self._takes(frame.epoch) or frame.position != log.end:
            return False
        self._verified.add(frame.log)
        known = min(frame.committed, log.end + length)
        self._committed[frame.log] = max(self._committed[frame.log], known)
        shared = known if frame.shared < 0 else min(known, frame.shared)
        self._shared[frame.log] = max(self._shared[frame.log], shared)
        return True

    def on_parted(self, frame: Parted) -> Cut | None:
        """Returns where to cut a log, or None if the answer is an old one.

        Raises:
            DataCorrupt: it would cut what was committed. The logs are not of one group, or one of them was changed.
        """
        log = self._logs[frame.log]
        asked = (log.end, log.history.last(log.end))
        if not self._takes(frame.epoch) or (frame.end, frame.last) != asked:
            return None
        position = log.history.parts_at(log.end, frame.found, frame.found_end)
        if position < self._committed[frame.log] and not self._has_seen(frame.epoch):
            # The record may say that a loss was accepted since.
            return None
        if position < self._committed[frame.log]:
            raise DataCorrupt(
                f"the leader of epoch {frame.epoch} has the log {frame.log!r} only up to {position}, but it is committed"
                f" up to {self._committed[frame.log]} here; stop both brokers and compare their directories"
            )
        last_loss = max(self.last_loss, frame.lossy)
        return Cut(frame.log, position, loses=last_loss > log.history.last(log.end))

    def _has_seen(self, epoch: int) -> bool:
        """Whether this member has read the record of an epoch."""
        return self.seen is not None and self.seen.epoch >= epoch

    def on_restart(self, epoch: int, log: str, position: int) -> bool:
        """Returns whether to drop all of a log and to go on at a later position, where the leader's log begins.

        The leader says so only of a log that is equal to its own, as far as it goes; else the logs part.
        """
        return self._takes(epoch) and position > self._logs[log].end

    def on_copy(self, epoch: int, log: str, position: int) -> bool:
        """Returns whether to put a compacted segment of the leader's at the end of a log, which must be its position."""
        return self._takes(epoch) and position == self._logs[log].end

    def on_rewind(self, epoch: int, log: str) -> bool:
        """Returns whether to drop all of a log and to copy it whole, because its end lies in what the leader compacted.

        A member of the set has all that was committed, so it drops nothing: the leader compacts below that.
        """
        if not self._takes(epoch) or self.seen is None:
            return False
        if self.seen.epoch != epoch or self.me in self.seen.in_sync:
            return False
        self._verified.discard(log)
        self._committed[log] = self._shared[log] = 0
        return True

    def on_hand_over(self, frame: HandOver) -> Proposal | None:
        """Returns the proposal to lead, with the old leader in the set unless it leaves; None if the frame is an old one."""
        if not self._takes(frame.epoch) or self.seen is None or self.seen.epoch != frame.epoch:
            return None
        proposal = self.stand(keep_leader=not frame.leaves)
        if proposal is None or frame.version != proposal.seen:
            return proposal
        return proposal._replace(complete=True)

    def _takes(self, epoch: int) -> bool:
        return self._is_current(epoch) and self.leadership is None

    def report(self) -> list[DurableEnd]:
        """Returns what the leader may count on: of verified logs, what is on the disk."""
        return [
            DurableEnd(self.epoch, self.me, name, self._counted(log))
            for name, log in self._logs.items()
            if name in self._verified
        ]

    @staticmethod
    def _counted(log: Log) -> int:
        return log.durable

    def readable(self, log: str) -> int:
        """Returns the position below which this member may show a log to readers."""
        if self.leadership is not None:
            return self.leadership.committed(log) if self.leadership.serves else 0
        return self._committed[log] if log in self._verified else 0

    def shared(self, log: str) -> int:
        """Returns the position below which this replica may compact a log: what all in sync have, as far as it knows."""
        return min(self._shared[log], self.readable(log))
