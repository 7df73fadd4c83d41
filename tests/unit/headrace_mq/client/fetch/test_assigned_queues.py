from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace_mq.client.fetch.assigned_queues import Share, Shares, limits_of
from headrace_mq.client.fetch.process_queue import WindowLimits
from headrace_mq.client.fetch.queue_priorities import urgency_of
from headrace_mq.client.fetch.record_columns import RecordColumns, from_records
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

MANY = 1 << 30
A, B = QueueRef("t", 0), QueueRef("t", 1)


def records(queue: QueueRef, first: int, end: int, body: bytes = b"") -> list[Record]:
    return [
        Record(
            queue=queue, offset=offset, key="", tag="", headers={}, body=body,
            born_at_ms=0, stored_at_ms=0,
        )
        for offset in range(first, end)
    ]  # fmt: skip


def columns(queue: QueueRef, first: int, end: int) -> RecordColumns:
    (run,) = from_records(records(queue, first, end))
    return run


def started(
    *queues: QueueRef, offset: int = 0, committed: int = -1, in_flight_max: int = 4
) -> Shares:
    shares = Shares(WindowLimits(in_flight_max, MANY, MANY))
    shares.assign(queues)
    for queue in queues:
        shares.start(queue, offset, known=committed >= 0, committed=committed)
    return shares


def share_of(shares: Shares, queue: QueueRef) -> Share:
    share = shares.get(queue)
    assert share is not None
    return share


def offsets(delivered: list[Record]) -> list[int]:
    return [record.offset for record in delivered]


@given(taken=st.sets(st.integers(0, 30), min_size=1), before=st.integers(0, 10))
def test_offsets_between_taken_ones_cannot_be_finished(taken: set[int], before: int) -> None:
    shares = started(A, offset=before, in_flight_max=100)
    found = [one for one in records(A, 0, 31) if one.offset in taken]
    fresh = {offset for offset in taken if offset >= before}
    assert shares.take(share_of(shares, A), found) == len(fresh)
    assert {offset for offset in range(40) if shares.holds(A, offset)} == fresh
    assert shares.to_commit()[A] == min(fresh, default=before)


def test_queues_of_higher_levels_are_delivered_first_and_the_lowest_is_not_left_alone() -> None:
    shares = Shares(WindowLimits(100, MANY, MANY), urgency_of(ConsumerSettings(priorities=2)))
    shares.assign([A, B])
    for queue in (A, B):
        shares.start(queue, 0, known=False, committed=-1)
        shares.take(share_of(shares, queue), records(queue, 0, 20))
    delivered = [shares.deliver(1)[0].queue for _ in range(16)]
    assert delivered == ([B] * 7 + [A]) * 2
    assert [each.queue for each in shares.deliver()] == [B] * 6 + [A] * 18


def test_an_assigned_queue_waits_for_its_start() -> None:
    shares = Shares(WindowLimits(4, MANY, MANY))
    assert shares.assign([B, A]) == frozenset()
    assert shares.to_start() == [A, B]
    assert shares.fetchable() == []
    shares.start(A, 10, known=True, committed=10)
    assert shares.to_start() == [B]
    assert [(s.queue, s.window.end) for s in shares.fetchable()] == [(A, 10)]


def test_a_start_that_comes_too_late_changes_nothing() -> None:
    shares = started(A, offset=10)
    shares.start(A, 99, known=True, committed=99)
    shares.start(B, 99, known=True, committed=99)
    assert share_of(shares, A).window.end == 10
    assert shares.get(B) is None


def test_records_are_trimmed_to_what_was_not_seen_and_delivered_once() -> None:
    shares = started(A, offset=10)
    assert shares.take(share_of(shares, A), records(A, 8, 12)) == 2
    assert shares.take(share_of(shares, A), records(A, 8, 13)) == 1
    assert offsets(shares.deliver()) == [10, 11, 12]
    assert shares.deliver() == []


def test_columns_are_trimmed_to_what_was_not_seen_and_delivered_once() -> None:
    shares = started(A, offset=10)
    assert shares.deliver_columns() == []
    share = share_of(shares, A)
    assert shares.take_columns(share, columns(A, 8, 12)) == 2
    assert shares.take_columns(share, columns(A, 8, 12)) == 0
    assert shares.take_columns(share, columns(A, 8, 13)) == 1
    assert [list(run.offsets) for run in shares.deliver_columns()] == [[10, 11], [12]]
    assert shares.deliver_columns() == []
    shares.finish_all(A, range(10, 12))
    assert shares.to_commit() == {A: 12}


def test_buffered_records_are_delivered_as_records_or_as_columns() -> None:
    shares = started(A, in_flight_max=100)
    shares.take(share_of(shares, A), records(A, 0, 3))
    assert shares.deliver_columns() == [columns(A, 0, 3)]
    shares.take_columns(share_of(shares, A), columns(A, 3, 6))
    assert shares.deliver(2) == records(A, 3, 5)
    assert shares.deliver() == records(A, 5, 6)


def test_columns_of_a_suspended_or_paused_queue_wait_and_those_of_a_replaced_share_do_not() -> None:
    shares = started(A, B)
    shares.deliver_columns()
    shares.take_columns(share_of(shares, A), columns(A, 0, 2))
    shares.pause([A])
    assert shares.deliver_columns() == []
    shares.resume([A])
    shares.suspend()
    assert shares.deliver_columns() == []
    shares.start(A, 0, known=False, committed=-1)
    assert shares.deliver_columns() == [columns(A, 0, 2)]
    old = share_of(shares, A)
    shares.seek(A, 0)
    assert shares.take_columns(old, columns(A, 2, 4)) == 0


def test_queues_that_stay_are_not_touched_by_a_new_assignment() -> None:
    shares = started(A, B)
    kept = share_of(shares, A)
    shares.take(kept, records(A, 0, 2))
    assert shares.assign([A]) == {B}
    assert shares.get(A) is kept
    assert offsets(shares.deliver()) == [0, 1]


def test_a_revoked_queue_is_dropped_and_leaves_what_was_finished_to_commit() -> None:
    shares = started(A, committed=0)
    shares.take(share_of(shares, A), records(A, 0, 3))
    shares.finish(A, 0)
    shares.finish(A, 2)
    assert shares.assign([]) == {A}
    assert shares.deliver() == []
    assert not shares.finish(A, 1)
    assert shares.to_commit() == {A: 1}
    shares.committed({A: 1})
    assert shares.to_commit() == {}


def test_a_queue_that_comes_back_before_it_was_handed_over_starts_again_afterwards() -> None:
    shares = started(A, committed=0)
    shares.take(share_of(shares, A), records(A, 0, 3))
    shares.begin(A, 0)
    shares.assign([])
    # Whoever handles records drops those that it may not begin any more.
    assert not shares.begin(A, 1)
    assert shares.assign([A]) == frozenset()
    assert shares.to_start() == []
    assert not shares.begin(A, 2)
    shares.end(A, 0, done=True)
    assert shares.to_commit() == {A: 1}
    shares.part_with(shares.drained())
    assert shares.to_start() == [A]
    shares.start(A, 1, known=True, committed=1)
    assert shares.take(share_of(shares, A), records(A, 1, 3)) == 2
    assert offsets(shares.deliver()) == [1, 2]


def test_a_revoked_queue_is_drained_when_every_attempt_on_it_has_ended() -> None:
    shares = started(A, B, committed=0)
    shares.take(share_of(shares, A), records(A, 0, 3))
    assert shares.begin(A, 0)
    assert shares.begin(A, 1)
    shares.assign([])
    assert shares.drained() == [B]
    assert not shares.begin(A, 2)
    assert not shares.end(A, 1, done=True)
    assert shares.end(A, 0, done=False)
    assert shares.drained() == [A, B]
    assert shares.to_commit() == {}
    shares.part_with([A, B])
    assert shares.drained() == []


def test_an_attempt_that_outlives_its_hand_over_changes_nothing() -> None:
    shares = started(A, committed=0)
    shares.take(share_of(shares, A), records(A, 0, 1))
    shares.begin(A, 0)
    shares.assign([])
    shares.part_with([A])
    assert not shares.end(A, 0, done=True)
    assert shares.to_commit() == {}


def test_offsets_of_revoked_queues_are_committed_in_order() -> None:
    queues = [QueueRef("t", number) for number in range(20)]
    shares = started(*queues)
    shares.assign([])
    assert list(shares.to_commit()) == queues


def test_offsets_of_revoked_queues_can_be_given_up() -> None:
    shares = started(A)
    shares.assign([])
    shares.forget_revoked()
    assert shares.to_commit() == {}


def test_a_queue_that_comes_back_does_not_commit_what_it_left_before() -> None:
    shares = started(A, offset=5)
    shares.assign([])
    shares.assign([A])
    shares.start(A, 8, known=True, committed=8)
    assert shares.to_commit() == {}


def test_a_full_window_is_not_fetched_until_there_is_room() -> None:
    shares = started(A, in_flight_max=2)
    shares.take(share_of(shares, A), records(A, 0, 3))
    assert shares.fetchable() == []
    assert not shares.finish(A, 2)
    assert shares.fetchable() == []
    assert shares.finish(A, 0)
    assert [share.queue for share in shares.fetchable()] == [A]
    assert not shares.finish(A, 1)


def test_a_window_is_full_by_bytes_and_span_too() -> None:
    for limits in (WindowLimits(MANY, 2, MANY), WindowLimits(MANY, MANY, 2)):
        shares = Shares(limits)
        shares.assign([A])
        shares.start(A, 0, known=False, committed=-1)
        shares.take(share_of(shares, A), records(A, 0, 2, b"x"))
        assert shares.fetchable() == []
        assert shares.finish(A, 0)
        assert [share.queue for share in shares.fetchable()] == [A]


def test_the_limits_are_those_of_the_settings() -> None:
    settings = ConsumerSettings(in_flight_max=1, in_flight_bytes_max=2, in_flight_span_max=3)
    assert limits_of(settings) == (1, 2, 3)


def test_queues_take_turns_where_not_all_is_delivered() -> None:
    shares = started(A, B)
    for queue in (A, B):
        shares.take(share_of(shares, queue), records(queue, 0, 4))
    first = [(r.queue, r.offset) for r in shares.deliver(3)]
    second = [(r.queue, r.offset) for r in shares.deliver(2)]
    assert first == [(A, 0), (A, 1), (A, 2)]
    assert second == [(B, 0), (B, 1)]
    assert [(r.queue, r.offset) for r in shares.deliver()] == [(A, 3), (B, 2), (B, 3)]


def test_paused_queues_are_neither_fetched_nor_delivered_until_resumed_or_revoked() -> None:
    shares = started(A, B)
    shares.take(share_of(shares, A), records(A, 0, 2))
    shares.pause([A, QueueRef("other", 0)])
    assert shares.deliver() == []
    assert [share.queue for share in shares.fetchable(asked=True)] == [B]
    shares.seek(A, 1)
    assert [share.queue for share in shares.fetchable()] == [B]
    shares.resume([A])
    assert {share.queue for share in shares.fetchable()} == {A, B}
    shares.pause([A])
    shares.assign([B])
    shares.part_with([A])
    shares.assign([A, B])
    shares.start(A, 0, known=False, committed=-1)
    assert {share.queue for share in shares.fetchable()} == {A, B}


def test_a_queue_that_is_asked_for_is_fetched_again_only_on_demand() -> None:
    shares = started(A, B)
    share_of(shares, A).asked = 1
    assert [share.queue for share in shares.fetchable()] == [B]
    assert [share.queue for share in shares.fetchable(asked=True)] == [A, B]


def test_a_damaged_queue_is_not_fetched_until_it_is_sought_past() -> None:
    shares = started(A)
    share_of(shares, A).damaged = True
    assert shares.fetchable(asked=True) == []
    shares.seek(A, 5)
    assert [share.window.end for share in shares.fetchable()] == [5]


def test_seeking_drops_what_is_buffered_and_what_a_fetch_under_way_brings() -> None:
    shares = started(A)
    old = share_of(shares, A)
    shares.take(old, records(A, 0, 2))
    assert shares.seek(A, 1)
    assert shares.deliver() == []
    assert shares.take(old, records(A, 2, 4)) == 0
    assert shares.take(share_of(shares, A), records(A, 0, 3)) == 2
    assert offsets(shares.deliver()) == [1, 2]


def test_seeking_a_queue_of_another_member_is_ignored() -> None:
    assert not started(A).seek(B, 5)


def test_seeking_before_the_start_wins_over_the_loaded_offset() -> None:
    shares = Shares(WindowLimits(4, MANY, MANY))
    shares.assign([A])
    shares.seek(A, 3)
    assert shares.to_start() == [A]
    assert shares.fetchable() == []
    shares.start(A, 50, known=True, committed=50)
    assert [share.window.end for share in shares.fetchable()] == [3]


def test_suspended_queues_are_neither_fetched_nor_delivered_nor_committed() -> None:
    shares = started(A, committed=0)
    shares.take(share_of(shares, A), records(A, 0, 2))
    shares.finish(A, 0)
    shares.suspend()
    assert shares.fetchable(asked=True) == []
    assert shares.deliver() == []
    assert shares.to_commit() == {}
    assert shares.to_start() == [A]
    assert shares.holds(A, 1)


def test_a_suspended_queue_resumes_where_it_stood() -> None:
    shares = started(A)
    kept = share_of(shares, A)
    shares.take(kept, records(A, 0, 3))
    shares.finish(A, 0)
    shares.suspend()
    shares.start(A, 0, known=True, committed=0)
    assert shares.get(A) is kept
    assert shares.to_commit() == {A: 1}
    assert offsets(shares.deliver()) == [0, 1, 2]


def test_a_suspended_queue_without_a_known_offset_resumes_where_it_stood() -> None:
    shares = started(A)
    shares.suspend()
    shares.start(A, 99, known=False, committed=-1)
    assert share_of(shares, A).window.end == 0


def test_a_suspended_queue_that_another_member_went_on_with_is_continued_from_there() -> None:
    shares = started(A)
    shares.take(share_of(shares, A), records(A, 0, 3))
    shares.suspend()
    shares.start(A, 2, known=True, committed=2)
    assert shares.deliver() == []
    assert not shares.holds(A, 0)
    assert share_of(shares, A).window.end == 2


def test_a_new_start_is_committed_when_the_group_had_none() -> None:
    assert started(A, offset=7).to_commit() == {A: 7}
    assert started(A, offset=7, committed=7).to_commit() == {}


@given(st.permutations(range(6)))
def test_offsets_finish_in_any_order(order: list[int]) -> None:
    shares = started(A)
    shares.take(share_of(shares, A), records(A, 0, 6))
    done: set[int] = set()
    for offset in order:
        shares.finish(A, offset)
        done.add(offset)
        assert shares.to_commit() == {A: min(set(range(6)) - done, default=6)}


class Life(RuleBasedStateMachine):
    """Two queues that are assigned, revoked, sought, suspended and read in any order."""

    queues = st.sampled_from([A, B])

    @initialize()
    def begin(self) -> None:
        self.shares = Shares(WindowLimits(5, MANY, MANY))
        # What each queue may still deliver first, and what it delivered and did not finish.
        self.next: dict[QueueRef, int] = {}
        self.open: dict[QueueRef, set[int]] = {A: set(), B: set()}

    @rule(assigned=st.sets(queues))
    def assign(self, assigned: set[QueueRef]) -> None:
        # One that comes back is started anew, also where it was not handed over in between.
        for queue in self.shares.assign(assigned):
            self.next.pop(queue, None)
            self.open[queue].clear()

    @rule()
    def hand_over(self) -> None:
        self.shares.part_with(self.shares.drained())

    @rule(offset=st.integers(0, 30))
    def start(self, offset: int) -> None:
        for queue in self.shares.to_start():
            before = self.shares.get(queue)
            self.shares.start(queue, offset, known=True, committed=offset)
            if self.shares.get(queue) is not before:
                self.next[queue] = offset
                self.open[queue].clear()

    @rule()
    def suspend(self) -> None:
        self.shares.suspend()

    @rule(queue=queues, offset=st.integers(0, 30))
    def seek(self, queue: QueueRef, offset: int) -> None:
        if self.shares.seek(queue, offset):
            self.next[queue] = offset
            self.open[queue].clear()

    @rule(below=st.integers(0, 3), count=st.integers(1, 4))
    def fetch(self, below: int, count: int) -> None:
        for share in self.shares.fetchable():
            first, end = max(share.window.end - below, 0), share.window.end + count
            if self.shares.in_columns:
                self.shares.take_columns(share, columns(share.queue, first, end))
            else:
                self.shares.take(share, records(share.queue, first, end))

    @rule(in_columns=st.booleans())
    def deliver(self, in_columns: bool) -> None:
        if in_columns:
            delivered = [one for run in self.shares.deliver_columns() for one in run.records()]
        else:
            delivered = self.shares.deliver()
        for record in delivered:
            assert record.offset == self.next[record.queue]
            self.next[record.queue] += 1
            self.open[record.queue].add(record.offset)

    @rule(queue=queues, offset=st.integers(0, 40))
    def finish(self, queue: QueueRef, offset: int) -> None:
        if offset in self.open[queue]:
            self.shares.finish(queue, offset)
            self.open[queue].discard(offset)

    @invariant()
    def what_is_open_is_held_and_never_committed(self) -> None:
        for queue, unfinished in self.open.items():
            for offset in unfinished:
                assert self.shares.holds(queue, offset)
            assert self.shares.to_commit().get(queue, 0) <= min(unfinished, default=1 << 30)


TestLife = Life.TestCase


def test_offsets_that_were_not_selected_are_committed_with_finished_ones() -> None:
    shares = started(A)
    share = share_of(shares, A)
    shares.take(share, records(A, 2, 3))
    shares.pass_over(share, 9)
    assert shares.to_commit() == {A: 2}
    shares.finish(A, 2)
    assert shares.to_commit() == {A: 9}
    shares.seek(A, 0)
    shares.pass_over(share, 30)
    assert share_of(shares, A).window.end == 0
