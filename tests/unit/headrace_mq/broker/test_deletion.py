"""The passes over the transient log, on a store that only lists segments."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace_mq.broker.deletion import Deletion, rules_of
from headrace_mq.message import QueueRef
from headrace_mq.settings import StoreSettings

QUEUE = QueueRef("t", 0)
HOUR = 3_600_000


class Stretch(NamedTuple):
    base: int
    end: int
    bytes: int
    last_ms: int | None
    sealed: bool
    next_offsets: dict[QueueRef, int]


class ListedStore:
    """A store of nothing but segments."""

    def __init__(self, *last_ms: int) -> None:
        self.held = [
            Stretch(n, n + 1, 1, at, n < len(last_ms) - 1, {QUEUE: n + 1})
            for n, at in enumerate(last_ms)
        ]
        self.asked: list[str] = []

    def segments(self, log: str) -> list[Stretch]:
        self.asked.append(log)
        return self.held

    def delete_segments(self, log: str, before: int) -> int:
        held = len(self.held)
        self.held = [one for one in self.held if one.end > before or not one.sealed]
        return held - len(self.held)


def settings(**changed: int) -> StoreSettings:
    return StoreSettings(directory=Path("data"), **changed)


@pytest.fixture
def deletion(clock: Any) -> Any:
    def make(
        store: ListedStore,
        *,
        reached: int = 99,
        early: bool = False,
        spare: Any = lambda _, before: before,
        **changed: int,
    ) -> Any:
        return Deletion(
            store, settings(**changed), clock=clock, consumed=lambda _: reached,
            early=lambda: early, spare=spare,
        )  # fmt: skip

    return make


def move(clock: Any, ms: int) -> None:
    clock.now += ms
    clock.monotonic += ms


def test_segments_go_at_their_age_and_not_before(deletion: Any, clock: Any) -> None:
    store = ListedStore(clock.now, clock.now, clock.now)
    passes = deletion(store)
    assert passes.run() == 0
    move(clock, 72 * HOUR - 1)
    assert passes.run() == 0
    move(clock, 1)
    assert passes.run() == 2
    assert [one.base for one in store.held] == [2]


def test_topics_kept_forever_are_never_looked_at(deletion: Any, clock: Any) -> None:
    store = ListedStore(clock.now)
    deletion(store).run()
    assert set(store.asked) == {"transient"}


def test_a_pass_takes_no_more_than_its_bound(deletion: Any, clock: Any) -> None:
    store = ListedStore(*[clock.now] * 6)
    passes = deletion(store, segments_deleted_max=2)
    passes.start()
    move(clock, 72 * HOUR)
    assert [passes.run() for _ in range(4)] == [2, 2, 1, 0]


def test_a_clock_that_jumps_deletes_nothing(deletion: Any, clock: Any) -> None:
    store = ListedStore(clock.now, clock.now)
    passes = deletion(store)
    passes.start()
    clock.now += 1_000 * HOUR
    assert passes.run() == 0
    move(clock, 72 * HOUR)
    assert passes.run() == 1


def test_a_long_rest_before_the_start_deletes_nothing(deletion: Any, clock: Any) -> None:
    store = ListedStore(clock.now, clock.now)
    move(clock, 1_000 * HOUR)
    passes = deletion(store)
    assert passes.run() == 0
    move(clock, 72 * HOUR)
    assert passes.run() == 1


def test_messages_that_a_group_has_not_consumed_stay(deletion: Any, clock: Any) -> None:
    store = ListedStore(clock.now, clock.now, clock.now)
    passes = deletion(store, reached=1)
    passes.start()
    move(clock, 72 * HOUR)
    assert passes.run() == 1
    move(clock, 96 * HOUR)
    assert passes.run() == 1


def test_a_disk_that_fills_takes_consumed_messages_early(deletion: Any, clock: Any) -> None:
    store = ListedStore(clock.now, clock.now, clock.now)
    assert deletion(store, reached=1, early=True).run() == 1


def test_an_empty_store_is_left_alone(deletion: Any) -> None:
    assert deletion(ListedStore()).run() == 0
    store = ListedStore(0)
    store.held[0] = store.held[0]._replace(last_ms=None, next_offsets={})
    assert deletion(store).run() == 0


def test_no_size_is_no_limit() -> None:
    assert rules_of(settings(), early=False).bytes_max is None
    assert rules_of(settings(transient_bytes_max=5), early=False).bytes_max == 5


def test_what_is_spared_stays_until_it_is_not(deletion: Any, clock: Any) -> None:
    store = ListedStore(clock.now, clock.now, clock.now)
    needed = [1]
    passes = deletion(store, spare=lambda segments, before: min(before, needed[0]))
    passes.start()
    move(clock, 72 * HOUR)
    assert passes.run() == 1
    assert passes.run() == 0
    needed[0] = 9
    assert passes.run() == 1
