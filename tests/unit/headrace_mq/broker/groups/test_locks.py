import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace_mq.broker.groups import locks as locks_module
from headrace_mq.broker.groups.locks import Locks, Owner
from headrace_mq.errors import InvalidArgument, StaleLock
from headrace_mq.message import QueueRef

A, B = QueueRef("t", 0), QueueRef("t", 1)
ONE, TWO = Owner("g", "one", "session 1"), Owner("g", "two", "session 2")
EXPIRY_MS = 100


@pytest.fixture
def locks() -> Locks[str]:
    return Locks[str](expiry_ms=EXPIRY_MS)


def passes(locks: Locks[str], owner: Owner[str], queue: QueueRef, epoch: int, now_ms: int) -> bool:
    try:
        locks.check(owner, queue, epoch, now_ms=now_ms)
    except StaleLock:
        return False
    return True


def test_a_lock_is_granted_if_free_or_to_its_owner_only(
    locks: Locks[str],
) -> None:
    first = locks.lock(ONE, [A, A], now_ms=0)
    assert list(first) == [A]
    assert locks.lock(ONE, [A], now_ms=1) == first
    granted = locks.lock(TWO, [A, B], now_ms=1)
    assert list(granted) == [B]
    assert granted[B] > first[A]


def test_groups_do_not_see_each_others_locks(locks: Locks[str]) -> None:
    locks.lock(ONE, [A], now_ms=0)
    assert list(locks.lock(Owner("other", "one", "session 1"), [A], now_ms=0)) == [A]


def test_an_expired_lock_goes_to_the_next_member_with_a_greater_epoch(locks: Locks[str]) -> None:
    old = locks.lock(ONE, [A], now_ms=0)[A]
    assert locks.lock(TWO, [A], now_ms=EXPIRY_MS - 1) == {}
    new = locks.lock(TWO, [A], now_ms=EXPIRY_MS)[A]
    assert new > old
    assert not passes(locks, ONE, A, old, EXPIRY_MS)
    assert passes(locks, TWO, A, new, EXPIRY_MS)


def test_a_heartbeat_keeps_all_locks_of_a_member(locks: Locks[str]) -> None:
    granted = locks.lock(ONE, [A, B], now_ms=0)
    locks.renew(ONE, now_ms=EXPIRY_MS - 1)
    assert locks.lock(TWO, [A, B], now_ms=EXPIRY_MS) == {}
    assert passes(locks, ONE, B, granted[B], EXPIRY_MS)


def test_a_late_heartbeat_keeps_the_locks_that_no_member_took(locks: Locks[str]) -> None:
    granted = locks.lock(ONE, [A, B], now_ms=0)
    locks.lock(TWO, [A], now_ms=EXPIRY_MS)
    locks.renew(ONE, now_ms=EXPIRY_MS)
    assert not passes(locks, ONE, A, granted[A], EXPIRY_MS)
    assert passes(locks, ONE, B, granted[B], EXPIRY_MS)
    assert locks.lock(TWO, [B], now_ms=EXPIRY_MS) == {}


def test_unlocking_frees_ones_own_locks_only(locks: Locks[str]) -> None:
    epoch = locks.lock(ONE, [A], now_ms=0)[A]
    locks.unlock(TWO, [A])
    locks.unlock(Owner("g", "one", "another session"), [A])
    assert passes(locks, ONE, A, epoch, 0)
    locks.unlock(ONE, [A, B])
    assert not passes(locks, ONE, A, epoch, 0)
    assert list(locks.lock(TWO, [A], now_ms=0)) == [A]


def test_the_locks_of_a_member_are_free_when_it_is_gone(locks: Locks[str]) -> None:
    locks.lock(ONE, [A, B], now_ms=0)
    locks.release("g", "one")
    locks.release("g", "one")
    assert len(locks) == 0
    assert sorted(locks.lock(TWO, [A, B], now_ms=0)) == [A, B]


def test_a_member_that_comes_back_on_another_connection_gets_a_new_epoch(
    locks: Locks[str],
) -> None:
    old = locks.lock(ONE, [A, B], now_ms=0)
    again = Owner("g", "one", "session 3")
    new = locks.lock(again, [A], now_ms=1)
    assert new[A] > old[B]
    assert not passes(locks, ONE, A, old[A], 1)
    assert not passes(locks, again, A, old[A], 1)
    # The other one went with the old connection.
    assert list(locks.lock(TWO, [B], now_ms=1)) == [B]
    locks.renew(ONE, now_ms=EXPIRY_MS)
    assert list(locks.lock(TWO, [A], now_ms=1 + EXPIRY_MS)) == [A]


def test_a_commit_without_a_lock_passes_while_no_other_member_holds_one(locks: Locks[str]) -> None:
    assert passes(locks, ONE, A, 0, 0)
    locks.lock(ONE, [A], now_ms=0)
    assert passes(locks, ONE, A, 0, 0)
    assert not passes(locks, TWO, A, 0, 0)
    assert passes(locks, TWO, A, 0, EXPIRY_MS)
    assert not passes(locks, TWO, B, 7, 0)


def test_epochs_grow_across_starts_of_the_broker() -> None:
    older = Locks[str](expiry_ms=EXPIRY_MS, epoch=1)
    newer = Locks[str](expiry_ms=EXPIRY_MS, epoch=2)
    for _ in range(1_000):
        before = older.lock(ONE, [A], now_ms=0)[A]
        older.unlock(ONE, [A])
    assert newer.lock(ONE, [A], now_ms=0)[A] > before


def test_locks_above_the_limit_are_refused(
    locks: Locks[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_module, "LOCKS_MAX", 1)
    locks.lock(ONE, [A], now_ms=0)
    with pytest.raises(InvalidArgument, match="at most 1 locks"):
        locks.lock(ONE, [B], now_ms=0)
    assert list(locks.lock(ONE, [A], now_ms=0)) == [A]


class Life(RuleBasedStateMachine):
    """Members of a group on connections that come and go, and time that passes."""

    members = st.sampled_from(["one", "two", "three"])
    queues = st.sets(st.sampled_from([QueueRef("t", n) for n in range(4)]))

    def __init__(self) -> None:
        super().__init__()
        self.locks = Locks[str](expiry_ms=EXPIRY_MS)
        self.now = 0
        self.session = dict.fromkeys(["one", "two", "three"], 0)
        self.heard: dict[str, int] = {}
        # By the model: queue -> (member, epoch), whether expired or not.
        self.held: dict[QueueRef, tuple[str, int]] = {}
        self.newest = 0

    def owner(self, member: str) -> Owner[str]:
        return Owner("g", member, f"{member} {self.session[member]}")

    def alive(self, member: str) -> bool:
        return self.now - self.heard.get(member, -EXPIRY_MS) < EXPIRY_MS

    @rule(member=members, queues=queues)
    def lock(self, member: str, queues: set[QueueRef]) -> None:
        granted = self.locks.lock(self.owner(member), sorted(queues), now_ms=self.now)
        for queue in sorted(queues):
            holder, epoch = self.held.get(queue, ("", 0))
            if holder == member:
                assert granted.pop(queue) == epoch
            elif not holder or not self.alive(holder):
                assert granted[queue] > self.newest
                self.newest = granted.pop(queue)
                self.held[queue] = (member, self.newest)
        assert granted == {}
        self.heard[member] = self.now

    @rule(member=members, queues=queues)
    def unlock(self, member: str, queues: set[QueueRef]) -> None:
        self.locks.unlock(self.owner(member), queues)
        self.forget(member, queues)

    @rule(member=members)
    def beat(self, member: str) -> None:
        self.locks.renew(self.owner(member), now_ms=self.now)
        if any(holder == member for holder, _ in self.held.values()):
            self.heard[member] = self.now

    @rule(member=members)
    def disconnect(self, member: str) -> None:
        self.locks.release("g", member)
        self.session[member] += 1
        self.forget(member, set(self.held))

    @rule(ms=st.integers(1, EXPIRY_MS))
    def wait(self, ms: int) -> None:
        self.now += ms

    def forget(self, member: str, queues: set[QueueRef]) -> None:
        for queue in queues:
            if self.held.get(queue, ("", 0))[0] == member:
                del self.held[queue]

    @invariant()
    def only_the_newest_grant_of_each_queue_lets_commits_pass(self) -> None:
        for number in range(4):
            queue = QueueRef("t", number)
            holder, newest = self.held.get(queue, ("", 0))
            for member in self.session:
                for _, epoch in self.held.values():
                    passed = passes(self.locks, self.owner(member), queue, epoch, self.now)
                    assert passed == (member == holder and epoch == newest)
                free = not holder or holder == member or not self.alive(holder)
                assert passes(self.locks, self.owner(member), queue, 0, self.now) == free
        assert len(self.locks) == len(self.held)


TestLife = Life.TestCase
TestLife.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
