"""The suite notices a keeper that breaks one of its promises."""

import pytest

from headrace_mq.cluster.record import GroupRecord, Proposal
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.testing.conformance.record import RecordConformance


class TakesAll(MemoryRecord):
    """It changes the record without a look at its version."""

    async def propose(self, proposal: Proposal) -> GroupRecord:
        held = await self.read()
        self._record = held.changed(proposal)
        return self._record


@pytest.mark.parametrize(
    "name",
    [
        "test_a_change_of_an_earlier_version_is_refused_with_what_is_there",
        "test_of_two_candidates_one_wins",
        "test_an_epoch_does_not_go_back",
    ],
)
async def test_a_keeper_that_compares_nothing_fails_the_suite(name: str) -> None:
    shared = TakesAll()
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await getattr(RecordConformance(), name)(lambda: shared)
