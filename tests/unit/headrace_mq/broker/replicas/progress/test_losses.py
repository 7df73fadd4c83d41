"""A leader knows what the group would lose if one of its replicas led now, to the byte, and since when."""

from typing import Any

import pytest

from headrace_mq.broker.replicas.progress.losses import NO_LOSS, PossibleLoss, PossibleLosses
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.record import GroupRecord, Identity

A, B, C, D = (Identity(name, f"disk-{name}") for name in "abcd")


class Alone(Leadership):
    """A leader that acknowledges what its own disk has."""

    def committed(self, log: str) -> int:
        return self.durable[self.me].get(log, 0)


@pytest.fixture
def alone(leadership: Leadership) -> Leadership:
    leadership.__class__ = Alone
    return leadership


def test_replicas_in_sync_lack_nothing_that_was_acknowledged(
    leadership: Leadership, clock: Any
) -> None:
    losses = PossibleLosses(leadership, ["forever", "compact"], clock)
    for member, end in ((A, 900), (B, 500), (C, 100)):
        leadership.on_durable(member, "forever", end)
        losses.look()
    assert leadership.committed("forever") == 100
    clock.ms = 60_000
    assert [losses.of(member) for member in (A, B, C)] == [NO_LOSS] * 3
    assert losses.worst() == NO_LOSS


def test_a_member_outside_the_set_is_not_elected_and_loses_nothing(
    leadership: Leadership, clock: Any
) -> None:
    losses = PossibleLosses(leadership, ["forever", "compact"], clock)
    for member, end in ((D, 30), (A, 100), (B, 100), (C, 100)):
        leadership.on_durable(member, "forever", end)
    losses.look()
    clock.ms = 7
    assert losses.of(D) == PossibleLoss(70, 7)
    assert losses.worst() == NO_LOSS


def test_a_failover_may_lose_what_the_worst_of_the_set_lacks(alone: Leadership, clock: Any) -> None:
    losses = PossibleLosses(alone, ["forever", "compact"], clock)
    alone.on_durable(A, "forever", 100)
    losses.look()
    clock.ms = 250
    alone.on_durable(A, "compact", 8)
    alone.on_durable(B, "forever", 90)
    losses.look()
    assert losses.of(A) == NO_LOSS
    assert losses.of(B) == PossibleLoss(10 + 8, 250)
    assert losses.of(C) == PossibleLoss(100 + 8, 250)
    assert losses.worst() == PossibleLoss(108, 250)
    alone.confirmed = frozenset({A, B})
    assert losses.worst() == PossibleLoss(18, 250)
    alone.confirmed = frozenset({A})
    assert losses.worst() == NO_LOSS


def test_a_replica_that_keeps_up_lacks_only_what_is_new(alone: Leadership, clock: Any) -> None:
    losses = PossibleLosses(alone, ["forever"], clock)
    # It never has all of now, and always all of ten milliseconds ago.
    for turn in range(100):
        clock.ms = 10 * turn
        alone.on_durable(A, "forever", 100 * (turn + 1))
        losses.look()
        alone.on_durable(B, "forever", 100 * turn)
        losses.look()
    assert losses.of(B) == PossibleLoss(100, 10)
    # It stands still, and the leader goes on.
    for turn in range(100, 200):
        clock.ms = 10 * turn
        alone.on_durable(A, "forever", 100 * (turn + 1))
        losses.look()
    assert losses.of(B) == PossibleLoss(100 * 101, 10 * 101)


def test_a_replica_that_has_everything_again_begins_from_new(alone: Leadership, clock: Any) -> None:
    losses = PossibleLosses(alone, ["forever"], clock)
    alone.on_durable(A, "forever", 100)
    losses.look()
    clock.ms = 5_000
    alone.on_durable(B, "forever", 100)
    losses.look()
    assert losses.of(B) == NO_LOSS
    clock.ms = 60_000
    alone.on_durable(A, "forever", 101)
    losses.look()
    clock.ms += 3
    assert losses.of(B) == PossibleLoss(1, 3)


def test_a_replica_that_was_not_heard_yet_lacks_what_this_epoch_acknowledged(clock: Any) -> None:
    record = GroupRecord(1, 1, "a", frozenset({A, B}))
    alone = Alone(A, record, {"forever": 1_000}, min_in_sync=1)
    losses = PossibleLosses(alone, ["forever"], clock)
    losses.look()
    assert losses.worst() == NO_LOSS
    alone.on_durable(A, "forever", 1_100)
    losses.look()
    assert losses.worst() == PossibleLoss(100, 0)
