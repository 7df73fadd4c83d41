"""A shadow from the event store is compared at the versions that live has, whatever comes meanwhile."""

import random
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.lineage.generation_epochs import GenerationEpochs
from headrace.lineage.marks import read_epochs
from headrace.projections.batch_transaction import Applied, Batch, apply_batch
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild import level as level_module
from headrace.rebuild.level import Origin, bring_shadow
from headrace.rebuild.stored_events import STORE, StoredEvents, open_stored_events
from headrace.rebuild.switch import Means, Shadow
from headrace.stores.base import AppendOutcome, EventStore
from headrace.transports.base import QueueId, TopicLineage
from headrace_mq.testing.clock import ManualClock

QUEUE = ("ledger.events", 0)
ENDS = {QUEUE: 7}


class World:
    """An event store, a live generation that applies what it is given, and an empty shadow."""

    def __init__(
        self, ledger: Any, models: ReadModels, store: EventStore, stored: StoredEvents
    ) -> None:
        self.ledger = ledger
        self.models = models
        self.store = store
        self.stored = stored
        self.applied = 0
        self.on_end: Callable[[], Any] | None = None
        self.ends: dict[QueueId, int] = dict(ENDS)
        self.shadow = Shadow(projection=ledger.accounts, generation=2, owner="the test")

    def streams(self, *places: str) -> list[EventStream]:
        """Bookings such as "a3", the third one of account a."""
        book, stream = self.ledger.Booked, self.ledger.stream
        return [
            stream(at[0], int(at[1:]), book(partner=f"p{int(at[1:]) % 2}", amount=int(at[1:])))
            for at in places
        ]

    async def append(self, *places: str) -> None:
        outcomes = await self.store.append(self.streams(*places))
        assert set(outcomes) == {AppendOutcome.APPENDED}

    async def go_live(self, *places: str) -> None:
        """Applies to the live generation, as if it had come through the topic."""
        projection = self.shadow.projection
        begin = {QUEUE: self.applied or None}
        self.applied += len(places)
        batch = Batch(streams=self.streams(*places), begin=begin, end={QUEUE: self.applied})
        async with self.models.begin() as connection:
            done = await apply_batch(
                connection, self.models.target(projection, 1), batch, missing=self._missing
            )
        assert isinstance(done, Applied)

    async def both(self, *places: str) -> None:
        await self.append(*places)
        await self.go_live(*places)

    async def spoil(self, key: str) -> None:
        table = self.models.table_for(self.ledger.accounts, 1)
        async with self.models.begin() as connection:
            await connection.execute(
                table.update().where(table.c.account_id == key).values(balance=-1)
            )

    async def bring(self, **wishes: Any) -> Any:
        async def ends() -> dict[QueueId, int]:
            return self.ends

        means = Means(
            feed=self.stored.read,
            serializer=self.ledger.serializer,
            missing=self._missing,
            live_wait_ms=wishes.pop("live_wait_ms", 0),
            epochs=GenerationEpochs(topic=QUEUE[0], ask=self._ask),
        )
        origin = Origin(store=_Told(self), ends=ends)
        return await bring_shadow(
            self.models, self.shadow, means, origin, **{"verify": True, "switch": True, **wishes}
        )

    @staticmethod
    async def _ask(_known: Any, *, patient: bool) -> TopicLineage:
        assert patient
        return TopicLineage(identity="", ranges={}, epochs={0: 5})

    async def rows(self) -> dict[str, Any]:
        reader = self.models.reader(self.ledger.accounts)
        return {row.account_id: row async for row in reader.rows()}

    async def _missing(self, aggregate_id: str, after: int, to: int) -> list[EventStream]:
        return await self.store.read_stream(aggregate_id, after_version=after, to_version=to)


class _Told(StoredEvents):
    """The stored events; something may happen whenever it is asked where they end."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.stored, name)

    async def end(self) -> int:
        end = await self._world.stored.end()
        if self._world.on_end is not None:
            await self._world.on_end()
        return end

    def read(self, queue: QueueId, start: int, end: int) -> Any:
        return self._world.stored.read(queue, start, end)


@pytest.fixture
async def world(
    ledger: Any, read_models: ReadModels, event_store: EventStore, store_url: str
) -> AsyncIterator[World]:
    async with open_stored_events(store_url, messages_max=2) as stored:
        yield World(ledger, read_models, event_store, stored)


async def test_a_level_shadow_is_compared_and_goes_live_with_the_topics_offsets(
    world: World,
) -> None:
    await world.both("a1", "b1", "a2")
    before = await world.rows()
    outcome = await world.bring()
    assert (outcome.switched, outcome.compared, outcome.mismatches) == (True, 2, 0)
    assert (outcome.caught_up, outcome.behind, outcome.ahead) == (3, 0, 0)
    assert await world.models.generation("accounts") == 2
    assert await world.models.offsets("accounts", 2) == ENDS
    noted = partial(read_epochs, reader=("accounts", 2))
    assert await world.models.transact(noted) == {0: 5}
    assert await world.rows() == before


async def test_without_a_broker_it_goes_live_without_offsets(world: World) -> None:
    await world.both("a1")
    world.ends = {}
    assert (await world.bring()).switched
    assert await world.models.offsets("accounts", 2) == {}


async def test_what_is_stored_and_applied_meanwhile_is_compared_too(world: World) -> None:
    await world.both("a1", "b1")

    async def traffic() -> None:
        world.on_end = None
        await world.both("a2", "c1")
        # Stored, and not yet in the topic.
        await world.append("a3", "d1")

    world.on_end = traffic
    outcome = await world.bring()
    assert (outcome.switched, outcome.compared, outcome.mismatches) == (True, 3, 0)
    assert (outcome.behind, outcome.ahead) == (0, 0)
    assert {key: row.bookings for key, row in (await world.rows()).items()} == {
        "a": 2, "b": 1, "c": 1,
    }  # fmt: skip


async def test_a_wrong_row_is_found_told_by_column_and_kept_from_going_live(world: World) -> None:
    await world.both("a1", "b1", "a2")
    await world.spoil("a")
    outcome = await world.bring()
    assert (outcome.switched, outcome.mismatches, outcome.columns) == (False, 1, {"balance": 1})
    assert [key for key, _, _ in outcome.differences] == ["a"]
    assert "headrace projection switch accounts" in outcome.reason
    assert await world.models.generation("accounts") == 1
    # Where it stands is kept, so that it can catch up later.
    assert STORE in await world.models.offsets("accounts", 2)


async def test_differences_that_are_accepted_are_told_and_go_live(world: World) -> None:
    await world.both("a1", "b1")
    await world.spoil("a")
    outcome = await world.bring(accept=True)
    assert (outcome.switched, outcome.mismatches) == (True, 1)
    assert (await world.rows())["a"].balance == 1


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_rows_that_live_lacks_events_of_do_not_speak_against_a_switch(
    world: World, ledger: Any, name: str
) -> None:
    if name == "partners":
        await world.models.abandon_shadow("accounts", 2, "the test")
        await world.models.ensure(ledger.partners)
        await world.models.begin_shadow(ledger.partners, "the test")
        world.shadow = Shadow(projection=ledger.partners, generation=2, owner="the test")
    await world.both("a1", "b1")
    await world.append("a2", "a3", "c1")
    outcome = await world.bring()
    assert (outcome.switched, outcome.mismatches, outcome.behind) == (True, 0, 2)
    assert outcome.compared == (3 if name == "accounts" else 2)


async def test_a_verification_counts_them(world: World) -> None:
    await world.both("a1", "b1")
    await world.append("a2", "c1")
    outcome = await world.bring(switch=False)
    assert (outcome.switched, outcome.mismatches, outcome.behind) == (False, 2, 2)
    assert outcome.columns["no live row"] == 1


@pytest.mark.parametrize("name", ["_BEHIND_MAX", "_BEHIND_SHARED_MAX"])
async def test_of_too_many_nothing_is_compared(
    world: World, ledger: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(level_module, name, 1)
    await world.both("a1")
    await world.append("a2", "b1")
    outcome = await world.bring()
    assert outcome.switched
    assert outcome.compared == (None if name == "_BEHIND_MAX" else 2)
    assert ("nothing was compared" in outcome.reason) is (name == "_BEHIND_MAX")


async def test_live_is_waited_for_while_it_moves(world: World) -> None:
    await world.append("a1", "b1", "c1")
    looks = iter(["a1", "b1", "c1"])
    snapshot = world.models.snapshot

    def looking() -> Any:
        world.models.snapshot = snapshot  # type: ignore[method-assign]  # counted, not changed
        return _Following(world, snapshot, looks, looking)

    world.models.snapshot = looking  # type: ignore[method-assign]  # the same
    outcome = await world.bring(live_wait_ms=60_000)
    assert (outcome.mismatches, outcome.behind, outcome.compared) == (0, 0, 3)


async def test_one_slow_look_at_live_is_no_reason_for_a_long_pause(world: World) -> None:
    await world.append("a1", "b1", "c1")
    await world.bring(switch=False)
    clock, snapshot = ManualClock(), world.models.snapshot

    def looks() -> Iterator[str]:
        yield "a1"
        clock.advance(3_600_000)
        yield from ("b1", "c1")

    moves = looks()

    def looking() -> Any:
        world.models.snapshot = snapshot  # type: ignore[method-assign]  # counted, not changed
        return _Following(world, snapshot, moves, looking)

    world.models.snapshot = looking  # type: ignore[method-assign]  # the same
    await level_module._wait_for_live(world.models, world.shadow, 60_000, clock)
    assert next(moves, None) is None
    assert set(await world.rows()) == {"a", "b", "c"}


class _Following:
    """A look at both generations, before which live applies one more."""

    def __init__(self, world: World, snapshot: Any, looks: Any, again: Any) -> None:
        self._world, self._looks, self._again = world, looks, again
        self._context = snapshot()

    async def __aenter__(self) -> Any:
        place = next(self._looks, None)
        if place is not None:
            await self._world.go_live(place)
        return await self._context.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._context.__aexit__(*error)
        self._world.models.snapshot = self._again


async def test_an_older_store_is_told_and_nothing_is_switched(world: World) -> None:
    await world.both("a1", "b1")
    await world.go_live("a2", "c1")
    outcome = await world.bring()
    assert (outcome.switched, outcome.ahead, outcome.mismatches) == (False, 2, 2)
    assert "it is another store, or an older copy of it" in outcome.reason
    assert "headrace projection switch accounts" in outcome.reason
    # Which rows may differ says nothing of which store it is.
    assert not (await world.bring(accept=2)).switched
    accepted = await world.bring(accept=True)
    assert accepted.switched
    assert set(await world.rows()) == {"a", "b"}


async def test_an_empty_store_is_no_proof(world: World) -> None:
    await world.go_live("a1", "b1")
    outcome = await world.bring(switch=False)
    assert (outcome.compared, outcome.mismatches, outcome.ahead) == (2, 2, 2)


async def test_more_than_can_be_folded_under_the_lock_is_folded_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(level_module, "_LOCKED_MAX", 1)
    monkeypatch.setattr(level_module, "_ROUNDS_MAX", 3)
    await world.both("a1")
    version = 1

    async def traffic() -> None:
        nonlocal version
        await world.append(f"a{version + 1}", f"a{version + 2}")
        version += 2

    world.on_end = traffic
    with pytest.raises(ProjectionError, match="run the rebuild when fewer events come in"):
        await world.bring()
    assert await world.models.generation("accounts") == 1


async def test_a_shadow_that_was_taken_away_is_not_filled(world: World) -> None:
    await world.both("a1")
    await world.models.abandon_shadow("accounts", 2, "the test")
    with pytest.raises(ProjectionError, match="no longer the shadow that the test builds"):
        await world.bring()


async def test_without_comparing_all_that_is_stored_goes_live(world: World) -> None:
    await world.both("a1")

    async def traffic() -> None:
        world.on_end = None
        await world.append("a2", "b1")

    world.on_end = traffic
    outcome = await world.bring(verify=False)
    assert (outcome.switched, outcome.compared) == (True, None)
    assert set(await world.rows()) == {"a", "b"}


async def test_from_the_topic_a_shadow_is_brought_live_by_offsets(world: World) -> None:
    await world.append("a1")

    async def feed(queue: QueueId, start: int, end: int) -> Any:
        return
        yield

    means = Means(
        feed=feed, serializer=world.ledger.serializer, missing=world._missing, live_wait_ms=0
    )
    outcome = await bring_shadow(world.models, world.shadow, means, None, verify=False, switch=True)
    # Nothing was asked of the store, nor written of it.
    assert (outcome.switched, outcome.offsets, await world.rows()) == (True, {}, {})


@pytest.mark.parametrize("seed", range(12))
async def test_random_traffic_neither_hides_a_wrong_row_nor_makes_one(
    world: World, seed: int
) -> None:
    """Appends, applies and looks in any order: right rows never differ, and a wrong one does."""
    chance = random.Random(seed)
    heads, waiting = dict.fromkeys("abcd", 0), list[str]()
    asked = 0

    async def traffic() -> None:
        nonlocal asked
        asked += 1
        # Every second time that the end is asked, the projection is locked.
        locked = world.on_end is not None and asked % 2 == 0
        for _ in range(chance.randrange(6)):
            if waiting and not locked and chance.random() < 0.5:
                await world.go_live(waiting.pop(0))
            else:
                key = chance.choice("abcd")
                heads[key] += 1
                await world.append(f"{key}{heads[key]}")
                waiting.append(f"{key}{heads[key]}")

    for _ in range(4):
        await traffic()
    world.on_end, asked = traffic, 0
    found = await world.bring(switch=False)
    stored = await world.store.read_all(limit=10_000)
    live = await world.rows()
    versions = {key: row.bookings for key, row in live.items()}
    wanted = fold_streams(
        world.ledger.accounts,
        {},
        [
            each.stream
            for each in stored
            if (each.stream.version or 0) <= versions.get(each.stream.aggregate_id, 0)
        ],
    )
    assert live == wanted
    # What live lacks is told; nothing else differs.
    assert found.ahead == 0
    assert found.mismatches <= found.behind
    if live:
        spoilt = chance.choice(sorted(live))
        await world.spoil(spoilt)
        again = await world.bring(switch=False)
        assert spoilt in [key for key, _, _ in again.differences]
