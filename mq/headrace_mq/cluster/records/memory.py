"""
The record of one group in memory, for tests: it may be away, and lose answers.

Used by tests and simulations of owners; implements `RecordKeeper`. Several members of one process share one.
"""

from collections.abc import Collection

from headrace_mq.cluster.record import (
    GroupRecord,
    Identity,
    OutcomeUnknown,
    Proposal,
    RecordUnavailable,
    Refused,
)

__all__ = ["MemoryRecord"]


class MemoryRecord:
    """Keeps the record for as long as the process lives.

    Attributes:
        is_away: no call is answered, and nothing is changed.
        loses_answers: proposals are made, but their callers do not hear of it.
    """

    def __init__(self) -> None:
        self._record: GroupRecord | None = None
        self.is_away = False
        self.loses_answers = False

    async def read(self) -> GroupRecord:
        """Returns the record. Raises RecordUnavailable."""
        if self.is_away or self._record is None:
            raise RecordUnavailable("the record is away, or was never made; call `create` first")
        return self._record

    async def create(
        self, leader: Identity, in_sync: Collection[Identity], epoch: int = 1
    ) -> GroupRecord:
        """Makes the record, or returns the one that is there. Raises RecordUnavailable."""
        if self.is_away:
            raise RecordUnavailable("the record is away")
        if self._record is None:
            self._record = GroupRecord(1, epoch, leader.name, frozenset(in_sync))
        return self._record

    async def propose(self, proposal: Proposal) -> GroupRecord:
        """Changes the record if it has the version that was seen. Raises Refused and OutcomeUnknown."""
        if self.is_away:
            raise OutcomeUnknown("the record is away")
        held = await self.read()
        if held.version != proposal.seen or proposal.epoch < held.epoch:
            raise Refused(held)
        self._record = GroupRecord(held.version + 1, *proposal[1:])
        if self.loses_answers:
            raise OutcomeUnknown("the answer was lost")
        return self._record

    async def aclose(self) -> None:
        """Has nothing to give back."""
