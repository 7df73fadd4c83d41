"""The suites catch stores that do not know who they are or what they hold, or keep a wrong snapshot."""

import inspect
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from headrace.stores.base import Snapshot, StoredByCommand, StoreIdentity
from headrace.stores.database.identity import new_identity
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.conformance.event_store import EventStoreConformance
from headrace.testing.conformance.stored import SnapshotConformance, StoredConformance


class IsAnotherOneEachTime(MemoryEventStore):
    async def identity(self) -> StoreIdentity:
        return new_identity()


class FindsByCommandAlone(MemoryEventStore):
    async def find_stored(self, commands: Collection[tuple[str, str]]) -> StoredByCommand:
        wanted = {command for _, command in commands}
        return {key: each for key, each in self._commands.items() if key[1] in wanted}


class SurveysEverybody(MemoryEventStore):
    async def survey(self, *, aggregate_id: str | None = None, **place: Any) -> Any:
        return await super().survey(**place)


SUITE = StoredConformance()


async def test_the_reference_adapter_passes() -> None:
    store = MemoryEventStore()
    await SUITE.test_a_store_is_the_same_one_for_all_who_open_it(store, store)
    await SUITE.test_many_commands_are_found_at_once(MemoryEventStore())
    await SUITE.test_a_survey_is_what_reading_finds_of_all_or_of_one(MemoryEventStore())


async def test_a_store_without_an_identity_of_its_own_is_caught() -> None:
    store = IsAnotherOneEachTime()
    with pytest.raises(AssertionError):
        await SUITE.test_a_store_is_the_same_one_for_all_who_open_it(store, store)


async def test_a_store_that_finds_the_commands_of_others_is_caught() -> None:
    with pytest.raises(AssertionError):
        await SUITE.test_many_commands_are_found_at_once(FindsByCommandAlone())


async def test_a_store_that_surveys_the_wrong_aggregate_is_caught() -> None:
    with pytest.raises(AssertionError):
        await SUITE.test_a_survey_is_what_reading_finds_of_all_or_of_one(SurveysEverybody())


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


async def _failed_snapshot_tests(adapter: type[MemoryEventStore]) -> list[str]:
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


async def test_the_reference_adapter_keeps_snapshots() -> None:
    assert await _failed_snapshot_tests(MemoryEventStore) == []


@pytest.mark.parametrize(
    "adapter",
    [KeepsTheLastSnapshotSaved, NeverGoesBackToAnotherStateVersion, KeepsOneSnapshotInAll],
)
async def test_an_adapter_that_keeps_a_wrong_snapshot_is_caught(
    adapter: type[MemoryEventStore],
) -> None:
    assert await _failed_snapshot_tests(adapter) != []


def test_the_suite_of_snapshots_is_part_of_the_event_stores() -> None:
    assert issubclass(EventStoreConformance, SnapshotConformance)
