"""When a snapshot is taken, what becomes of it, and that it never changes a state."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headrace._runtime.backoff import Backoff
from headrace.aggregates.cache import LiveAggregate
from headrace.aggregates.repository import Repository
from headrace.aggregates.snapshots import Snapshots
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.decider import Decider
from headrace.domain.message import DomainEvent
from headrace.domain.stream import EventStream
from headrace.errors import DefinitionError
from headrace.stores.memory.store import MemoryEventStore
from headrace.subjects.personal import Personal


class Added(DomainEvent):
    number: int


class Cleared(DomainEvent):
    pass


class Numbers(Aggregate, state_version=3):
    seen: dict[int, int]
    last: int | None

    def initial_state(self) -> None:
        self.seen = {}
        self.last = None

    @applies
    def _added(self, event: Added) -> None:
        self.seen[event.number] = self.seen.get(event.number, 0) + 1
        self.last = event.number

    @applies
    def _cleared(self, event: Cleared) -> None:
        self.seen.clear()


class Loose(Aggregate):
    def initial_state(self) -> None:
        self.count = 0

    @applies
    def _added(self, event: Added) -> None:
        self.count += 1


def live(events: int, aggregate_type: type[Aggregate] = Numbers, name: str = "n-1"):
    found = LiveAggregate(aggregate_type(name))
    found.aggregate.replay(1, [Added(number=number) for number in range(events)])
    found.events_unsaved = events
    return found


def test_a_snapshot_is_taken_every_so_many_events_and_says_what_it_is_of():
    snapshots = Snapshots(store=MemoryEventStore(), events=3, waiting_max=10)
    assert snapshots.take(live(2)) is None
    due = live(3)
    taken = snapshots.take(due)
    assert taken is not None
    assert (taken.aggregate_type, taken.aggregate_id) == ("Numbers", "n-1")
    assert (taken.version, taken.state_version) == (1, 3)
    assert taken.body == '{"seen":{"0":1,"1":1,"2":1},"last":2}'
    assert due.events_unsaved == 0
    assert snapshots.take(due) is None


async def test_with_a_policy_of_none_nothing_is_taken_or_read():
    store = MemoryEventStore()
    always = Snapshots(store=store, events=1, waiting_max=10)
    await store.save_snapshots([always.take(live(1))])
    never = Snapshots(store=store, events=0, waiting_max=10)
    assert never.take(live(1_000)) is None
    assert await never.find(Numbers, "n-1") is None
    assert await always.find(Numbers, "n-1") is not None


class Rare(Numbers, snapshot_events=5):
    pass


class Never(Numbers, snapshot_events=0):
    pass


rare = Decider("Rare", state=dict, snapshot_events=5).aggregate_type


@pytest.mark.parametrize(
    ("aggregate_type", "events", "due"),
    [(Numbers, 1, True), (Rare, 4, False), (Rare, 5, True), (Never, 1_000, False)],
)
def test_a_class_has_a_policy_of_its_own(aggregate_type, events, due):
    snapshots = Snapshots(store=MemoryEventStore(), events=1, waiting_max=10)
    assert (snapshots.take(live(events, aggregate_type)) is not None) is due
    assert (rare.snapshot_events, Numbers.snapshot_events) == (5, None)


class Named(DomainEvent):
    who: str
    name: Annotated[str, Personal(subject="who")]


class Person(Numbers, snapshot_events=1):
    @applies
    def _named(self, event: Named) -> None:
        self.last = None


def test_an_aggregate_whose_events_have_personal_fields_has_no_snapshots():
    snapshots = Snapshots(store=MemoryEventStore(), events=1, waiting_max=10)
    assert snapshots.take(live(1_000, Person)) is None


async def test_a_class_without_snapshots_reads_none():
    store = MemoryEventStore()
    snapshots = Snapshots(store=store, events=1, waiting_max=10)
    await store.save_snapshots([snapshots.take(live(1))])
    assert await snapshots.find(Never, "n-1") is None
    assert await snapshots.find(Rare, "n-1") is not None


def test_a_class_with_snapshots_has_them_although_the_setting_is_none():
    snapshots = Snapshots(store=MemoryEventStore(), events=0, waiting_max=10)
    assert snapshots.take(live(5, Rare)) is not None


def test_a_negative_policy_is_refused():
    with pytest.raises(
        DefinitionError, match=r"Wrong: snapshot_events=-1; give a number of events"
    ):

        class Wrong(Aggregate, snapshot_events=-1):
            pass


async def test_a_class_that_cannot_be_written_has_no_snapshots_and_is_named_once():
    snapshots = Snapshots(store=MemoryEventStore(), events=1, waiting_max=10)
    with capture_logs() as logs:
        for _ in range(3):
            assert snapshots.take(live(5, Loose)) is None
    assert [line["event"] for line in logs] == [
        "an aggregate of this class cannot be written as a snapshot"
    ]


async def test_what_is_offered_is_stored_in_the_background_the_newest_of_each_aggregate():
    store = MemoryEventStore()
    snapshots = Snapshots(store=store, events=1, waiting_max=200)
    running = asyncio.create_task(snapshots.run())
    for name in range(120):
        for events in (1, 2):
            snapshots.offer(snapshots.take(live(events, name=f"n-{name}")))
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    for name in range(120):
        found = await store.find_snapshot(f"n-{name}")
        assert found is not None
        assert found.body == '{"seen":{"0":1,"1":1},"last":1}'


async def test_at_most_the_allowed_number_waits():
    store = MemoryEventStore()
    snapshots = Snapshots(store=store, events=1, waiting_max=2)
    for name in ("a", "b", "c"):
        snapshots.offer(snapshots.take(live(1, name=name)))
    running = asyncio.create_task(snapshots.run())
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    kept = [await store.find_snapshot(name) is not None for name in ("a", "b", "c")]
    assert kept == [True, True, False]


async def test_a_store_that_refuses_costs_these_snapshots_and_no_later_ones():
    class Refusing(MemoryEventStore):
        refusals = 1

        async def save_snapshots(self, snapshots):
            if self.refusals:
                self.refusals -= 1
                raise OSError("away")
            await super().save_snapshots(snapshots)

    store = Refusing()
    snapshots = Snapshots(store=store, events=1, waiting_max=10)
    running = asyncio.create_task(snapshots.run())
    for name in ("a", "b"):
        snapshots.offer(snapshots.take(live(1, name=name)))
        for _ in range(5):
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    assert await store.find_snapshot("a") is None
    assert await store.find_snapshot("b") is not None


@pytest.mark.parametrize("policy", [1, 2, 3, 7, 100])
@given(
    streams=st.lists(
        st.lists(
            st.builds(Added, number=st.integers(0, 3)) | st.builds(Cleared),
            min_size=1,
            max_size=4,
        ),
        max_size=15,
    ),
    restarts=st.sets(st.integers(0, 15)),
)
@settings(max_examples=25)
def test_loading_with_any_policy_equals_loading_without(policy, streams, restarts):
    async def play() -> None:
        store = MemoryEventStore()
        snapshots = Snapshots(store=store, events=policy, waiting_max=10)
        backoff = Backoff(ms_min=1, ms_max=1)
        with_policy = Repository(store=store, snapshots=snapshots, backoff=backoff)
        never = Snapshots(store=store, events=0, waiting_max=1)
        without = Repository(store=store, snapshots=never, backoff=backoff)
        found = None
        for version, events in enumerate(streams, start=1):
            if found is None or version in restarts:
                found = await with_policy.load(Numbers, "n-1")
            found = found or LiveAggregate(Numbers("n-1"))
            found.aggregate.replay(version, events)
            found.events_unsaved += len(events)
            taken = snapshots.take(found)
            await store.append([_stream(version, events)])
            if taken is not None:
                await store.save_snapshots([taken])
            loaded = await with_policy.load(Numbers, "n-1")
            plain = await without.load(Numbers, "n-1")
            assert loaded is not None
            assert plain is not None
            assert vars(loaded.aggregate) == vars(plain.aggregate)
            # What a load reads beyond the snapshot stays below the policy.
            assert loaded.events_unsaved < policy + len(events)

    asyncio.run(play())


def _stream(version: int, events: list[DomainEvent]) -> EventStream:
    return EventStream(
        aggregate_type="Numbers",
        aggregate_id="n-1",
        version=version,
        command_id=f"c-{version}",
        correlation_id="c",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
        events=tuple(events),
    )
