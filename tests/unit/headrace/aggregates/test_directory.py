"""Aggregates are listed a page at a time, on each database, and a page costs the same in a large store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, text

from headrace.aggregates.directory import AggregateDirectory, _begun, open_directory
from headrace.stores.database.engines import create_engine
from headrace.stores.database.tables import event_streams

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
AGGREGATES = 10_000


def rows(aggregates: int) -> list[dict[str, Any]]:
    """Two versions of each aggregate, and a rejection of each tenth."""
    found = []
    for number in range(aggregates):
        kind = "Order" if number % 2 else "Account"
        versions: list[int | None] = [1, 2, *([None] if number % 10 == 0 else [])]
        found += [
            {
                "aggregate_id": f"a-{number:05}", "aggregate_type": kind, "version": version,
                "command_id": f"c-{number}-{place}", "recorded_at": BEGUN + timedelta(minutes=place), "body": "{}",
                "checksum": None,
            }
            for place, version in enumerate(versions)
        ]  # fmt: skip
    return found


@pytest.fixture
async def large(tmp_path: Path, give_schema: Callable[[str], Awaitable[None]]) -> str:
    url = f"sqlite:///{tmp_path}/events.db"
    await give_schema(url)
    await fill(url, AGGREGATES)
    return url


async def fill(url: str, aggregates: int) -> None:
    engine = create_engine(url)
    async with engine.begin() as connection:
        await connection.execute(insert(event_streams), rows(aggregates))
    await engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/events.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture
async def directory(
    empty: str, give_schema: Callable[[str], Awaitable[None]]
) -> AsyncIterator[AggregateDirectory]:
    """Of 20 aggregates."""
    await give_schema(empty)
    await fill(empty, 20)
    async with open_directory(empty) as found:
        yield found


async def test_pages_follow_each_other_without_gap(directory: AggregateDirectory) -> None:
    seen: list[str] = []
    while page := await directory.page(after=seen[-1] if seen else None, limit=7):
        seen += [one.aggregate_id for one in page]
    assert seen == [f"a-{number:05}" for number in range(20)]


async def test_a_page_has_the_last_version_and_its_moment(directory: AggregateDirectory) -> None:
    (first,) = await directory.page(limit=1)
    assert (first.aggregate_type, first.version) == ("Account", 2)
    assert (first.began_at, first.changed_at) == (BEGUN, BEGUN + timedelta(minutes=1))


async def test_a_page_begins_with_an_id_and_has_one_type(directory: AggregateDirectory) -> None:
    page = await directory.page(aggregate_type="Order", begin="a-00010", limit=2)
    assert [one.aggregate_id for one in page] == ["a-00011", "a-00013"]


async def test_one_aggregate_is_found_by_its_id(directory: AggregateDirectory) -> None:
    found = await directory.find("a-00003")
    assert found is not None
    assert (found.aggregate_type, found.version) == ("Order", 2)
    assert await directory.find("zoe") is None


async def test_a_page_of_ten_thousand_aggregates_is_found_by_an_index(large: str) -> None:
    async with open_directory(large) as directory:
        page = await directory.page(after="a-09990", limit=500)
        assert [one.aggregate_id for one in page] == [f"a-{n:05}" for n in range(9_991, 10_000)]
        assert len(await directory.page(limit=10_000)) == 500
    engine = create_engine(large)
    query = _begun().order_by(event_streams.c.aggregate_id).limit(50)
    statement = str(query.compile(engine.sync_engine, compile_kwargs={"literal_binds": True}))
    async with engine.connect() as connection:
        plan = [each.detail for each in await connection.execute(text(f"EXPLAIN QUERY PLAN {statement}"))]  # fmt: skip
    await engine.dispose()
    assert all("INDEX" in step for step in plan), plan
