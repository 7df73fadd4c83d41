"""The record in memory fails as a database fails."""

import pytest

from headrace_mq.cluster.record import Identity, OutcomeUnknown, Proposal, RecordUnavailable
from headrace_mq.cluster.records.memory import MemoryRecord

A = Identity("a", "1")
CHANGE = Proposal(1, 2, "a", frozenset({A}))


async def test_a_record_that_is_away_answers_and_changes_nothing() -> None:
    record = MemoryRecord()
    made = await record.create(A, [A])
    record.is_away = True
    with pytest.raises(RecordUnavailable):
        await record.read()
    with pytest.raises(RecordUnavailable):
        await record.create(A, [A])
    with pytest.raises(OutcomeUnknown):
        await record.propose(CHANGE)
    record.is_away = False
    assert await record.read() == made
    await record.aclose()


async def test_a_lost_answer_hides_a_change_that_was_made() -> None:
    record = MemoryRecord()
    await record.create(A, [A])
    record.loses_answers = True
    with pytest.raises(OutcomeUnknown):
        await record.propose(CHANGE)
    assert (await record.read()).epoch == 2
