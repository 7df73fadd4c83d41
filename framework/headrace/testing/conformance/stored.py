"""
What every event store must answer about itself and what it holds, and do with snapshots.

Both suites are part of `EventStoreConformance`.
"""

import asyncio
from dataclasses import replace
from datetime import UTC
from uuid import UUID

from headrace.stores.base import EventStore, Snapshot
from headrace.testing.conformance.streams import rejected, stream

__all__ = ["SnapshotConformance", "StoredConformance"]

_TAKEN = Snapshot(
    aggregate_type="Notebook",
    aggregate_id="a",
    version=7,
    state_version=1,
    body='{"pages":["first \\u00e9\\ud83d\\ude00"]}',
)


class StoredConformance:
    """Identity, lookups and surveys; subclass it with the fixtures `store` and `twin`."""

    async def test_a_store_is_the_same_one_for_all_who_open_it(
        self, store: EventStore, twin: EventStore
    ) -> None:
        """All calls return one identity with a key of 32 bytes, also the first ones at the same time."""
        first, *others = await asyncio.gather(
            *[(store, twin)[number % 2].identity() for number in range(10)]
        )
        assert others == [first] * 9
        assert UUID(first.id).version == 7
        assert len(first.seal_key) == 32
        assert first.made_at.tzinfo is UTC
        await store.append([stream("a", 1)])
        assert await store.identity() == first

    async def test_many_commands_are_found_at_once(self, store: EventStore) -> None:
        """What commands stored is found by aggregate and command, rejections included."""
        batch = [stream("a", 1, "c"), stream("b", 1, "c"), rejected("b", "no"), stream("c", 1, "d")]
        await store.append(batch)
        asked = {("a", "c"), ("b", "no"), ("c", "c"), ("d", "d")}
        assert await store.find_stored(asked) == {("a", "c"): batch[0], ("b", "no"): batch[2]}
        assert await store.find_stored([]) == {}
        many = [*(stream("m", number) for number in range(1, 200)), rejected("m", "r")]
        await store.append(many)
        expected = {("m", each.command_id): each for each in many}
        assert await store.find_stored([*expected, ("m", "c"), ("a", "r")]) == expected

    async def test_a_survey_is_what_reading_finds_of_all_or_of_one(self, store: EventStore) -> None:
        """Where nothing is damaged, a survey gives what is stored, in pages."""
        batch = [stream("a", 1), rejected("b", "no"), stream("b", 1), stream("a", 2)]
        await store.append(batch)
        every = await store.read_all()
        assert list(await store.survey()) == every
        assert list(await store.survey(limit=2, after_position=every[1].position)) == every[2:]
        assert list(await store.survey(aggregate_id="b")) == every[1:3]
        later = await store.survey(aggregate_id="a", after_position=every[0].position)
        assert list(later) == every[3:]


class SnapshotConformance:
    """Snapshots; subclass it with the fixtures `store` and `twin`."""

    async def test_a_snapshot_is_found_whole(self, store: EventStore, twin: EventStore) -> None:
        """Every field of a snapshot survives, for every user of the database."""
        assert await store.find_snapshot("a") is None
        await store.save_snapshots([_TAKEN])
        assert await store.find_snapshot("a") == _TAKEN
        assert await twin.find_snapshot("a") == _TAKEN

    async def test_saving_no_snapshots_does_nothing(self, store: EventStore) -> None:
        """A call without snapshots is fine."""
        await store.save_snapshots([])
        assert await store.find_snapshot("a") is None

    async def test_the_snapshots_of_many_aggregates_are_kept_apart(self, store: EventStore) -> None:
        """Each aggregate has a snapshot of its own."""
        taken = [replace(_TAKEN, aggregate_id=f"a-{n}", version=n) for n in range(120, 0, -1)]
        await store.save_snapshots(taken)
        for each in taken:
            assert await store.find_snapshot(each.aggregate_id) == each

    async def test_a_newer_snapshot_takes_the_place_of_an_older_one(
        self, store: EventStore, twin: EventStore
    ) -> None:
        """An aggregate has one snapshot, the newest."""
        newer = replace(_TAKEN, version=8, body="{}")
        await store.save_snapshots([_TAKEN])
        await twin.save_snapshots([newer])
        assert await store.find_snapshot("a") == newer

    async def test_an_older_snapshot_changes_nothing(self, store: EventStore) -> None:
        """A slow writer does not put an older snapshot in the place of a newer one."""
        await store.save_snapshots([_TAKEN])
        await store.save_snapshots([replace(_TAKEN, version=6, body="{}")])
        assert await store.find_snapshot("a") == _TAKEN

    async def test_a_snapshot_of_another_state_version_takes_its_place(
        self, store: EventStore
    ) -> None:
        """A snapshot that today's class cannot read is replaced, even by one of an earlier version."""
        other = replace(_TAKEN, version=3, state_version=2, body="{}")
        await store.save_snapshots([_TAKEN])
        await store.save_snapshots([other])
        assert await store.find_snapshot("a") == other

    async def test_snapshots_are_no_events(self, store: EventStore) -> None:
        """A snapshot changes no stored stream, and a stored stream changes no snapshot."""
        await store.save_snapshots([_TAKEN])
        assert await store.read_all() == []
        assert await store.last_position() == 0
        await store.append([stream("a", 1)])
        assert await store.find_snapshot("a") == _TAKEN
