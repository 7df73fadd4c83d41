"""The passes over the transient log, on a store that only lists segments."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace_mq.broker.topics.deletion import FOREVER, Deletion, delete_released, holding, rules_of
from headrace_mq.message import QueueRef
from headrace_mq.settings import StoreSettings
from headrace_mq.store.retention.timeline import Reading, Timeline

QUEUE = QueueRef("t", 0)
HOUR = 3_600_000


class Stretch(NamedTuple):
    base: int
    end: int
    bytes: int
    sealed: bool
    next_offsets: dict[QueueRef, int]


class ListedStore:
    """A store of nothing but segments."""

    def __init__(self, segments: int) -> None:
        self.held = [
            Stretch(n, n + 1, 1, n < segments - 1, {QUEUE: n + 1}) for n in range(segments)
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
def timeline() -> Timeline:
    return Timeline(Reading(0, 0, "boot"))


@pytest.fixture
def deletion(timeline: Timeline) -> Any:
    def make(
        store: ListedStore,
        *,
        reached: int = 99,
        early: bool = False,
        spare: Any = lambda _, before: before,
        **changed: int,
    ) -> Any:
        return Deletion(
            store, settings(**changed), timeline=timeline, consumed=lambda _: reached,
            early=lambda: early, spare=spare,
        )  # fmt: skip

    return make


def move(timeline: Timeline, ms: int) -> None:
    timeline.observe(Reading(0, timeline.aged_ms + ms, "boot"))


def test_segments_go_at_their_age_and_not_before(deletion: Any, timeline: Timeline) -> None:
    store = ListedStore(3)
    passes = deletion(store)
    assert passes.run() == 0
    move(timeline, 72 * HOUR - 1)
    assert passes.run() == 0
    move(timeline, 1)
    assert passes.run() == 2
    assert [one.base for one in store.held] == [2]


def test_topics_kept_forever_are_never_looked_at(deletion: Any, timeline: Timeline) -> None:
    store = ListedStore(1)
    deletion(store).run()
    assert set(store.asked) == {"transient"}


def test_a_pass_takes_no_more_than_its_bound(deletion: Any, timeline: Timeline) -> None:
    store = ListedStore(6)
    passes = deletion(store, segments_deleted_max=2)
    passes.run()
    move(timeline, 72 * HOUR)
    assert [passes.run() for _ in range(4)] == [2, 2, 1, 0]


def test_a_broker_that_starts_ages_nothing_that_it_did_not_see(
    deletion: Any, timeline: Timeline
) -> None:
    move(timeline, 1_000 * HOUR)
    store = ListedStore(2)
    passes = deletion(store)
    assert passes.run() == 0
    move(timeline, 72 * HOUR)
    assert passes.run() == 1


def test_messages_that_a_group_has_not_consumed_stay(deletion: Any, timeline: Timeline) -> None:
    store = ListedStore(3)
    passes = deletion(store, reached=1)
    passes.run()
    move(timeline, 72 * HOUR)
    assert passes.run() == 1
    move(timeline, 96 * HOUR)
    assert passes.run() == 1


def test_a_disk_that_fills_takes_consumed_messages_early(deletion: Any, timeline: Timeline) -> None:
    store = ListedStore(3)
    assert deletion(store, reached=1, early=True).run() == 1


def test_an_empty_store_is_left_alone(deletion: Any) -> None:
    assert deletion(ListedStore(0)).run() == 0


def test_no_size_is_no_limit() -> None:
    assert rules_of(settings(), early=False).bytes_max is None
    assert rules_of(settings(transient_bytes_max=5), early=False).bytes_max == 5


def test_spared_segments_stay_until_they_are_spared_no_more(
    deletion: Any, timeline: Timeline
) -> None:
    store = ListedStore(3)
    needed = [1]
    passes = deletion(store, spare=lambda segments, before: min(before, needed[0]))
    passes.run()
    move(timeline, 72 * HOUR)
    assert passes.run() == 1
    assert passes.run() == 0
    needed[0] = 9
    assert passes.run() == 1


def test_released_segments_go_and_the_topics_that_hold_the_next_one_are_named() -> None:
    store = ListedStore(4)
    assert delete_released(store, lambda _: 2, 10) == 2
    assert [one.base for one in store.held] == [2, 3]
    assert holding(store.held, lambda _: 2) == ["t"]
    assert delete_released(store, lambda _: 2, 10) == 0
    assert delete_released(store, lambda _: 9, 10) == 1
    assert holding(store.held, lambda _: 2) == holding([], lambda _: 2) == []
    assert set(store.asked) == {FOREVER}
