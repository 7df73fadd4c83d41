"""
A broker's view of its group's record: it reads it each second, proposes changes of it, and keeps the newest one.

    each second   read ─▶ taken over by the member ─▶ kept in group.json ─▶ the owner acts
    a proposal    made, refused or without an answer ─▶ what is there is taken over in the same way

Used by `replicated_broker`, which takes its turns by it. The rules are `ClusterMember`'s.
"""

import asyncio
import random
from collections.abc import Callable

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.reports import Reports
from headrace_mq.cluster.election import RENEW_MS, SPREAD_MS_MAX, Patience, may_stand
from headrace_mq.cluster.member import ClusterMember, Turn
from headrace_mq.cluster.record import (
    GroupRecord,
    OutcomeUnknown,
    Proposal,
    RecordKeeper,
    RecordUnavailable,
    Refused,
    is_of_another_group,
)

__all__ = ["RecordWatch"]

_log = get_logger(__name__)


class RecordWatch:
    """What one start of a broker knows of the record.

    Args:
        member: takes over what is read.
        keeper: of the record.
        clock: the time.
        keep: keeps the newest record on the disk.
        on_taken: called when a record was taken over.
        first_epoch: of the record, if this broker makes it: messages may be there from a time when it ran alone.
        hindrance: why this broker must not make the record; empty: it may.

    Attributes:
        heard_ms: when the record answered last.
        went_back: whether it was older than one that was seen, or of another group, when it was read last.
        won_epoch: that this broker was elected in, and has not led yet; 0: none.
        patience: with the leader of the record.
    """

    def __init__(
        self,
        member: ClusterMember,
        keeper: RecordKeeper,
        clock: Clock,
        *,
        keep: Callable[[GroupRecord], None],
        on_taken: Callable[[], None],
        first_epoch: int,
        hindrance: Callable[[], str] = lambda: "",
    ) -> None:
        self._member = member
        self._keeper = keeper
        self._clock = clock
        self._keep = keep
        self._on_taken = on_taken
        self._first_epoch = first_epoch
        self._hindrance = hindrance
        # Why this broker does not stand, so that it is said once.
        self._trouble = ""
        self.heard_ms = clock.monotonic_ms()
        self.went_back = False
        self.won_epoch = 0
        self.renew_patience()

    def renew_patience(self) -> None:
        """Waits for a leader from now on."""
        spread_ms = random.SystemRandom().randint(0, SPREAD_MS_MAX)
        self.patience = Patience(self._clock.monotonic_ms(), spread_ms)

    async def run(self, reports: Reports) -> None:
        """Reads the record again and again until it is cancelled; a first start of a group makes it.

        Args:
            reports: of this broker, which go to the record now and then.
        """
        silent = False
        while True:
            try:
                await self.refresh()
                await reports.report(self._member.me)
                silent = False
            except RecordUnavailable as error:
                if not silent:
                    _log.error("the group's record cannot be read", reason=str(error))
                silent = True
            await asyncio.sleep(RENEW_MS / 1_000)

    async def refresh(self) -> None:
        """Reads the record, or makes it, and takes it over. Raises RecordUnavailable."""
        if self._member.seen is not None:
            self._took(await self._keeper.read())
        elif why := self._hindrance():
            try:
                self._took(await self._keeper.read())
            except RecordUnavailable as error:
                raise RecordUnavailable(f"{error}; {why}") from error
        else:
            me = self._member.me
            self._took(await self._keeper.create(me, [me], self._first_epoch))

    def is_barred(self, misfit: Callable[[], str]) -> bool:
        """Whether this broker must not stand, though it is in the set; says once why.

        Args:
            misfit: why it must not lead the group; empty: it may.
        """
        seen = self._member.seen
        if seen is None or not may_stand(self._member.me, seen):
            return False
        before, self._trouble = self._trouble, misfit()
        if self._trouble and self._trouble != before:
            _log.error("this broker must not lead its group", reason=self._trouble)
        return bool(self._trouble)

    async def propose(self, proposal: Proposal) -> bool:
        """Returns whether a change was refused, because the record is another one by now; changes none that went back."""
        before = self._member.seen
        if before is None or self._member.is_frozen:
            return False
        try:
            self._took(await self._keeper.propose(proposal, before.group_id))
        except Refused as refused:
            turn = self._member.on_refused(proposal, refused.record)
            self._note(turn, before, refused.record)
            return True
        except OutcomeUnknown as error:
            _log.warning("a change of the group's record has no answer", reason=str(error))
        return False

    def _took(self, record: GroupRecord) -> None:
        """Takes over a record that was read, or that a proposal returned."""
        self.heard_ms = self._clock.monotonic_ms()
        before = self._member.seen
        self._note(self._member.on_record(record), before, record)

    def _note(self, turn: Turn, before: GroupRecord | None, found: GroupRecord) -> None:
        seen = self._member.seen
        if turn is Turn.WENT_BACK:
            if not self.went_back and before is not None:
                _say_why(before, found)
            # So that it is said once.
            self.went_back = True
            return
        self.went_back = False
        if turn is Turn.LEAD:
            self.won_epoch = self._member.epoch
        if seen is not None and seen != before:
            _log.info(
                "the group's record", epoch=seen.epoch, leader=seen.leader,
                in_sync=sorted(one.name for one in seen.in_sync), unclean=seen.unclean, ack=seen.ack,
            )  # fmt: skip
            self._keep(seen)
            if before is None or seen.epoch != before.epoch:
                self.renew_patience()
        self._on_taken()


def _say_why(seen: GroupRecord, found: GroupRecord) -> None:
    if is_of_another_group(seen, found):
        _log.error(
            "the group's record is of another group of the same name: it was deleted and made again, or its address leads to"
            " another database; no broker is elected until that is set right", seen=str(seen), found=str(found),
        )  # fmt: skip
    else:
        _log.error(
            "the group's record is older than one that was seen: its database lost a change; no broker is"
            " elected until it is restored", seen=str(seen), found=str(found),
        )  # fmt: skip
