"""The suite catches an adapter that keeps the wrong snapshot."""

import inspect
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.stores.base import Snapshot
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.conformance.event_store import EventStoreConformance
from headrace.testing.conformance.snapshots import SnapshotConformance


class KeepsTheLastSnapshotSaved(MemoryEventStore):
    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots |= {each.aggregate_id: each for each in snapshots}


class NeverGoesBackToAnotherStateVersion(MemoryEventStore):
    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        for each in snapshots:
            kept = self._snapshots.setdefault(each.aggregate_id, each)
            if kept.version < each.version:
                self._snapshots[each.aggregate_id] = each


class KeepsOneSnapshotInAll(MemoryEventStore):
    async def find_snapshot(self, aggregate_id: str) -> Snapshot | None:
        return next(iter(self._snapshots.values()), None)


async def _failures(adapter: type[MemoryEventStore]) -> list[str]:
    suite: Any = SnapshotConformance()
    failed = []
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        case = getattr(suite, name)
        assert inspect.getdoc(case)
        store = adapter()
        fixtures = {"store": store, "twin": store}
        try:
            await case(**{one: fixtures[one] for one in inspect.signature(case).parameters})
        except AssertionError:
            failed.append(name)
    return failed


async def test_the_reference_adapter_passes() -> None:
    assert await _failures(MemoryEventStore) == []


@pytest.mark.parametrize(
    "adapter",
    [KeepsTheLastSnapshotSaved, NeverGoesBackToAnotherStateVersion, KeepsOneSnapshotInAll],
)
async def test_a_broken_adapter_is_caught(adapter: type[MemoryEventStore]) -> None:
    assert await _failures(adapter) != []


def test_it_is_part_of_what_every_event_store_must_pass() -> None:
    assert issubclass(EventStoreConformance, SnapshotConformance)
