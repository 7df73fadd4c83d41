"""One look at every stream of a store."""

import pytest
from sqlalchemy import text

from headrace.errors import DamagedStream
from headrace.stores import audit as module
from headrace.stores.audit import Audit, audit
from headrace.stores.database.engines import create_engine
from headrace.stores.open import open_event_store
from headrace.testing.conformance.streams import conformance_serializer, rejected, stream

SERIALIZER = conformance_serializer()


@pytest.fixture(params=["sqlite_database", "migrated_postgres"])
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


async def fill(url: str, *statements: str) -> None:
    store = await open_event_store(url, SERIALIZER)
    await store.append([stream("a", version) for version in range(1, 6)])
    await store.append([rejected("b", "no"), stream("b", 1)])
    await store.aclose()
    engine = create_engine(url)
    async with engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    await engine.dispose()


async def look(url: str, *, fill_in: bool = False) -> tuple[Audit, list[tuple[str, int | None]]]:
    told: list[DamagedStream] = []
    found = await audit(url, SERIALIZER, fill_in=fill_in, tell=told.append)
    return found, [(each.aggregate_id, each.version) for each in told]


async def test_a_sound_store_is_read_whole(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 3)
    await fill(database)
    assert await look(database) == (Audit(streams=7), [])


async def test_every_damaged_stream_is_named(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    await fill(
        database,
        "UPDATE event_streams SET command_id = 'other' WHERE aggregate_id = 'a' AND version = 3",
        "UPDATE event_streams SET aggregate_type = 'Other' WHERE version IS NULL",
    )
    assert await look(database) == (Audit(streams=7, damaged=2), [("a", 3), ("b", None)])


async def test_old_streams_are_counted_and_given_a_checksum_when_asked(database: str) -> None:
    await fill(database, "UPDATE event_streams SET checksum = NULL WHERE aggregate_id = 'a'")
    assert await look(database) == (Audit(streams=7, without=5), [])
    assert await look(database, fill_in=True) == (Audit(streams=7, filled_in=5), [])
    assert await look(database) == (Audit(streams=7), [])


async def test_an_old_stream_that_does_not_decode_is_given_none(database: str) -> None:
    await fill(
        database,
        "UPDATE event_streams SET checksum = NULL WHERE version < 3",
        "UPDATE event_streams SET body = '{}' WHERE aggregate_id = 'a' AND version = 1",
    )
    expected = Audit(streams=7, damaged=1, filled_in=2)
    assert await look(database, fill_in=True) == (expected, [("a", 1)])
    assert await look(database) == (Audit(streams=7, damaged=1), [("a", 1)])
