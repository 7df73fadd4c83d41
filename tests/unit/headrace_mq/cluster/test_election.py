"""The set decides who may stand, time only when."""

from typing import Any

import pytest

from headrace_mq.cluster.election import (
    LEASE_MS,
    RENEW_MS,
    Patience,
    candidacy,
    founding,
    may_stand,
)
from headrace_mq.cluster.record import GroupRecord, Identity, Proposal
from headrace_mq.errors import MessageQueueError


def test_only_a_member_of_the_set_with_its_disk_may_stand(trio: Any, record: GroupRecord) -> None:
    _, b, _ = trio
    assert may_stand(b, record)
    assert not may_stand(Identity("b", "empty"), record)
    assert candidacy(Identity("d", "1"), record) is None


def test_a_new_leader_leaves_the_old_one_out_of_the_set(trio: Any, record: GroupRecord) -> None:
    a, b, c = trio
    assert candidacy(b, record) == Proposal(7, 4, "b", frozenset({b, c}))
    assert candidacy(b, record, keep_leader=True) == Proposal(7, 4, "b", frozenset(trio))
    marked = candidacy(b, record._replace(unclean=2))
    assert marked is not None
    assert marked.unclean == 2
    # After a restart the leader takes a new epoch, too.
    assert candidacy(a, record) == Proposal(7, 4, "a", frozenset(trio))


def test_a_broker_founds_a_group_on_its_messages_only_where_it_made_the_record(
    trio: Any, record: GroupRecord
) -> None:
    a, b, _ = trio
    own = GroupRecord(1, 5, "a", frozenset({a}))
    assert founding(a, own, 5) is None
    # It ran alone again after it had made the record.
    assert founding(a, own, 7) == Proposal(1, 7, "a", frozenset({a}))
    for other in (record, own._replace(in_sync=frozenset({b})), own._replace(in_sync=frozenset())):
        with pytest.raises(MessageQueueError, match="another --group"):
            founding(a, other, 5)
    with pytest.raises(MessageQueueError, match="another --group"):
        founding(Identity("a", "another disk"), own, 5)


def test_a_member_waits_a_lease_and_its_own_delay_unless_the_process_is_gone() -> None:
    patience = Patience(10_000, spread_ms=50)
    assert not patience.is_over(10_000 + LEASE_MS + 49)
    assert patience.is_over(10_000 + LEASE_MS + 50)
    patience.heard(12_000)
    patience.heard(11_000)
    assert not patience.is_over(10_000 + LEASE_MS + 50)
    patience.refused()
    assert patience.is_over(12_000)
    patience.heard(12_100)
    assert not patience.is_over(12_200)
    assert LEASE_MS >= 3 * RENEW_MS
