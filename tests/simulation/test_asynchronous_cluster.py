"""Groups whose leaders may acknowledge alone break no other promise, in bad weather; with a rule left out, one does.

`python -m headrace_mq.testing.cluster.many_seeds --group asynchronous --seeds 100000` runs more.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from headrace_mq.cluster.frames import HandOver, Parted
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.member import ClusterMember, Cut, Turn
from headrace_mq.cluster.record import ACK_IN_SYNC, ACK_LEADER, GroupRecord, Identity, Proposal
from headrace_mq.errors import DataCorrupt
from headrace_mq.testing.cluster.asynchronous_cluster import AsynchronousCluster, run
from headrace_mq.testing.cluster.promises import BrokenPromise

SEEDS, CHUNK = 100, 50
# A rule that is left out shows in so many runs.
SEARCH = 40
NOTICED = (BrokenPromise, ValueError, DataCorrupt, IndexError)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_group_loses_only_what_its_record_says(first: int) -> None:
    total = sum((run(seed) for seed in range(first, first + CHUNK)), Counter[str]())
    assert total["acknowledged"] > CHUNK
    assert total["in sync again"] > CHUNK // 2
    assert min(total["elected without loss"], total["lost"], total["kept"]) > CHUNK // 10


# A replica that cut a log before it had read the record of the leader's epoch kept nothing.
@pytest.mark.parametrize("seed", [3_866])
def test_a_loss_that_stands_in_a_record_not_yet_read_is_kept_as_well(seed: int) -> None:
    assert run(seed)["kept"] > 0


class NotesNoLoss(AsynchronousCluster):
    """An election sets no mark."""

    def _change(self, proposal: Proposal) -> None:
        lossy = self.record.lossy
        super()._change(proposal)
        self.record = self.record._replace(lossy=lossy)


class AcknowledgesDocumentsAlone(Leadership):
    """A document is acknowledged by the leader alone."""

    def __init__(self, *given: Any, documents: Any, **rest: Any) -> None:
        super().__init__(*given, **rest)


class ConfirmsEarly(Leadership):
    """All in sync acknowledge again before they have what the leader acknowledged alone."""

    def _has_all(self, _member: Identity) -> bool:
        return True


class GoesOnAlone(Leadership):
    """On the way back, the leader still acknowledges alone."""

    @property
    def acknowledges_alone(self) -> bool:
        return self.ack != ACK_IN_SYNC


class EntersEarly(Leadership):
    """A member enters without what the leader may have thrown away."""

    def may_enter(self, member: Identity) -> bool:
        ends = self.durable.get(member, {})
        has_begins = all(ends.get(log, -1) >= begin for log, begin in self.begins.items())
        return has_begins if self.ack == ACK_LEADER else super().may_enter(member)


class ThrowsAwayWhatItCommits(Leadership):
    """What the leader committed alone may be thrown away."""

    def shared(self, log: str) -> int:
        return self.committed(log)


class GoesOnUnbound(Leadership):
    """A leader that handed over in vain acknowledges alone by the same version."""

    def bind(self) -> int:
        return self._version


def leading(kind: type[Leadership]) -> type[ClusterMember]:
    class Leads(ClusterMember):
        def _leadership(self, record: GroupRecord, begins: Mapping[str, int]) -> Leadership:
            return kind(
                self.me, record, begins, min_in_sync=self._min_in_sync, documents=self._documents
            )

    return Leads


class KeepsNothing(ClusterMember):
    """What is cut is kept in no file."""

    def on_parted(self, frame: Parted) -> Cut | None:
        cut = super().on_parted(frame)
        return None if cut is None else cut._replace(loses=False)


class HoldsOnToWhatWasCommitted(ClusterMember):
    """A replica refuses to cut what a leader of before committed alone."""

    def on_record(self, record: GroupRecord) -> Turn:
        committed = dict(self._committed)
        turn = super().on_record(record)
        self._committed = committed
        return turn


class CallsItselfComplete(ClusterMember):
    """A member to which the leader hands over says that nothing is lost, by any version of the record."""

    def on_hand_over(self, frame: HandOver) -> Proposal | None:
        proposal = super().on_hand_over(frame)
        return None if proposal is None else proposal._replace(complete=True)


# With the seed from which on it is looked for.
LEFT_OUT: dict[type[ClusterMember], int] = {
    leading(AcknowledgesDocumentsAlone): 0,
    leading(ConfirmsEarly): 0,
    leading(GoesOnAlone): 290,
    leading(EntersEarly): 0,
    leading(ThrowsAwayWhatItCommits): 0,
    leading(GoesOnUnbound): 2_080,
    KeepsNothing: 0,
    HoldsOnToWhatWasCommitted: 30,
    CallsItselfComplete: 2_800,
}


def breaks(first: int, *kinds: Any) -> bool:
    for seed in range(first, first + SEARCH):
        try:
            run(seed, *kinds)
        except NOTICED:
            return True
    return False


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_a_rule_that_is_left_out_breaks_a_promise(kind: type[ClusterMember]) -> None:
    assert breaks(LEFT_OUT[kind], kind)


def test_an_election_that_sets_no_mark_breaks_a_promise() -> None:
    assert breaks(0, ClusterMember, NotesNoLoss)
