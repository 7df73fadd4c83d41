"""What an operator may take out of a group, and what the sentence says where not."""

from typing import Any

import pytest

from headrace_mq.cluster.operations import REPORT_MS, SILENT_MS, is_silent, removal
from headrace_mq.cluster.record import GroupRecord, Identity, LogPlace, Proposal, Registration
from headrace_mq.errors import MessageQueueError


def report(member: Identity, age_ms: int = 0, *places: tuple[str, int, int]) -> Registration:
    return Registration(member, tuple(LogPlace(*place) for place in places), age_ms)


def test_a_broker_is_silent_after_some_missing_reports(trio: Any) -> None:
    assert is_silent(report(trio[0], SILENT_MS))
    assert not is_silent(report(trio[0], 2 * REPORT_MS))


def test_a_silent_member_leaves_the_set_and_its_leader_and_others_stay(
    trio: Any, record: GroupRecord
) -> None:
    a, b, c = trio
    known = [report(a), report(b, SILENT_MS), report(c)]
    assert removal(record, known, "b") == Proposal(7, 3, "a", frozenset({a, c}))
    # One that never reported, as after a removal whose second step failed.
    assert removal(record, [report(a)], "b") == Proposal(7, 3, "a", frozenset({a, c}))
    # Its disk of before is in the set, and a new one reported.
    other = report(Identity("b", "new"), SILENT_MS)
    assert removal(record, [other], "b") == Proposal(7, 3, "a", frozenset({a, c}))


def test_a_broker_outside_the_set_changes_no_set(trio: Any, record: GroupRecord) -> None:
    a, b, c = trio
    alone = record._replace(in_sync=frozenset({a}))
    assert removal(alone, [report(b, SILENT_MS), report(c)], "b") is None


def test_a_leader_a_running_broker_and_a_stranger_are_not_removed(
    trio: Any, record: GroupRecord
) -> None:
    known = [report(one, 4_000) for one in trio]
    for name, sentence in (
        ("a", "leads the group.*switchover"),
        ("b", "b still runs: it reported 4 s ago. Stop it"),
        ("d", "no broker d; it has a b c"),
    ):
        with pytest.raises(MessageQueueError, match=sentence):
            removal(record, known, name)
