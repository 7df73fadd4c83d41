"""Commands of an event store are found by their ids, and the newest ones come first."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from headrace.aggregates import command_directory
from headrace.aggregates.command_directory import CommandDirectory, open_command_directory
from headrace.domain.stream import EventStream
from headrace.stores.base import StoredStream
from headrace.stores.open import open_event_store
from samples.bank import app
from samples.bank.accounts import AccountOpened

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def directory(tmp_path) -> AsyncIterator[CommandDirectory]:
    """Five accounts that were opened by the commands c-1 to c-5."""
    url, serializer = f"sqlite:///{tmp_path}/events.db", app.serializer
    store = await open_event_store(url, serializer)
    await store.append(
        [
            EventStream(
                aggregate_type="Account", aggregate_id=f"a-{n}", version=1, command_id=f"c-{n}",
                correlation_id=f"c-{n}", recorded_at=NOW, events=(AccountOpened(owner="Ann", overdraft_limit=0),),
            )
            for n in range(1, 6)
        ]
    )  # fmt: skip
    await store.aclose()
    async with open_command_directory(url, serializer) as found:
        yield found


async def test_a_command_is_found_with_its_aggregate_or_without(directory) -> None:
    place = await directory.at("a-2", "c-2")
    assert place is not None
    assert (place.aggregate_id, place.version) == ("a-2", 1)
    assert await directory.at("a-1", "c-2") is None
    assert await directory.find("c-2") == place
    assert await directory.find("c-9") is None


async def test_a_search_without_the_aggregate_ends_at_its_limit(directory, monkeypatch) -> None:
    monkeypatch.setattr(command_directory, "_SPAN", 2)
    found = await directory.find("c-1")
    assert found is not None
    assert found.aggregate_id == "a-1"
    monkeypatch.setattr(command_directory, "SEARCHED_POSITIONS_MAX", 2)
    assert await directory.find("c-1") is None


async def test_commands_soon_after_another_are_found(directory) -> None:
    first = await directory.at("a-2", "c-2")
    assert first is not None
    found = await directory.soon_after(first.position, ["c-1", "c-3", "c-5"])
    assert {name: one.aggregate_id for name, one in found.items()} == {"c-3": "a-3", "c-5": "a-5"}
    assert await directory.soon_after(first.position, []) == {}


async def test_the_newest_results_come_first_a_page_at_a_time(directory) -> None:
    first = await directory.newest(limit=2)
    streams = [one.stream for one in first if isinstance(one, StoredStream)]
    assert [one.command_id for one in streams] == ["c-5", "c-4"]
    further = await directory.newest(before=first[-1].position, limit=500)
    assert [one.stream.command_id for one in further if isinstance(one, StoredStream)] == ["c-3", "c-2", "c-1"]  # fmt: skip
