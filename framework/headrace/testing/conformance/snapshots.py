"""What every event store must do with snapshots; part of `EventStoreConformance`."""

from dataclasses import replace

from headrace.stores.base import EventStore, Snapshot
from headrace.testing.conformance.streams import stream

__all__ = ["SnapshotConformance"]

_TAKEN = Snapshot(
    aggregate_type="Notebook",
    aggregate_id="a",
    version=7,
    state_version=1,
    body='{"pages":["first \\u00e9\\ud83d\\ude00"]}',
)


class SnapshotConformance:
    """The suite; subclass it with the fixtures `store` and `twin`."""

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
        """A snapshot changes nothing of what is stored, and nothing stored changes it."""
        await store.save_snapshots([_TAKEN])
        assert await store.read_all() == []
        assert await store.last_position() == 0
        await store.append([stream("a", 1)])
        assert await store.find_snapshot("a") == _TAKEN
