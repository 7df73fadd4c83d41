"""
The record of one group in memory, for tests: it may be away, and lose answers.

Used by tests and simulations of owners; implements `RecordKeeper`. Several members of one process share one.
"""

import time
import uuid
from collections.abc import Collection, Sequence

from headrace_mq.cluster.record import (
    FEATURE_LEVEL,
    GroupRecord,
    Identity,
    LogPlace,
    OutcomeUnknown,
    Proposal,
    RecordUnavailable,
    Refused,
    Registration,
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
        self._reports: dict[str, tuple[Registration, float]] = {}
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
            self._record = GroupRecord(
                1, epoch, leader.name, frozenset(in_sync), group_id=str(uuid.uuid4())
            )
        return self._record

    async def propose(self, proposal: Proposal, group_id: str = "") -> GroupRecord:
        """Changes the record if it has the version that was seen, and the id. Raises Refused and OutcomeUnknown."""
        if self.is_away:
            raise OutcomeUnknown("the record is away")
        held = await self.read()
        is_other = group_id not in {"", held.group_id}
        if is_other or held.version != proposal.seen or proposal.epoch < held.epoch:
            raise Refused(held)
        self._record = held.changed(proposal)
        if self.loses_answers:
            raise OutcomeUnknown("the answer was lost")
        return self._record

    async def register(
        self, member: Identity, logs: Sequence[LogPlace], level: int = FEATURE_LEVEL
    ) -> frozenset[str]:
        """Keeps a report; returns the names of all that have reported. Raises RecordUnavailable."""
        await self.read()
        reported = Registration(member, tuple(logs), 0, level)
        self._reports[member.name] = (reported, time.monotonic())
        return frozenset(self._reports)

    async def registered(self) -> list[Registration]:
        """Returns the reports with their ages. Raises RecordUnavailable."""
        await self.read()
        return [
            report._replace(age_ms=round((time.monotonic() - at_s) * 1_000))
            for _, (report, at_s) in sorted(self._reports.items())
        ]

    async def forget(self, name: str) -> None:
        """Drops a report. Raises RecordUnavailable."""
        await self.read()
        self._reports.pop(name, None)

    async def aclose(self) -> None:
        """Has nothing to give back."""
