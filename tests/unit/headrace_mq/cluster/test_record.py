"""A record only goes forward; an older one is noticed."""

import pytest

from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    ACK_TO_IN_SYNC,
    GroupRecord,
    Identity,
    Proposal,
    Refused,
    is_of_another_group,
    went_back,
)

A, B = Identity("a", "1"), Identity("b", "1")
SEEN = GroupRecord(7, 3, "a", frozenset({A}))


@pytest.mark.parametrize(
    ("found", "is_older"),
    [
        (SEEN, False),
        (SEEN._replace(version=8), False),
        # The brokers were upgraded meanwhile.
        (SEEN._replace(lossy=2), False),
        (SEEN._replace(ack=ACK_LEADER), False),
        (SEEN._replace(version=8, epoch=4, leader="b"), False),
        (SEEN._replace(version=6), True),
        (SEEN._replace(version=9, epoch=2), True),
        # Two histories of the database: another change has the same number.
        (SEEN._replace(in_sync=frozenset()), True),
        (SEEN._replace(leader="b"), True),
        # The database has given its groups ids meanwhile.
        (SEEN._replace(group_id="one"), False),
        (SEEN._replace(group_id="one", leader="b"), True),
    ],
)
def test_a_record_that_went_back_is_recognised(found: GroupRecord, is_older: bool) -> None:
    assert went_back(SEEN, found) is is_older


@pytest.mark.parametrize(
    ("seen", "found", "is_another"),
    [("one", "one", False), ("one", "two", True), ("", "two", False), ("one", "", False)],
)
def test_a_record_of_another_group_is_recognised_by_its_id(
    seen: str, found: str, is_another: bool
) -> None:
    before, after = SEEN._replace(group_id=seen), SEEN._replace(group_id=found)
    assert is_of_another_group(before, after) is is_another
    assert went_back(before, after) is is_another
    # However late it is.
    assert went_back(before, after._replace(version=90, epoch=90)) is is_another


def test_a_record_with_another_acknowledgement_and_the_same_version_went_back() -> None:
    seen = SEEN._replace(ack=ACK_LEADER)
    assert went_back(seen, SEEN)
    assert not went_back(seen, SEEN._replace(version=8))


def test_a_change_leaves_the_id_as_it_is() -> None:
    changed = SEEN._replace(group_id="one").changed(Proposal(7, 4, "b", frozenset()))
    assert changed == GroupRecord(8, 4, "b", frozenset(), group_id="one")


@pytest.mark.parametrize(
    ("ack", "change", "loses"),
    [
        (ACK_IN_SYNC, Proposal(7, 4, "b", frozenset({B})), False),
        (ACK_LEADER, Proposal(7, 4, "b", frozenset({B})), True),
        (ACK_TO_IN_SYNC, Proposal(7, 4, "b", frozenset({B})), True),
        # No election, or of the leader itself with the disk that it had.
        (ACK_LEADER, Proposal(7, 3, "a", frozenset({A, B})), False),
        (ACK_LEADER, Proposal(7, 4, "a", frozenset({A})), False),
        (ACK_LEADER, Proposal(7, 4, "a", frozenset({Identity("a", "2")})), True),
        # The leader handed over.
        (ACK_LEADER, Proposal(7, 4, "b", frozenset({A, B}), complete=True), False),
    ],
)
def test_an_election_may_lose_what_a_leader_acknowledged_alone(
    ack: str, change: Proposal, loses: bool
) -> None:
    changed = SEEN._replace(ack=ack, lossy=2).changed(change)
    assert changed.lossy == (4 if loses else 2)
    assert (changed.ack, changed.unclean) == (ack, 0)


def test_a_refusal_brings_the_record_that_is_there() -> None:
    refused = Refused(SEEN)
    assert refused.record == SEEN
    assert "version 7" in str(refused)
