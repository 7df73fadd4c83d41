"""Missing streams are read by the page, and no page has more versions than its size."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.stream import EventStream
from headrace.errors import DamagedStream, SchemaOutOfDate
from headrace.stores.database.engines import create_engine
from headrace.stores.database.missing_streams import MissingStreams, pages_of
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import event_streams
from headrace.stores.open import open_event_store
from samples.bank import app
from samples.bank.accounts import AccountOpened


def stream(account: str, version: int) -> EventStream:
    return EventStream(
        aggregate_type="Account",
        aggregate_id=account,
        version=version,
        command_id=f"c{version}",
        correlation_id="c",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
        events=(AccountOpened(owner=f"Ann {version}", overdraft_limit=0),),
    )


@pytest.fixture
async def url(database_url: str) -> str:
    """Accounts `a` to `e` with ten versions each; two of `c` were lost."""
    await upgrade(database_url)
    store = await open_event_store(database_url, app.serializer)
    await store.append([stream(key, version) for version in range(1, 11) for key in "abcde"])
    await store.aclose()
    engine = create_engine(database_url)
    async with engine.begin() as connection:
        columns = event_streams.c
        await connection.execute(
            event_streams.delete().where(columns.aggregate_id == "c", columns.version.in_([4, 5]))
        )
    await engine.dispose()
    return database_url


def places(streams: list[EventStream]) -> list[tuple[str, int | None]]:
    return [(each.aggregate_id, each.version) for each in streams]


@pytest.mark.parametrize("page_versions", [1, 3, 1_000])
async def test_ranges_come_by_aggregate_in_version_order(url: str, page_versions: int) -> None:
    lacking = MissingStreams(url, app.serializer, page_versions=page_versions)
    found = await lacking.read([("b", 0, 3), ("b", 7, 9), ("a", 2, 4), ("none", 0, 2)])
    await lacking.aclose()
    own = [each for each in found if each.aggregate_id == "b"]
    assert own == [stream("b", version) for version in (1, 2, 3, 8, 9)]
    assert places([each for each in found if each not in own]) == [("a", 3), ("a", 4)]


async def test_an_aggregate_without_a_version_is_not_read_to_its_end(url: str) -> None:
    lacking = MissingStreams(url, app.serializer, page_versions=2)
    # A version of this size may stand in a message that no store has vouched for.
    found = await lacking.read([("c", 2, 1 << 40), ("d", 8, 10)])
    await lacking.aclose()
    assert places(found) == [("c", 3), ("d", 9), ("d", 10)]


async def test_a_damaged_stream_is_an_error(url: str) -> None:
    engine = create_engine(url)
    async with engine.begin() as connection:
        columns = event_streams.c
        where = (columns.aggregate_id == "b") & (columns.version == 2)
        await connection.execute(event_streams.update().where(where).values(checksum=1))
    await engine.dispose()
    lacking = MissingStreams(url, app.serializer)
    with pytest.raises(DamagedStream):
        await lacking.read([("b", 0, 3)])
    assert places(await lacking.read([("b", 2, 3)])) == [("b", 3)]
    await lacking.aclose()


async def test_a_database_that_is_not_there_is_not_made(tmp_path: Any) -> None:
    lacking = MissingStreams(f"sqlite:///{tmp_path / 'none.db'}", app.serializer)
    with pytest.raises(SchemaOutOfDate):
        await lacking.read([("a", 0, 1)])
    await lacking.aclose()
    assert not list(tmp_path.iterdir())


@given(
    ranges=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 30)), max_size=8
    ),
    size=st.integers(1, 10),
)
def test_pages_are_the_ranges_cut(ranges: list[tuple[str, int, int]], size: int) -> None:
    pages = list(pages_of(ranges, size))
    widths = [sum(to - after for _, after, to in page) for page in pages]
    assert all(width == size for width in widths[:-1])
    assert all(0 < width <= size for width in widths)
    flat = [
        (key, version) for page in pages for key, a, b in page for version in range(a + 1, b + 1)
    ]
    assert flat == [(key, version) for key, a, b in ranges for version in range(a + 1, b + 1)]
