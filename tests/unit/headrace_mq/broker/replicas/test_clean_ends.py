"""A leader lets tombstones go once all in sync have been clean for as long as a tombstone stays."""

from types import SimpleNamespace

import pytest

from headrace_mq.broker.replicas.bodies import LogEnd
from headrace_mq.broker.replicas.clean_ends import CleanEnds
from headrace_mq.cluster.record import Identity
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.replication.compacted_log import CompactedState
from headrace_mq.testing.clock import ManualClock

A, B, C = (Identity(name, "disk") for name in "abc")
STAYS_MS = 1_000


class Logs:
    """The leader's log, which ends at 900."""

    def __init__(self) -> None:
        self.tombstones = 0
        self.clean = 0
        self.store = SimpleNamespace(raw=SimpleNamespace(compacted=self._compacted))

    def _compacted(self, _log: str) -> CompactedState:
        return CompactedState(clean=self.clean)

    def end(self, _log: str) -> int:
        return 900


class Leader:
    def __init__(self) -> None:
        self.clock, self.logs = ManualClock(), Logs()
        self.ends = CleanEnds(self.logs, A, self.clock)  # type: ignore[arg-type]  # only what is used of them

    def hears(self, member: Identity, clean: int, forgotten: int = 0) -> None:
        self.ends.heard(member, LogEnd("compact", 900, 1, 900, clean, forgotten))

    def tombstones(self, *required: Identity) -> int:
        bounds = self.ends.bounds(700, {A, *required}, STAYS_MS)
        assert bounds == Bounds(700, self.logs.tombstones)
        return self.logs.tombstones


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_a_leader_alone_waits_for_its_own_time(leader: Leader) -> None:
    leader.logs.clean = 100
    assert leader.tombstones() == 0
    leader.clock.advance(STAYS_MS - 1)
    leader.logs.clean = 200
    assert leader.tombstones() == 0
    leader.clock.advance(1)
    assert leader.tombstones() == 100
    leader.clock.advance(STAYS_MS)
    assert leader.tombstones() == 200


def test_the_broker_that_is_behind_holds_the_tombstones(leader: Leader) -> None:
    leader.logs.clean = 200
    assert leader.tombstones(B) == 0
    leader.hears(B, 150)
    assert leader.tombstones(B) == 0
    leader.clock.advance(STAYS_MS)
    assert leader.tombstones(B) == 150
    leader.hears(B, 200)
    leader.tombstones(B)
    leader.clock.advance(STAYS_MS - 1)
    # One that enters has not been clean for long enough.
    leader.hears(C, 170)
    assert leader.tombstones(B, C) == 150
    leader.clock.advance(1)
    assert leader.tombstones(B, C) == 150
    leader.hears(C, 300)
    leader.tombstones(B, C)
    leader.clock.advance(STAYS_MS)
    assert leader.tombstones(B, C) == 200


def test_a_broker_enters_once_it_is_clean_where_tombstones_are_gone(leader: Leader) -> None:
    assert leader.ends.may_enter(C)
    leader.hears(B, 300, forgotten=250)
    assert leader.tombstones(B) == 250
    assert not leader.ends.may_enter(C)
    leader.hears(C, 249)
    assert not leader.ends.may_enter(C)
    leader.hears(C, 250)
    assert leader.ends.may_enter(C)


def test_other_logs_say_nothing_of_tombstones(leader: Leader) -> None:
    leader.ends.heard(B, LogEnd("forever", 900, 1, 900, 800, 800))
    assert leader.tombstones() == 0


def test_positions_behind_the_end_of_the_log_are_of_messages_that_were_lost(
    leader: Leader,
) -> None:
    leader.logs.tombstones = 5_000
    leader.ends = CleanEnds(leader.logs, A, leader.clock)  # type: ignore[arg-type]  # only what is used of them
    assert leader.tombstones() == 900
    leader.hears(B, 0, forgotten=6_000)
    assert leader.tombstones() == 900
