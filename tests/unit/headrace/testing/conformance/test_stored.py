"""The suite catches stores that do not know who they are, or what they hold."""

from collections.abc import Collection
from typing import Any

import pytest

from headrace.stores.base import StoredByCommand, StoreIdentity
from headrace.stores.database.identity import new_identity
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.conformance.stored import StoredConformance


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
