"""What is stored comes as it is stored, in the order of positions, whole or by shares."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, update

from headrace.domain.stream import EventStream
from headrace.domain.stream_body import aggregate_of
from headrace.errors import DefinitionError, SchemaOutOfDate, SerializationError
from headrace.stores.database import bodies as bodies_module
from headrace.stores.database.bodies import WHOLE, ReaderShare, StoredBodies
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import event_streams
from headrace.stores.open import open_event_store
from samples.bank import app
from samples.bank.accounts import AccountOpened

ACCOUNTS = [f"account-{number}" for number in range(40)]


def opening(account: str, owner: str = "Ann") -> EventStream:
    return EventStream(
        aggregate_type="Account",
        aggregate_id=account,
        version=1,
        command_id="c",
        correlation_id="c",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
        events=(AccountOpened(owner=owner, overdraft_limit=0),),
    )


@pytest.fixture
async def url(database_url: str) -> str:
    """Forty accounts, each opened once."""
    await upgrade(database_url)
    store = await open_event_store(database_url, app.serializer)
    await store.append([opening(account) for account in ACCOUNTS])
    await store.aclose()
    return database_url


async def read(bodies: StoredBodies, *range_: int, share: ReaderShare = WHOLE) -> list[Any]:
    return [page async for page in bodies.read(*range_, share)]


async def test_pages_hold_what_lies_between_two_positions_in_order(url: str) -> None:
    bodies = StoredBodies(url, page_streams=15)
    last = await bodies.last_position()
    pages = await read(bodies, 0, last)
    assert [len(page) for page in pages] == [15, 15, 10]
    found = [body for page in pages for body in page]
    assert [body.aggregate_id for body in found] == ACCOUNTS
    assert app.serializer.decode_stream(found[7].body) == opening(ACCOUNTS[7])
    between = await read(bodies, found[3].position, found[9].position)
    assert [body.aggregate_id for page in between for body in page] == ACCOUNTS[4:10]
    assert await read(bodies, last, last) == []
    await bodies.aclose()


@pytest.mark.parametrize("shares", [1, 3])
async def test_each_aggregate_is_of_one_share(url: str, shares: int) -> None:
    bodies = StoredBodies(url, page_streams=4)
    last = await bodies.last_position()
    found = [
        [each.aggregate_id for page in pages for each in page]
        for pages in [
            await read(bodies, 0, last, share=ReaderShare(n, shares)) for n in range(shares)
        ]
    ]
    assert all(found)
    assert sorted(each for some in found for each in some) == sorted(ACCOUNTS)
    for some in found:
        assert some == [each for each in ACCOUNTS if each in some]
    await bodies.aclose()


async def test_large_streams_come_in_small_pages(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(bodies_module, "_PAGE_BYTES", 2_000)
    bodies = StoredBodies(url, page_streams=12)
    sizes = [len(page) for page in await read(bodies, 0, await bodies.last_position())]
    assert sizes[0] == 12
    assert max(sizes[1:]) < 12
    assert sum(sizes) == len(ACCOUNTS)
    await bodies.aclose()


async def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    bodies = StoredBodies(f"sqlite:///{tmp_path / 'mistyped.db'}")
    with pytest.raises(SchemaOutOfDate, match="there is no database"):
        await bodies.check()
    await bodies.aclose()
    assert not (tmp_path / "mistyped.db").exists()
    with pytest.raises(DefinitionError):
        StoredBodies("memory://")


async def test_a_stream_that_was_changed_in_the_database_says_so_and_does_not_decode(
    url: str,
) -> None:
    engine = create_engine(url)
    async with engine.begin() as connection:
        changed = event_streams.c.aggregate_id == ACCOUNTS[3]
        await connection.execute(
            update(event_streams)
            .where(changed)
            .values(body=func.replace(event_streams.c.body, "recorded", "recordee"))
        )
    await engine.dispose()
    bodies = StoredBodies(url)
    found = [each for page in await read(bodies, 0, await bodies.last_position()) for each in page]
    damaged = [each for each in found if each.aggregate_id == ACCOUNTS[3]]
    assert damaged
    assert all("its checksum differs" in each.body for each in damaged)
    assert aggregate_of(damaged[0].body.encode()) == ACCOUNTS[3]
    with pytest.raises(SerializationError):
        app.serializer.decode_stream(damaged[0].body)
    await bodies.aclose()
