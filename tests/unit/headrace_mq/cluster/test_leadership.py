"""A leader commits what every required member has, and the set changes without a gap."""

from typing import Any

import pytest

from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    ACK_TO_IN_SYNC,
    GroupRecord,
    Identity,
    Proposal,
)

LOG, DOCUMENTS = "forever", "documents"


@pytest.fixture
def leads(trio: Any, record: GroupRecord) -> Leadership:
    """The leader a of a set of three, whose log ended at 100 when it began."""
    return Leadership(trio[0], record, {LOG: 100}, min_in_sync=2)


def confirm(leads: Leadership, proposal: Proposal | None, ack: str = ACK_IN_SYNC) -> None:
    assert proposal is not None
    leads.on_record(GroupRecord(proposal.seen + 1, *proposal[1:5], ack=ack))


def test_the_slowest_required_member_decides(leads: Leadership, trio: Any) -> None:
    a, b, c = trio
    leads.on_durable(a, LOG, 300)
    leads.on_durable(b, LOG, 250)
    assert leads.committed(LOG) == 0
    assert not leads.serves
    leads.on_durable(c, LOG, 80)
    assert leads.committed(LOG) == 80
    assert not leads.serves
    leads.on_durable(c, LOG, 120)
    leads.on_durable(c, LOG, 110)
    assert leads.committed(LOG) == 120
    assert leads.serves


def test_a_member_stays_required_until_the_record_says_that_it_left(
    leads: Leadership, trio: Any
) -> None:
    a, b, c = trio
    leads.on_durable(a, LOG, 300)
    leads.on_durable(b, LOG, 300)
    proposal = leads.shrink(c)
    assert leads.required == frozenset(trio)
    assert leads.committed(LOG) == 0
    assert leads.shrink(b) is None
    confirm(leads, proposal)
    assert leads.committed(LOG) == 300
    assert leads.pending is None
    assert leads.shrink(c) is None
    assert leads.shrink(a) is None


def test_a_member_is_required_as_soon_as_it_is_proposed(leads: Leadership, trio: Any) -> None:
    a, b, c = trio
    confirm(leads, leads.shrink(c))
    for member in (a, b):
        leads.on_durable(member, LOG, 200)
    assert leads.entrants() == []
    leads.on_durable(c, LOG, 150)
    assert not leads.may_enter(c)
    assert leads.grow(c) is None
    leads.on_durable(c, LOG, 200)
    assert leads.entrants() == [c]
    assert leads.grow(c) is not None
    for member in (a, b):
        leads.on_durable(member, LOG, 300)
    assert leads.committed(LOG) == 200


def test_a_member_needs_all_up_to_the_beginning_of_the_epoch(leads: Leadership, trio: Any) -> None:
    _a, _b, c = trio
    confirm(leads, leads.shrink(c))
    leads.on_durable(c, LOG, 99)
    assert leads.committed(LOG) == 0
    assert not leads.may_enter(c)
    leads.on_durable(c, LOG, 100)
    assert leads.may_enter(c)


def test_no_answer_keeps_the_larger_set_and_a_refusal_ends_that(
    leads: Leadership, trio: Any, record: GroupRecord
) -> None:
    _a, _b, c = trio
    proposal = leads.shrink(c)
    assert proposal is not None
    # A look that shows the old record proves nothing: the request may still arrive.
    leads.on_record(record)
    assert leads.pending == proposal
    leads.on_record(record._replace(version=5))
    assert leads.pending == proposal
    leads.on_refused(proposal._replace(seen=1))
    assert leads.pending == proposal
    leads.on_record(record._replace(version=8))
    leads.on_refused(proposal)
    assert leads.pending is None
    assert leads.required == frozenset(trio)
    assert leads.shrink(c) == proposal._replace(seen=8)


def test_too_small_a_set_commits_nothing(trio: Any, record: GroupRecord) -> None:
    a, _, _ = trio
    alone = Leadership(a, record._replace(in_sync=frozenset({a})), {LOG: 0}, min_in_sync=2)
    alone.on_durable(a, LOG, 50)
    assert alone.committed(LOG) == 0
    enough = Leadership(a, record._replace(in_sync=frozenset({a})), {LOG: 0}, min_in_sync=1)
    enough.on_durable(a, LOG, 50)
    assert enough.committed(LOG) == 50


def test_an_empty_disk_replaces_the_broker_that_had_another(leads: Leadership, trio: Any) -> None:
    a, b, c = trio
    again = Identity("c", "new disk")
    for member in (a, b, again):
        leads.on_durable(member, LOG, 100)
    proposal = leads.grow(again)
    assert proposal is not None
    assert proposal.in_sync == {a, b, again}
    assert leads.required == {a, b, c, again}
    confirm(leads, proposal)
    # A late report of the old disk lets it enter no more than the new one's report lets the old one.
    leads.on_durable(again, LOG, 100)
    assert leads.entrants() == []
    leads.on_durable(c, LOG, 100)
    leads.on_durable(again, LOG, 100)
    assert leads.entrants() == []


def test_commits_wait_for_a_member_that_joins(leads: Leadership, trio: Any) -> None:
    a, b, c = trio
    confirm(leads, leads.shrink(c))
    for member in (a, b):
        leads.on_durable(member, LOG, 200)
    assert leads.committed(LOG) == 200
    leads.joining = c
    for member in (a, b):
        leads.on_durable(member, LOG, 300)
    assert leads.committed(LOG) == 200
    assert not leads.may_enter(c)
    leads.on_durable(c, LOG, 200)
    assert leads.may_enter(c)
    leads.joining = None
    leads.on_durable(a, LOG, 300)
    assert leads.committed(LOG) == 300


def test_a_leader_keeps_the_mark_of_a_promotion(leads: Leadership, trio: Any) -> None:
    leads.on_record(GroupRecord(8, 3, "a", frozenset(trio), unclean=3))
    change = leads.shrink(trio[1])
    assert change is not None
    assert (change.seen, change.unclean) == (8, 3)


def test_a_leader_says_what_keeps_it_from_serving(trio: Any, record: GroupRecord) -> None:
    leads = Leadership(trio[0], record, {LOG: 100}, min_in_sync=1)
    assert leads.hindrance.startswith("it waits for b c, which must have every message first")
    for member in trio:
        leads.on_durable(member, LOG, 100)
    assert leads.hindrance == ""


@pytest.mark.parametrize(("members", "least"), [(1, 2), (2, 3)])
def test_a_leader_without_enough_brokers_says_how_to_go_on(
    trio: Any, record: GroupRecord, members: int, least: int
) -> None:
    few = record._replace(in_sync=frozenset(trio[:members]))
    leads = Leadership(trio[0], few, {LOG: 0}, min_in_sync=least)
    for member in trio[:members]:
        leads.on_durable(member, LOG, 100)
    # Not even an empty log is committed, so no client is served.
    assert leads.committed(LOG) == 0
    leads = Leadership(trio[0], few, {LOG: 100}, min_in_sync=least)
    assert f"of the {least} brokers that must be in sync" in leads.hindrance
    assert f"--min-in-sync {members}" in leads.hindrance
    assert leads.shortage == leads.hindrance
    # One more is enough.
    for member in trio:
        leads.on_durable(member, LOG, 100)
    confirm(leads, leads.grow(trio[members]))
    assert leads.hindrance == leads.shortage == ""
    # It goes on to serve when one leaves, and says why it acknowledges nothing.
    confirm(leads, leads.shrink(trio[members]))
    assert leads.hindrance == ""
    assert f"{members} is there" in leads.shortage


@pytest.fixture
def alone(trio: Any, record: GroupRecord) -> Leadership:
    """The leader a of a set of three, which acknowledges alone; messages and documents ended at 100 and 5 when it began."""
    begins = {LOG: 100, DOCUMENTS: 5}
    return Leadership(
        trio[0], record._replace(ack=ACK_LEADER), begins, min_in_sync=4, documents=[DOCUMENTS]
    )


def ends(leads: Leadership) -> tuple[int, int, int, int]:
    """What is committed and what is shared, of messages and of documents."""
    logs = (LOG, DOCUMENTS)
    committed, shared = map(leads.committed, logs), map(leads.shared, logs)
    return (*committed, *shared)


def test_a_leader_alone_commits_messages_by_its_own_disk_and_documents_by_all(
    alone: Leadership, trio: Any
) -> None:
    a, b, c = trio
    assert alone.is_ahead
    assert (alone.shortage, alone.serves) == ("", False)
    assert alone.hindrance.startswith("it waits for b c, which")
    alone.on_durable(a, LOG, 300)
    alone.on_durable(a, DOCUMENTS, 9)
    assert ends(alone) == (300, 0, 0, 0)
    for member, end in ((b, 7), (c, 6)):
        alone.on_durable(member, LOG, 0)
        alone.on_durable(member, DOCUMENTS, end)
    assert ends(alone) == (300, 6, 0, 6)
    assert alone.serves
    alone.on_durable(b, LOG, 200)
    alone.on_durable(c, LOG, 250)
    assert ends(alone) == (300, 6, 200, 6)


def test_a_leader_alone_does_not_serve_before_all_have_cut_what_it_lacks(
    alone: Leadership, trio: Any
) -> None:
    for member in trio:
        alone.on_durable(member, DOCUMENTS, 9)
    # Neither has said what it has of the messages: its log may part from this one.
    assert (alone.serves, alone.committed(DOCUMENTS)) == (False, 0)
    for member in trio[1:]:
        assert not alone.serves
        alone.on_durable(member, LOG, 60)
        alone.on_durable(member, DOCUMENTS, 9)
    assert (alone.serves, alone.committed(DOCUMENTS)) == (True, 9)


def test_a_member_of_a_leader_alone_needs_what_all_others_have(
    alone: Leadership, trio: Any
) -> None:
    a, b, c = trio
    alone.on_durable(a, LOG, 300)
    confirm(alone, alone.shrink(c), alone.ack)
    for log, end in ((LOG, 200), (DOCUMENTS, 5)):
        alone.on_durable(b, log, end)
    assert ends(alone)[2] == 200
    alone.on_durable(c, LOG, 199)
    alone.on_durable(c, DOCUMENTS, 5)
    assert alone.entrants() == []
    alone.on_durable(c, LOG, 200)
    assert alone.entrants() == [c]


def test_all_are_in_sync_again_once_they_have_what_the_leader_acknowledged_alone(
    trio: Any, record: GroupRecord
) -> None:
    a, b, c = trio
    alone = record._replace(ack=ACK_LEADER)
    leads = Leadership(a, alone, {LOG: 100}, min_in_sync=2)
    leads.on_durable(a, LOG, 300)
    assert leads.settle() is None
    back = alone._replace(version=8, ack=ACK_TO_IN_SYNC)
    leads.on_record(back)
    leads.on_durable(a, LOG, 400)
    assert (leads.committed(LOG), leads.is_ahead, leads.settle()) == (300, True, None)
    for member in (b, c):
        assert leads.settle() is None
        leads.on_durable(member, LOG, 350)
    assert (leads.committed(LOG), leads.is_ahead) == (350, False)
    change = leads.settle()
    assert change == Proposal(8, 3, "a", frozenset(trio), ack=ACK_IN_SYNC)
    # The record that was read says that it was not made yet.
    leads.on_record(back)
    assert leads.pending == change
    assert leads.settle() is None
    leads.on_record(back.changed(change))
    assert (leads.pending, leads.ack, leads.settle()) == (None, ACK_IN_SYNC, None)


def test_too_few_are_not_in_sync_again(trio: Any, record: GroupRecord) -> None:
    back = record._replace(ack=ACK_TO_IN_SYNC, in_sync=frozenset(trio[:1]))
    leads = Leadership(trio[0], back, {LOG: 0}, min_in_sync=2)
    leads.on_durable(trio[0], LOG, 50)
    assert (leads.committed(LOG), leads.settle()) == (0, None)
    assert "of the 2 brokers" in leads.shortage


def test_a_leader_that_handed_over_acknowledges_alone_again_by_another_version(
    trio: Any, record: GroupRecord
) -> None:
    alone = record._replace(ack=ACK_LEADER)
    leads = Leadership(trio[0], alone, {LOG: 0}, min_in_sync=1)
    leads.on_durable(trio[0], LOG, 100)
    assert leads.bind() == 7
    leads.on_durable(trio[0], LOG, 200)
    assert (leads.committed(LOG), leads.acknowledges_alone) == (100, False)
    change = leads.settle()
    assert change == Proposal(7, 3, "a", frozenset(trio))
    leads.on_record(alone)
    assert (leads.pending, leads.committed(LOG)) == (change, 100)
    leads.on_record(alone.changed(change))
    assert (leads.pending, leads.committed(LOG), leads.settle()) == (None, 200, None)
