from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headrace_mq.broker.quotas.throttle import Held, Throttle, WaitLine
from headrace_mq.broker.quotas.token_bucket import TokenBucket
from headrace_mq.errors import BrokerError, BrokerStopping, Throttled

WAIT_MS_MAX = 5_000


class FakeTimer:
    def __init__(self, at_ms: int, call: Callable[[], object]) -> None:
        self.at_ms, self.call, self.cancelled = at_ms, call, False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """A loop and a clock whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: list[FakeTimer] = []

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> FakeTimer:
        return self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[..., object], *_: object) -> FakeTimer:
        self.timers.append(FakeTimer(self.now + round(delay * 1_000), callback))
        return self.timers[-1]

    def advance(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        while due := [one for one in self.timers if not one.cancelled and one.at_ms <= end]:
            timer = min(due, key=lambda one: one.at_ms)
            self.timers.remove(timer)
            self.now = max(self.now, timer.at_ms)
            timer.call()
        self.now = end


class Wish:
    """An amount of a bucket."""

    def __init__(self, bucket: TokenBucket, amount: int) -> None:
        self.key, self.bucket, self.amount = id(bucket), bucket, amount
        self.noted: list[int] = []

    def wait_ms(self, now_ms: int) -> int:
        return self.bucket.wait_ms(now_ms, self.amount)

    def waited(self, _now_ms: int, waited_ms: int) -> None:
        self.noted.append(waited_ms)

    def refusal(self, waited_ms: int) -> BrokerError:
        return Throttled(f"waited {waited_ms} ms")


class Subject:
    def __init__(self, held_max: int = 1_000) -> None:
        self.world = World()
        self.throttle = Throttle(self.world, self.world, wait_ms_max=WAIT_MS_MAX, held_max=held_max)
        self.ended: list[tuple[str, Any, int]] = []

    def bucket(self, rate: int) -> TokenBucket:
        return TokenBucket(rate, burst_ms=1_000, now_ms=0)

    def ask(self, name: str, lane: str, *wishes: Wish) -> None:
        """Asks for something as a handler does: it is charged when it passes."""

        def go(_waited_ms: int) -> None:
            for wish in wishes:
                wish.bucket.charge(self.world.now, wish.amount)
            self.ended.append(("served", name, self.world.now))

        def refuse(error: BrokerError, _waited_ms: int) -> None:
            self.ended.append((type(error).__name__, name, self.world.now))

        if not self.throttle.hold(WaitLine(lane, 0), Held(wishes, go, refuse)):
            go(0)


def test_a_request_that_may_pass_is_not_held() -> None:
    subject = Subject()
    subject.ask("a", "x", Wish(subject.bucket(10), 10))
    assert subject.ended == [("served", "a", 0)]
    assert (len(subject.throttle), subject.throttle.requests) == (0, 0)


def test_held_requests_are_served_as_soon_as_they_may_and_in_order() -> None:
    subject = Subject()
    bucket = subject.bucket(10)
    wishes = [Wish(bucket, 10) for _ in range(3)]
    for name, wish in zip("abc", wishes, strict=True):
        subject.ask(name, "x", wish)
    subject.world.advance(3_000)
    assert subject.ended == [("served", "a", 0), ("served", "b", 1_000), ("served", "c", 2_000)]
    assert [wish.noted for wish in wishes] == [[], [1_000], [2_000]]
    assert len(subject.throttle) == 0


def test_a_request_behind_a_held_one_waits_with_it() -> None:
    subject = Subject()
    slow, free = subject.bucket(10), subject.bucket(10)
    subject.ask("a", "x", Wish(slow, 10))
    subject.ask("b", "x", Wish(slow, 5))
    subject.ask("c", "x", Wish(free, 1))
    subject.ask("d", "y", Wish(free, 1))
    subject.world.advance(1_000)
    assert [(name, at) for _, name, at in subject.ended] == [
        ("a", 0), ("d", 0), ("b", 500), ("c", 500),
    ]  # fmt: skip


def test_a_large_request_is_not_overtaken_by_small_ones_for_ever() -> None:
    subject = Subject()
    bucket = subject.bucket(10)
    subject.ask("first", "x", Wish(bucket, 10))
    subject.ask("large", "x", Wish(bucket, 10))
    for at in range(20):
        subject.ask(f"small {at}", "y", Wish(bucket, 1))
        subject.world.advance(100)
    served = [name for _, name, _ in subject.ended]
    assert served[:3] == ["first", "large", "small 0"]


def test_lanes_take_turns() -> None:
    subject = Subject()
    bucket = subject.bucket(10)
    subject.ask("first", "x", Wish(bucket, 10))
    for number in range(3):
        subject.ask(f"x{number}", "x", Wish(bucket, 10))
    subject.ask("y0", "y", Wish(bucket, 10))
    subject.world.advance(4_000)
    assert [name for _, name, _ in subject.ended] == ["first", "x0", "y0", "x1", "x2"]


def test_a_request_held_for_too_long_is_refused() -> None:
    subject = Subject()
    bucket = subject.bucket(1)
    subject.ask("a", "x", Wish(bucket, 100))
    subject.ask("b", "x", Wish(bucket, 1))
    subject.world.advance(WAIT_MS_MAX - 1)
    assert len(subject.ended) == 1
    subject.world.advance(1)
    assert subject.ended[-1] == ("Throttled", "b", WAIT_MS_MAX)
    assert len(subject.throttle) == 0


def test_too_many_are_refused_at_once() -> None:
    subject = Subject(held_max=1)
    bucket = subject.bucket(1)
    for name in "ab":
        subject.ask(name, "x", Wish(bucket, 1))
    with pytest.raises(Throttled):
        subject.ask("c", "y", Wish(bucket, 1))
    with pytest.raises(Throttled):
        subject.ask("d", "x", Wish(subject.bucket(1), 1))


def test_a_connection_that_is_gone_leaves_nothing_behind() -> None:
    subject = Subject()
    bucket = subject.bucket(10)
    for name in "abc":
        subject.ask(name, "x", Wish(bucket, 10))
    subject.throttle.drop("x")
    assert len(subject.throttle) == 0
    subject.ask("d", "y", Wish(bucket, 10))
    subject.world.advance(WAIT_MS_MAX)
    assert [name for _, name, _ in subject.ended] == ["a", "d"]


def test_a_broker_that_stops_refuses_all_that_wait() -> None:
    subject = Subject()
    bucket = subject.bucket(10)
    for name in "abc":
        subject.ask(name, name, Wish(bucket, 10))
    subject.throttle.release(BrokerStopping("try again soon"))
    assert [how for how, _, _ in subject.ended] == ["served", "BrokerStopping", "BrokerStopping"]
    assert len(subject.throttle) == 0
    assert all(timer.cancelled for timer in subject.world.timers)


def test_a_client_that_is_held_back_again_and_again_gets_one_line_in_ten_seconds() -> None:
    subject = Subject()
    bucket = subject.bucket(10)
    with capture_logs() as logs:
        for number in range(14):
            subject.ask(str(number), "x", Wish(bucket, 10))
            subject.world.advance(950)
    told = [line for line in logs if line["event"] == "client held back"]
    assert len(told) == 2
    assert told[0]["log_level"] == "warning"


@given(
    asked=st.lists(
        st.tuples(st.integers(0, 900), st.sampled_from("xyz"), st.integers(1, 25)), max_size=40
    )
)
def test_everyone_is_served_or_refused_within_the_bound_and_lanes_keep_their_order(
    asked: list[tuple[int, str, int]],
) -> None:
    subject = Subject()
    bucket = subject.bucket(10)
    begun: dict[str, int] = {}
    for number, (pause_ms, lane, amount) in enumerate(asked):
        subject.world.advance(pause_ms)
        begun[f"{lane}{number}"] = subject.world.now
        subject.ask(f"{lane}{number}", lane, Wish(bucket, amount))
    subject.world.advance(WAIT_MS_MAX)
    assert {name for _, name, _ in subject.ended} == set(begun)
    assert all(at - begun[name] <= WAIT_MS_MAX for _, name, at in subject.ended)
    for lane in "xyz":
        numbers = [int(name[1:]) for _, name, _ in subject.ended if name[0] == lane]
        assert numbers == sorted(numbers)
