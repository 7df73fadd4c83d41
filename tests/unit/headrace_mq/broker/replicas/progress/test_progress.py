"""A leader knows when each of its replicas had everything, and acts once one is behind for too long."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace_mq.broker.replicas.progress.progress import (
    ALONE_LAG_MS_MAX,
    JOIN_MS_MAX,
    REPLICA_LAG_MS_MAX,
    ReplicaProgress,
)
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.operations import SILENT_MS
from headrace_mq.cluster.record import Identity

B, C, D = (Identity(name, f"disk-{name}") for name in "bcd")
Say = Callable[[Identity, int, int], None]


@pytest.fixture
def progress(leadership: Leadership, clock: Any) -> ReplicaProgress:
    return ReplicaProgress(leadership, lambda member: member.name != "unfit", clock)


@pytest.fixture
def say(progress: ReplicaProgress) -> Say:
    """A replica says how much of a log it has, which ends at the leader at some position."""

    def told(member: Identity, has: int, end: int) -> None:
        progress.heard(member, {"forever": has}, {"forever": end})

    return told


def test_a_busy_replica_has_caught_up_by_the_moment_that_it_reached(
    progress: ReplicaProgress, say: Say, clock: Any
) -> None:
    for turn in range(1, 11):
        clock.ms += 1_000
        say(B, 10 * (turn - 1), 10 * turn)
    # It never had all of now, and is one question behind.
    assert progress.lag_ms(B) == 1_000
    say(B, 100, 100)
    assert progress.lag_ms(B) == 0


def test_a_replica_lags_after_the_time_that_it_has(
    progress: ReplicaProgress, say: Say, clock: Any
) -> None:
    clock.ms = REPLICA_LAG_MS_MAX
    say(C, 0, 0)
    assert progress.lagging() == []
    clock.ms += 1
    assert progress.lagging() == [B]
    # Where none is there, this broker may be the one that is cut off.
    clock.ms = REPLICA_LAG_MS_MAX + ALONE_LAG_MS_MAX
    assert progress.lagging() == [B]
    clock.ms += 1
    assert progress.lagging() == [B, C]


def test_a_replica_that_is_unfit_or_gone_is_not_waited_for(
    progress: ReplicaProgress, say: Say, clock: Any
) -> None:
    say(Identity("unfit", "disk"), 5, 5)
    assert progress.next_to_join() is None
    say(D, 5, 5)
    assert progress.next_to_join() == D
    clock.ms += JOIN_MS_MAX + 1
    assert progress.next_to_join() is None


def test_a_replica_that_was_heard_is_known_and_alive_for_a_while(
    progress: ReplicaProgress, say: Say, clock: Any
) -> None:
    clock.ms = 1
    say(D, 0, 0)
    assert {B, C, D} < progress.known()
    clock.ms = SILENT_MS
    assert progress.alive() == {D}
    clock.ms += 1
    assert progress.alive() == set()


def test_a_leader_of_a_group_that_the_record_answers_is_not_cut_off(
    progress: ReplicaProgress, clock: Any
) -> None:
    clock.ms = 100 * ALONE_LAG_MS_MAX
    assert not progress.is_cut_off(record_heard_ms=clock.ms)
    assert not progress.is_cut_off(record_heard_ms=0)
    clock.ms += ALONE_LAG_MS_MAX
    assert progress.is_cut_off(record_heard_ms=0)
