"""Commands of an event store are found by their ids, and the newest ones come first."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from headrace.aggregates import command_directory
from headrace.aggregates.command_directory import CommandDirectory, open_command_directory
from headrace.commands.answer import result_of
from headrace.domain.stream import EventStream, Rejection
from headrace.stores.base import StoredStream
from headrace.stores.database.engines import create_engine
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


def stream(number: int, **more: Any) -> EventStream:
    told: dict[str, Any] = {
        "aggregate_type": "Account", "aggregate_id": f"b-{number}", "version": None, "command_id": f"d-{number}",
        "correlation_id": "d-0", "recorded_at": NOW,
    }  # fmt: skip
    return EventStream(**told | more)


SOLD_OUT = Rejection(
    error="SoldOut", sentence="no tea", command_name="Order", command_version=1, command_data={}
)


async def test_outcomes_are_counted_as_whole_streams_say_them(directory, tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/events.db"
    store = await open_event_store(url, app.serializer)
    await store.append([stream(1), stream(2, rejection=SOLD_OUT), stream(3, rejection=SOLD_OUT)])
    await store.aclose()
    counted = await directory.outcomes()
    assert counted == {("executed", ""): 5, ("unchanged", ""): 1, ("rejected", "SoldOut"): 2}
    streams = [one.stream for one in await directory.newest() if isinstance(one, StoredStream)]
    results = [result_of(one, None) for one in streams]
    assert counted == Counter((one.status, one.error) for one in results)
    assert await directory.outcomes(limit=3) == {("unchanged", ""): 1, ("rejected", "SoldOut"): 2}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("body = replace(body, 'Ann', 'Eve')", {("damaged", ""): 5}),
        ("body = 'x', checksum = NULL", {("damaged", ""): 5}),
        # What an earlier version wrote has no checksum; nor need its types be known.
        ("body = replace(body, 'AccountOpened', 'Gone'), checksum = NULL", {("executed", ""): 5}),
    ],
)
async def test_outcomes_of_damaged_rows_are_counted_apart(
    directory, tmp_path, change: str, expected: dict[tuple[str, str], int]
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/events.db")
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE event_streams SET {change}"))
    await engine.dispose()
    assert await directory.outcomes() == expected


async def test_outcomes_are_counted_without_reading_an_event(directory, monkeypatch) -> None:
    def read(*_: Any) -> None:
        raise AssertionError("an event was read")

    monkeypatch.setattr(type(app.serializer), "decode_stream", read)
    assert (await directory.outcomes()).total() == 5


async def test_parked_commands_are_counted(directory) -> None:
    assert await directory.parked() == {}
