"""What an operator may take out of a group, and what the sentence says where not."""

from typing import Any

import pytest

from headrace_mq.cluster.operations import (
    REPORT_MS,
    SILENT_MS,
    Lack,
    acknowledgement,
    is_silent,
    lacked_bytes,
    losses,
    promotion,
    removal,
    settlement,
)
from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    ACK_TO_IN_SYNC,
    FEATURE_LEVEL,
    GroupRecord,
    Identity,
    LogPlace,
    Proposal,
    Registration,
)
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
    assert removal(record, [report(a), other], "b") == Proposal(7, 3, "a", frozenset({a, c}))


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


def test_the_last_broker_that_runs_is_not_removed(trio: Any, record: GroupRecord) -> None:
    """The record names a leader that is gone; what would stay could not be elected."""
    a, b, c = trio
    for known in (
        [report(a, 3_600_000), report(b, SILENT_MS), report(c)],
        [report(b, SILENT_MS), report(c)],
        [report(Identity("a", "empty")), report(b, SILENT_MS)],
    ):
        with pytest.raises(
            MessageQueueError, match=r"the leader a has not reported.*start the leader"
        ):
            removal(record, known, "b")
        # Out of the set it keeps nothing alive.
        assert removal(record._replace(in_sync=frozenset({a, c})), known, "b") is None


def test_a_broker_outside_the_set_is_promoted_only_where_all_in_sync_are_silent(
    trio: Any, record: GroupRecord
) -> None:
    a, b, c = trio
    both = record._replace(in_sync=frozenset({a, b}))
    known = [report(a, SILENT_MS), report(b, SILENT_MS), report(c, 3_000)]
    assert promotion(both, known, "c") == Proposal(7, 4, "c", frozenset({c}), unclean=4)
    # An empty disk is another member: what was on the one before is lost.
    empty = Identity("b", "empty")
    swapped = [report(a, SILENT_MS), report(empty)]
    assert promotion(both, swapped, "b") == Proposal(7, 4, "b", frozenset({empty}), unclean=4)
    for reports, name, sentence in (
        ([known[0], known[2]], "b", "b has never reported.*start it first"),
        (known, "a", "a reported 15 s ago.*start it first"),
        ([report(a, SILENT_MS), report(b, 2_000), report(c)], "c", "b is in sync and reported 2 s"),
        ([report(a, SILENT_MS), report(b, 2_000), report(c)], "b", "b is in sync and reported 2 s"),
    ):
        with pytest.raises(MessageQueueError, match=sentence):
            promotion(both, reports, name)


def test_a_promotion_loses_what_those_in_sync_have_and_its_broker_lacks(
    trio: Any, record: GroupRecord
) -> None:
    a, b, c = trio
    both = record._replace(in_sync=frozenset({a, b}))
    known = [
        report(a, SILENT_MS, ("forever", 3, 500), ("transient", 3, 70)),
        report(b, SILENT_MS, ("forever", 2, 400), ("transient", 3, 50)),
        report(c, 0, ("forever", 2, 400), ("transient", 3, 60)),
    ]
    assert losses(both, known, "c") == [Lack(a, 110, or_more=True), Lack(b, 0, or_more=False)]
    nothing = [*known[:2], report(c)]
    assert losses(both, nothing, "c") == [Lack(a, 570, or_more=True), Lack(b, 450, or_more=True)]
    assert [lacked_bytes(both, known, one) for one in known] == [0, 0, 110]
    assert lacked_bytes(both, [known[2]], known[2]) is None
    # Where the leader acknowledges alone, one in sync may lack some as well.
    alone = both._replace(ack=ACK_LEADER)
    assert [lacked_bytes(alone, known, one) for one in known] == [0, 120, 110]


def test_the_mark_of_a_promotion_stays_until_it_is_settled(trio: Any, record: GroupRecord) -> None:
    assert settlement(record) is None
    marked = record._replace(unclean=3)
    change = removal(marked, [report(trio[0])], "b")
    assert change is not None
    assert change.unclean == 3
    assert settlement(marked) == Proposal(7, 3, "a", record.in_sync)


def able(*members: Identity) -> list[Registration]:
    return [report(one, SILENT_MS)._replace(level=FEATURE_LEVEL) for one in members]


def test_the_way_back_to_all_in_sync_has_a_step_that_the_leader_ends(
    trio: Any, record: GroupRecord
) -> None:
    record = record._replace(unclean=2)
    change = acknowledgement(record, able(*trio), ACK_LEADER)
    assert change == Proposal(7, 3, "a", frozenset(trio), 2, ACK_LEADER)
    alone = record.changed(change)
    back = acknowledgement(alone, [], ACK_IN_SYNC)
    assert back == Proposal(8, 3, "a", frozenset(trio), 2, ACK_TO_IN_SYNC)
    between = alone.changed(back)
    # You may change your mind.
    again = acknowledgement(between, able(*trio), ACK_LEADER)
    assert again is not None
    assert between.changed(again).ack == ACK_LEADER
    for found, wanted in ((record, ACK_IN_SYNC), (alone, ACK_LEADER), (between, ACK_IN_SYNC)):
        assert acknowledgement(found, able(*trio), wanted) is None


def test_a_broker_that_knows_no_such_leader_is_named(trio: Any, record: GroupRecord) -> None:
    a, b, c = trio
    outside = report(Identity("d", "disk"))
    with pytest.raises(MessageQueueError, match=r"of this version: c d\. An earlier one"):
        acknowledgement(record, [*able(a, b), report(c), outside], ACK_LEADER)
    # One that never reported.
    with pytest.raises(MessageQueueError, match=r": c\. An"):
        acknowledgement(record, able(a, b), ACK_LEADER)


def test_an_acknowledgement_that_no_group_has_is_refused(record: GroupRecord) -> None:
    for wrong in ("all", "", ACK_TO_IN_SYNC):
        with pytest.raises(MessageQueueError, match="write leader or in_sync"):
            acknowledgement(record, [], wrong)
