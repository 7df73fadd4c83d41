"""Loading aggregates from their snapshots and their events."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace._runtime.backoff import Backoff
from headrace.aggregates.repository import Repository
from headrace.aggregates.snapshots import Snapshots
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent
from headrace.domain.stream import EventStream
from headrace.errors import AggregateNotFound, DamagedStream, UnknownMessageType
from headrace.stores.base import Snapshot
from headrace.stores.memory.store import MemoryEventStore


class Counted(DomainEvent):
    pass


class Counter(Aggregate):
    count: int

    def initial_state(self) -> None:
        self.count = 0

    @applies
    def _counted(self, event: Counted) -> None:
        self.count += 1


class Other(Aggregate):
    pass


class FailingStore(MemoryEventStore):
    """Raises what it is told to before it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.damaged: dict[tuple[str, str], DamagedStream] = {}
        self.reads: list[int] = []

    async def read_stream(self, aggregate_id, *, after_version=0, to_version=None):
        if self.failures:
            raise self.failures.pop(0)
        self.reads.append(after_version)
        return await super().read_stream(
            aggregate_id, after_version=after_version, to_version=to_version
        )

    async def find_snapshot(self, aggregate_id):
        if self.failures:
            raise self.failures.pop(0)
        return await super().find_snapshot(aggregate_id)

    async def find_stored(self, commands):
        if self.failures:
            raise self.failures.pop(0)
        damaged = {each: self.damaged[each] for each in commands if each in self.damaged}
        return {**await super().find_stored(commands), **damaged}


def stream(version: int, events: int = 1) -> EventStream:
    return EventStream(
        aggregate_type="Counter",
        aggregate_id="n-1",
        version=version,
        command_id=f"c-{version}",
        correlation_id="c",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
        events=(Counted(),) * events,
    )


@pytest.fixture
async def store() -> FailingStore:
    """Holds a counter of two versions and three events."""
    store = FailingStore()
    await store.append([stream(1, 2), stream(2)])
    return store


@pytest.fixture
def repository(store) -> Repository:
    """Over the store."""
    snapshots = Snapshots(store=store, events=100, waiting_max=10)
    return Repository(store=store, snapshots=snapshots, backoff=Backoff(ms_min=1, ms_max=1))


async def test_an_aggregate_is_brought_back_from_its_events(repository):
    live = await repository.load(Counter, "n-1")
    assert (live.aggregate.count, live.aggregate.version) == (3, 2)


async def test_an_aggregate_without_events_is_none(repository):
    assert await repository.load(Counter, "nobody") is None


async def test_an_aggregate_of_another_class_is_not_found_and_the_sentence_says_why(repository):
    with pytest.raises(AggregateNotFound, match="'n-1' is a Counter, there is no Other"):
        await repository.load(Other, "n-1")


async def test_existence_is_a_question_of_the_first_version(repository):
    assert await repository.exists("n-1")
    assert not await repository.exists("nobody")


async def test_the_outcomes_of_commands_are_found_in_the_store(repository):
    found = await repository.find_commands("n-1", ["c-2", "c-9"])
    assert {command_id: each.version for command_id, each in found.items()} == {"c-2": 2}


async def test_one_outcome_that_does_not_decode_is_an_error_in_its_own_place(repository, store):
    gone = DamagedStream(1, "n-1", 1, "c-1", "event 'Gone' is not registered")
    store.damaged = {("n-1", "c-1"): gone}
    found = await repository.find_commands("n-1", ["c-1", "c-2", "c-9"])
    assert found == {"c-1": gone, "c-2": stream(2)}


async def test_a_database_that_is_away_is_waited_for(repository, store):
    store.failures = [OSError("away")] * 5
    assert (await repository.load(Counter, "n-1")).aggregate.version == 2
    store.failures = [OSError("away")] * 5
    assert await repository.exists("n-1")
    store.failures = [OSError("away")] * 5
    assert await repository.find_commands("n-1", ["c-1"]) == {"c-1": stream(1, 2)}


async def test_events_that_do_not_decode_are_not_waited_for(repository, store):
    store.failures = [UnknownMessageType("event 'Gone' is not registered")]
    with pytest.raises(UnknownMessageType, match="Gone"):
        await repository.load(Counter, "n-1")


async def test_a_hole_in_the_stored_versions_is_an_error_and_not_a_state(repository, store):
    store._versions["n-1"][1] = replace(stream(2), version=3)
    with pytest.raises(ValueError, match="cannot replay version 3"):
        await repository.load(Counter, "n-1")


def snapshot(version: int = 1, **changes: object) -> Snapshot:
    taken = Snapshot(
        aggregate_type="Counter",
        aggregate_id="n-1",
        version=version,
        state_version=1,
        body='{"count":40}',
    )
    return replace(taken, **changes)


async def test_loading_starts_from_the_snapshot_and_reads_only_what_came_after(repository, store):
    await store.save_snapshots([snapshot()])
    live = await repository.load(Counter, "n-1")
    assert (live.aggregate.count, live.aggregate.version) == (41, 2)
    assert store.reads == [1]
    assert live.events_unsaved == 1
    await store.save_snapshots([snapshot(2)])
    assert (await repository.load(Counter, "n-1")).aggregate.count == 40


@pytest.mark.parametrize(
    "changes",
    [
        {"state_version": 2},
        {"body": '{"count":"40"}'},
        {"body": '{"count":40,"more":1}'},
        {"body": "{}"},
        {"body": "no JSON"},
    ],
)
async def test_a_snapshot_that_does_not_fit_the_class_any_more_is_left_aside(
    repository, store, changes
):
    await store.save_snapshots([snapshot(**changes)])
    live = await repository.load(Counter, "n-1")
    assert (live.aggregate.count, live.aggregate.version, live.events_unsaved) == (3, 2, 3)


async def test_a_snapshot_of_another_class_is_not_mistaken_for_an_aggregate_of_the_id(
    repository, store
):
    await store.save_snapshots([snapshot(aggregate_type="Clock")])
    with pytest.raises(AggregateNotFound, match="'n-1' is a Clock"):
        await repository.load(Counter, "n-1")


async def test_events_that_came_after_a_version_are_found_behind_a_failing_database(
    repository, store
):
    store.failures = [OSError("away")]
    assert await repository.has_newer("n-1", 1)
    assert not await repository.has_newer("n-1", 2)
    assert not await repository.has_newer("n-2", 0)
