"""One broker of a group: when it leads, what it answers, and what it takes."""

from typing import Any

import pytest

from headrace_mq.cluster.frames import DurableEnd, Follow, HandOver, Parted, Send, StaleEpoch
from headrace_mq.cluster.member import ClusterMember, Cut, Turn
from headrace_mq.cluster.record import (
    ACK_LEADER,
    ACK_TO_IN_SYNC,
    GroupRecord,
    Identity,
    Proposal,
)
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.replication.epochs import EpochHistory

LOG = "forever"


@pytest.fixture
def replica(trio: Any, record: GroupRecord, numbers: Any) -> ClusterMember:
    """The broker b, with a log of epochs 1 and 2, in a group that a leads in epoch 3."""
    log = numbers(200, 200, EpochHistory([(1, 0), (2, 100)]))
    member = ClusterMember(trio[1], {LOG: log}, min_in_sync=2)
    assert member.on_record(record) is Turn.GO_ON
    return member


@pytest.fixture
def leader(replica: ClusterMember, trio: Any, record: GroupRecord) -> ClusterMember:
    """The same broker, which has won epoch 4."""
    proposal = replica.stand()
    assert proposal is not None
    won = GroupRecord(8, *proposal[1:5])
    assert replica.on_record(won) is Turn.LEAD
    replica._logs[LOG].history.begin(4, 200)
    replica.lead()
    return replica


def test_a_broker_leads_only_an_epoch_that_this_start_of_it_proposed(
    replica: ClusterMember, record: GroupRecord, trio: Any, numbers: Any
) -> None:
    proposal = replica.stand()
    assert proposal is not None
    again = ClusterMember(trio[1], replica._logs, seen=record)
    won = GroupRecord(8, *proposal[1:5])
    assert again.on_record(won) is Turn.GO_ON
    assert again.leadership is None
    assert replica.on_record(won) is Turn.LEAD


def test_a_leader_that_resigned_leads_a_later_epoch_alone(
    leader: ClusterMember, record: GroupRecord
) -> None:
    leader.resign()
    assert leader.leadership is None
    assert leader.seen is not None
    # The record still names it, and asks for nothing.
    assert leader.on_record(leader.seen) is Turn.GO_ON
    proposal = leader.stand()
    assert proposal is not None
    assert (proposal.epoch, proposal.in_sync) == (5, leader.seen.in_sync)
    assert leader.on_record(GroupRecord(9, *proposal[1:5])) is Turn.LEAD


def test_a_broker_outside_the_set_does_not_stand(record: GroupRecord, numbers: Any) -> None:
    stranger = ClusterMember(Identity("b", "empty"), {LOG: numbers()})
    assert stranger.stand() is None
    stranger.on_record(record)
    assert stranger.stand() is None


def test_a_record_that_went_back_freezes_all_proposals(
    leader: ClusterMember, record: GroupRecord, trio: Any
) -> None:
    assert leader.on_record(record) is Turn.WENT_BACK
    assert leader.leadership is not None
    assert leader.is_frozen
    assert leader.shrink(trio[2]) is None
    assert leader.grow(trio[0]) is None
    assert leader.seen is not None
    assert leader.on_record(leader.seen) is Turn.GO_ON
    assert leader.shrink(trio[2]) is not None


def test_a_candidate_does_not_stand_on_a_record_that_went_back(
    replica: ClusterMember, record: GroupRecord
) -> None:
    assert replica.on_record(record._replace(version=5)) is Turn.WENT_BACK
    assert replica.stand() is None


def test_a_later_epoch_in_the_record_or_a_frame_ends_the_leading(
    leader: ClusterMember, trio: Any
) -> None:
    later = Follow(5, trio[2], LOG, 0, 0)
    assert leader.on_follow(later) is None
    assert leader.leadership is None
    assert leader.epoch == 5
    assert leader.report() == []


def test_the_record_of_a_later_epoch_makes_a_leader_follow(
    leader: ClusterMember, record: GroupRecord
) -> None:
    assert leader.on_record(record._replace(version=9, epoch=5, leader="c")) is Turn.FOLLOW
    assert leader.stand() is not None


def test_a_leader_sends_only_what_follows_an_equal_log(leader: ClusterMember, trio: Any) -> None:
    c = trio[2]
    assert leader.on_follow(Follow(4, c, LOG, 150, 2)) == Send(4, LOG, 150, 0)
    assert leader.on_follow(Follow(4, c, LOG, 0, 0)) == Send(4, LOG, 0, 0)
    # It has more of epoch 2, or all of an epoch that is unknown here.
    assert leader.on_follow(Follow(4, c, LOG, 250, 2)) == Parted(4, LOG, 250, 2, 2, 200)
    assert leader.on_follow(Follow(4, c, LOG, 150, 3)) == Parted(4, LOG, 150, 3, 2, 200)
    assert leader.on_follow(Follow(3, c, LOG, 150, 2)) == StaleEpoch(4)


def test_a_log_begins_again_only_behind_its_end_and_in_this_epoch(replica: ClusterMember) -> None:
    assert replica.on_restart(3, LOG, 201)
    assert not replica.on_restart(3, LOG, 200)
    assert not replica.on_restart(2, LOG, 300)


def test_a_compacted_segment_is_put_only_at_the_end_of_the_log(replica: ClusterMember) -> None:
    assert replica.on_copy(3, LOG, 200)
    assert not replica.on_copy(3, LOG, 190)
    assert not replica.on_copy(2, LOG, 200)


def test_only_a_member_outside_the_set_drops_its_log(replica: ClusterMember, trio: Any) -> None:
    assert replica.on_send(Send(3, LOG, 200, 150), 10)
    assert replica.seen is not None
    assert trio[1] in replica.seen.in_sync
    assert not replica.on_rewind(3, LOG)
    assert replica.readable(LOG) == 150
    replica.seen = replica.seen._replace(in_sync=frozenset({trio[0]}))
    assert not replica.on_rewind(2, LOG)
    assert replica.on_rewind(3, LOG)
    assert replica.readable(LOG) == 0
    assert replica.report() == []


def test_a_replica_answers_no_other_replica(replica: ClusterMember, trio: Any) -> None:
    assert replica.on_follow(Follow(3, trio[2], LOG, 0, 0)) is None
    replica.on_durable(DurableEnd(3, trio[2], LOG, 0))
    assert replica.grow(trio[2]) is None
    assert replica.shrink(trio[2]) is None


def test_a_replica_reports_only_logs_that_the_leader_of_this_epoch_confirmed(
    replica: ClusterMember, trio: Any
) -> None:
    b = trio[1]
    assert replica.follow(LOG) == Follow(3, b, LOG, 200, 2)
    assert replica.report() == []
    assert replica.readable(LOG) == 0
    assert not replica.on_send(Send(2, LOG, 200, 200), 10)
    assert not replica.on_send(Send(3, LOG, 190, 200), 10)
    assert replica.report() == []
    assert replica.on_send(Send(3, LOG, 200, 150), 10)
    assert replica.report() == [DurableEnd(3, b, LOG, 200)]
    assert replica.readable(LOG) == 150
    assert replica.on_send(Send(3, LOG, 200, 900), 10)
    assert replica.readable(LOG) == 210
    replica.on_stale(StaleEpoch(4))
    assert replica.report() == []


def test_a_replica_cuts_where_the_logs_part(replica: ClusterMember) -> None:
    assert replica.on_parted(Parted(3, LOG, 200, 2, 2, 150)) == Cut(LOG, 150)
    assert replica.on_parted(Parted(3, LOG, 200, 2, 1, 80)) == Cut(LOG, 80)
    assert replica.on_parted(Parted(3, LOG, 200, 2, 1, 120)) == Cut(LOG, 100)
    assert replica.on_parted(Parted(2, LOG, 200, 2, 1, 120)) is None
    assert replica.on_parted(Parted(3, LOG, 190, 2, 1, 120)) is None


def test_a_replica_refuses_to_cut_what_is_committed(replica: ClusterMember) -> None:
    assert replica.on_send(Send(3, LOG, 200, 180), 0)
    with pytest.raises(DataCorrupt, match="committed up to 180"):
        replica.on_parted(Parted(3, LOG, 200, 2, 2, 150))


def test_a_replica_cuts_what_was_committed_where_a_broker_was_promoted_with_loss(
    replica: ClusterMember, record: GroupRecord
) -> None:
    assert replica.on_send(Send(3, LOG, 200, 180), 0)
    replica.on_record(record._replace(version=8, epoch=4, leader="c", unclean=4))
    assert replica.readable(LOG) == 0
    assert replica.on_parted(Parted(4, LOG, 200, 2, 2, 150)) == Cut(LOG, 150, loses=True)
    # A later change of the record, with the same mark, lets nothing more be cut.
    assert replica.on_send(Send(4, LOG, 200, 190), 0)
    replica.on_record(record._replace(version=9, epoch=5, leader="c", unclean=4))
    with pytest.raises(DataCorrupt, match="committed up to 190"):
        replica.on_parted(Parted(5, LOG, 200, 2, 2, 150))


def test_a_replica_that_was_away_cuts_though_the_promotion_was_settled_meanwhile(
    replica: ClusterMember, record: GroupRecord
) -> None:
    assert replica.on_send(Send(3, LOG, 200, 180), 0)
    promoted = record.changed(Proposal(7, 4, "c", frozenset({Identity("c", "3")}), unclean=4))
    settled = promoted.changed(Proposal(8, 5, "c", promoted.in_sync))
    assert (settled.unclean, settled.lossy) == (0, 4)
    replica.on_record(settled)
    assert replica.on_parted(Parted(5, LOG, 200, 2, 2, 150)) == Cut(LOG, 150, loses=True)


def test_a_replica_cuts_nothing_committed_before_it_read_the_record_of_the_epoch(
    replica: ClusterMember, record: GroupRecord
) -> None:
    assert replica.on_send(Send(3, LOG, 200, 180), 0)
    replica.on_stale(StaleEpoch(5))
    assert replica.on_parted(Parted(5, LOG, 200, 2, 2, 150)) is None
    assert replica.on_parted(Parted(5, LOG, 200, 2, 2, 190)) == Cut(LOG, 190)
    replica.on_record(record._replace(version=8, epoch=5, leader="c"))
    with pytest.raises(DataCorrupt, match="committed up to 180"):
        replica.on_parted(Parted(5, LOG, 200, 2, 2, 150))
    replica.on_record(record._replace(version=9, epoch=6, leader="c", lossy=6))
    assert replica.on_parted(Parted(6, LOG, 200, 2, 2, 150)) == Cut(LOG, 150, loses=True)


def test_reports_of_another_epoch_count_nothing(leader: ClusterMember, trio: Any) -> None:
    _a, b, c = trio
    assert leader.leadership is not None
    assert leader.leadership.required == {b, c}
    leader.on_durable(DurableEnd(3, c, LOG, 200))
    assert not leader.leadership.serves
    leader.on_durable(DurableEnd(4, c, LOG, 900))
    assert leader.leadership.serves
    assert leader.readable(LOG) == 200


def test_the_own_disk_counts_when_it_is_synced(leader: ClusterMember, trio: Any) -> None:
    log = leader._logs[LOG]
    log.end = 300
    leader.on_durable(DurableEnd(4, trio[2], LOG, 300))
    assert leader.readable(LOG) == 200
    log.durable = 300
    leader.on_synced()
    assert leader.readable(LOG) == 300


def test_a_leader_hands_over_to_a_member_that_has_everything(
    leader: ClusterMember, trio: Any
) -> None:
    a, b, c = trio
    assert leader.hand_over(a) is None
    assert leader.hand_over(b) is None
    assert leader.hand_over(c) is None
    leader.on_durable(DurableEnd(4, c, LOG, 200))
    assert leader.hand_over(c) == HandOver(4, version=8)


def test_the_heir_stands_at_once_and_keeps_the_old_leader(
    replica: ClusterMember, trio: Any
) -> None:
    assert replica.on_hand_over(HandOver(2)) is None
    proposal = replica.on_hand_over(HandOver(3))
    assert proposal is not None
    assert proposal.in_sync == frozenset(trio)
    assert proposal.epoch == 4


def test_a_refused_candidate_takes_over_the_record_that_is_there(
    replica: ClusterMember, record: GroupRecord
) -> None:
    proposal = replica.stand()
    assert proposal is not None
    other = record._replace(version=8, epoch=4, leader="c")
    assert replica.on_refused(proposal, other) is Turn.GO_ON
    assert replica.seen == other
    assert replica.leadership is None


def test_a_refused_candidate_that_is_promoted_stands_for_the_next_epoch(
    replica: ClusterMember, record: GroupRecord
) -> None:
    proposal = replica.stand()
    assert proposal is not None
    without = record._replace(version=8, in_sync=record.in_sync - {replica.me})
    assert replica.on_refused(proposal, without) is Turn.GO_ON
    name = replica.me.name
    promoted = GroupRecord(9, 4, name, frozenset({replica.me}), unclean=4)
    assert replica.on_record(promoted) is Turn.GO_ON
    again = replica.stand()
    assert again is not None
    assert (again.epoch, again.unclean) == (5, 4)
    assert replica.on_record(GroupRecord(10, *again[1:5])) is Turn.LEAD


def test_a_candidate_whose_lost_answer_was_a_yes_leads_when_it_is_refused_again(
    replica: ClusterMember,
) -> None:
    proposal = replica.stand()
    assert proposal is not None
    assert replica.on_refused(proposal, GroupRecord(8, *proposal[1:5])) is Turn.LEAD


def test_a_refused_leader_drops_its_proposal(leader: ClusterMember, trio: Any) -> None:
    proposal = leader.shrink(trio[2])
    assert proposal is not None
    assert leader.seen is not None
    leader.on_refused(proposal, leader.seen._replace(version=9))
    assert leader.leadership is not None
    assert leader.leadership.pending is None


def test_an_heir_says_that_it_is_complete_only_by_the_version_of_its_leader(
    replica: ClusterMember,
) -> None:
    for version, complete in ((7, True), (6, False), (8, False), (-1, False)):
        proposal = replica.on_hand_over(HandOver(3, version=version))
        assert proposal is not None
        assert proposal.complete is complete


def test_a_leader_alone_says_how_far_all_in_sync_have_its_log(
    leader: ClusterMember, trio: Any
) -> None:
    assert leader.seen is not None
    leader.on_record(leader.seen._replace(version=9, ack=ACK_LEADER))
    leader.on_durable(DurableEnd(4, trio[2], LOG, 150))
    assert leader.on_follow(Follow(4, trio[2], LOG, 150, 2)) == Send(4, LOG, 150, 200, 150)
    assert leader.settle() is None
    leader.on_record(leader.seen._replace(version=10, ack=ACK_TO_IN_SYNC))
    assert leader.settle() is None
    leader.on_durable(DurableEnd(4, trio[2], LOG, 200))
    assert leader.settle() is not None
    leader.is_frozen = True
    assert leader.settle() is None


def test_a_replica_compacts_only_what_all_in_sync_have(replica: ClusterMember) -> None:
    assert replica.on_send(Send(3, LOG, 200, 180, 120), 0)
    assert (replica.readable(LOG), replica.shared(LOG)) == (180, 120)
    # Those of before are the same.
    assert replica.on_send(Send(3, LOG, 200, 190), 0)
    assert (replica.readable(LOG), replica.shared(LOG)) == (190, 190)


def test_a_cut_of_an_epoch_before_a_loss_is_kept_although_the_record_was_not_read(
    replica: ClusterMember, leader: ClusterMember, record: GroupRecord, trio: Any, numbers: Any
) -> None:
    other = ClusterMember(trio[2], {LOG: numbers(200, 200, EpochHistory([(1, 0)]))}, seen=record)
    other.epoch = 4
    assert leader.seen is not None
    leader.on_record(leader.seen._replace(version=9, lossy=4))
    parted = leader.on_follow(other.follow(LOG))
    assert parted == Parted(4, LOG, 200, 1, 1, 100, 4)
    assert other.on_parted(parted) == Cut(LOG, 100, loses=True)
    assert other.on_parted(parted._replace(lossy=1)) == Cut(LOG, 100)
