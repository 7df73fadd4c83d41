from collections.abc import Callable, Collection

import pytest

from headrace_mq.broker.fetch import long_poll
from headrace_mq.broker.fetch.long_poll import (
    SERVED_AT_ONCE_MAX,
    SERVED_IN_TURN_MAX,
    LongPoll,
    ParkedFetch,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import Fetch

A, B = QueueRef("t", 0), QueueRef("t", 1)


class FakeTimer:
    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTimers:
    """An event loop whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[FakeTimer] = []

    def call_soon(self, callback: Callable[[], object]) -> FakeTimer:
        return self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> FakeTimer:
        timer = FakeTimer(self.now + delay, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float = 0) -> None:
        self.now += seconds
        due = sorted((t for t in self.timers if t.at <= self.now), key=lambda timer: timer.at)
        self.timers = [timer for timer in self.timers if timer.at > self.now]
        for timer in due:
            if not timer.cancelled:
                timer.call()


class FakeConnection:
    congested = False


class Subject:
    def __init__(self, parked_max: int = 100) -> None:
        self.timers = FakeTimers()
        self.answers: list[tuple[str, int]] = []
        self.looked: list[int] = []
        self.looked_at: list[list[QueueRef]] = []
        self.there: set[QueueRef] = set()
        self.poll = LongPoll(
            self.timers, parked_max=parked_max, serve=self.serve, expire=self.expire
        )

    def serve(self, fetch: ParkedFetch, queues: Collection[QueueRef]) -> bool:
        self.looked.append(fetch.correlation)
        self.looked_at.append(list(queues))
        if self.there.isdisjoint(queues):
            return False
        self.answers.append(("served", fetch.correlation))
        return True

    def expire(self, fetch: ParkedFetch) -> None:
        self.answers.append(("nothing", fetch.correlation))

    def park(
        self,
        number: int,
        *queues: QueueRef,
        connection: FakeConnection | None = None,
        wait_ms: int = 1_000,
    ) -> FakeConnection:
        connection = connection or FakeConnection()
        offsets = dict.fromkeys(queues, 0)
        assert self.poll.park(ParkedFetch(connection, number, Fetch([], 1, 1), offsets), wait_ms)
        return connection


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_an_append_serves_the_fetches_of_its_queue_and_no_others(subject: Subject) -> None:
    subject.park(1, A)
    subject.park(2, B)
    subject.there = {A}
    subject.poll.wake([A])
    subject.timers.advance()
    assert subject.answers == [("served", 1)]
    assert len(subject.poll) == 1


def test_a_queue_that_has_just_grown_is_served_at_once_and_checked_once(subject: Subject) -> None:
    subject.park(1, A, B)
    subject.park(2, B)
    subject.there = {A}
    subject.poll.serve([A, B])
    assert subject.answers == [("served", 1)]
    assert (subject.looked, subject.looked_at) == ([1, 2], [[A, B], [B]])
    assert len(subject.poll) == 1


def test_of_many_only_the_first_are_served_at_once_and_all_others_in_the_same_tick(
    subject: Subject,
) -> None:
    everybody = list(range(SERVED_AT_ONCE_MAX + 3))
    for number in everybody:
        subject.park(number, A)
    subject.there = {A}
    subject.poll.serve([A])
    assert subject.looked == everybody[:SERVED_AT_ONCE_MAX]
    subject.timers.advance()
    assert subject.looked == everybody
    assert len(subject.poll) == 0


def test_the_fetch_that_waited_longest_is_served_first(subject: Subject) -> None:
    for number in range(5):
        subject.park(number, A)
    subject.there = {A}
    subject.poll.wake([A])
    subject.timers.advance()
    assert [number for _, number in subject.answers] == [0, 1, 2, 3, 4]


def test_a_fetch_is_looked_at_once_per_tick_however_many_of_its_queues_grew(
    subject: Subject,
) -> None:
    subject.park(1, A, B)
    subject.poll.wake([A, B])
    subject.poll.wake([A])
    subject.timers.advance()
    assert subject.looked == [1]


def test_a_fetch_that_finds_nothing_after_all_goes_on_waiting(subject: Subject) -> None:
    subject.park(1, A)
    subject.poll.wake([A])
    subject.timers.advance()
    assert subject.answers == []
    subject.there = {A}
    subject.poll.wake([A])
    subject.timers.advance()
    assert subject.answers == [("served", 1)]


def test_the_clock_answers_with_nothing_once(subject: Subject) -> None:
    subject.park(1, A, wait_ms=1_000)
    subject.timers.advance(0.999)
    assert subject.answers == []
    subject.timers.advance(0.001)
    subject.timers.advance(10)
    assert subject.answers == [("nothing", 1)]
    assert len(subject.poll) == 0


def test_a_served_fetch_is_not_answered_again_by_the_clock(subject: Subject) -> None:
    subject.park(1, A)
    subject.there = {A}
    subject.poll.wake([A])
    subject.timers.advance(10)
    subject.timers.advance(10)
    assert subject.answers == [("served", 1)]


def test_a_fetch_that_runs_out_in_the_tick_it_is_woken_is_answered_once(subject: Subject) -> None:
    subject.park(1, A, wait_ms=0)
    subject.there = {A}
    subject.poll.wake([A])
    subject.timers.advance()
    assert len(subject.answers) == 1


def test_a_congested_connection_is_served_when_it_has_caught_up(subject: Subject) -> None:
    connection = subject.park(1, A)
    connection.congested = True
    subject.there = {A}
    subject.poll.wake([A])
    subject.timers.advance()
    assert subject.answers == []
    connection.congested = False
    subject.poll.wake_connection(connection)
    subject.timers.advance()
    assert subject.answers == [("served", 1)]


def test_the_fetches_of_one_group_are_looked_at_again_when_it_may_go_on(subject: Subject) -> None:
    for number, group in enumerate(("g", "h", "g")):
        fetch = ParkedFetch(FakeConnection(), number, Fetch([], 1, 1, group), {A: 0, B: 0})
        assert subject.poll.park(fetch, 1_000)
    subject.there = {B}
    subject.poll.wake_group("g")
    subject.timers.advance()
    assert subject.answers == [("served", 0), ("served", 2)]
    assert len(subject.poll) == 1


def test_a_dropped_connection_takes_its_fetches_along(subject: Subject) -> None:
    gone = subject.park(1, A)
    subject.park(2, A, connection=gone)
    subject.park(3, A)
    subject.there = {A}
    subject.poll.wake([A])
    subject.poll.drop(gone)
    subject.timers.advance(10)
    assert subject.answers == [("served", 3)]
    assert len(subject.poll) == 0


def test_only_the_queues_that_grew_are_looked_at(subject: Subject) -> None:
    subject.park(1, A, B)
    subject.poll.wake([B])
    subject.timers.advance()
    subject.poll.wake([A])
    subject.poll.wake([B])
    subject.timers.advance()
    assert subject.looked_at == [[B], [A, B]]


def test_all_queues_are_looked_at_for_a_client_that_has_caught_up(subject: Subject) -> None:
    connection = subject.park(1, A, B)
    subject.poll.wake_connection(connection)
    subject.timers.advance()
    assert subject.looked_at == [[A, B]]


def test_no_more_wait_than_may(subject: Subject) -> None:
    subject = Subject(parked_max=1)
    subject.park(1, A)
    late = ParkedFetch(FakeConnection(), 2, Fetch([], 1, 1), {A: 0})
    assert not subject.poll.park(late, 1_000)
    subject.timers.advance(1)
    assert subject.poll.park(late, 1_000)


def test_all_are_handed_over_when_the_broker_stops(subject: Subject) -> None:
    subject.park(1, A)
    subject.park(2, B)
    assert [fetch.correlation for fetch in subject.poll.release()] == [1, 2]
    subject.timers.advance(10)
    assert subject.answers == []
    assert len(subject.poll) == 0


def test_one_queue_named_twice_is_waited_for_once(subject: Subject) -> None:
    subject.park(1, A, A)
    subject.there = {A}
    subject.poll.wake([A])
    subject.timers.advance()
    assert subject.answers == [("served", 1)]


def test_many_fetches_are_served_some_at_a_time_and_all_in_the_end() -> None:
    subject = Subject(10_000)
    count = 2 * SERVED_IN_TURN_MAX + 10
    for number in range(count):
        subject.park(number, A)
    subject.there.add(A)
    subject.poll.wake([A])
    served = []
    while len(subject.poll):
        subject.timers.advance()
        served.append(len(subject.answers))
    assert served == [SERVED_IN_TURN_MAX, 2 * SERVED_IN_TURN_MAX, count]
    assert [number for _, number in subject.answers] == [*range(count)]


def test_a_fetch_that_is_gone_when_its_turn_comes_is_passed_over() -> None:
    subject = Subject(10_000)
    connections = [subject.park(number, A) for number in range(SERVED_IN_TURN_MAX + 2)]
    subject.there.add(A)
    subject.poll.wake([A])
    subject.timers.advance()
    subject.poll.drop(connections[-1])
    subject.timers.advance()
    assert [number for _, number in subject.answers] == [*range(SERVED_IN_TURN_MAX + 1)]


def test_the_places_that_fetches_wait_at_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = LongPoll(
        FakeTimers(), parked_max=100, places_max=3, serve=lambda *_: True, expire=lambda _: None
    )

    def parks(connection: FakeConnection, *queues: QueueRef) -> bool:
        fetch = ParkedFetch(connection, 1, Fetch([], 1, 1), dict.fromkeys(queues, 0))
        return poll.park(fetch, 1_000)

    first, second = FakeConnection(), FakeConnection()
    assert parks(first, A, B)
    assert not parks(second, A, B)
    assert parks(second, A)
    poll.drop(first)
    assert parks(second, A, B)
    poll.drop(second)
    monkeypatch.setattr(long_poll, "PARKED_PER_CONNECTION_MAX", 1)
    assert parks(first, A)
    assert not parks(first, A)
    assert parks(second, A)
