"""Stored bodies by aggregate and command, as they are stored, from both databases."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from headrace import Aggregate, App, DomainEvent, applies
from headrace.domain.stream import EventStream
from headrace.errors import SchemaOutOfDate
from headrace.stores.database.command_bodies import CommandBodies
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store


class Sown(DomainEvent):
    seeds: int


class Field(Aggregate):
    @applies
    def _sown(self, event: Sown) -> None:
        pass


app = App("fields")
app.add(Field)


def sown(aggregate_id: str, version: int) -> EventStream:
    return EventStream(
        aggregate_type="Field", aggregate_id=aggregate_id, version=version,
        command_id=f"sow-{version}", correlation_id="c",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC), events=(Sown(seeds=version),),
    )  # fmt: skip


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: Any, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'events.db'}"
    made: str = request.getfixturevalue("postgres_database")
    return made


async def test_bodies_come_as_they_are_stored_and_a_changed_one_is_damaged(url: str) -> None:
    await upgrade(url)
    store = await open_event_store(url, app.serializer)
    streams = [sown("f-1", 1), sown("f-1", 2), sown("f-ü", 1)]
    await store.append(streams)
    identity = await store.identity()
    await store.aclose()
    engine = create_engine(url)
    async with engine.begin() as connection:
        change = text("UPDATE event_streams SET body = replace(body, :stored, :changed)")
        await connection.execute(change, {"stored": '"seeds":2', "changed": '"seeds":9'})
    await engine.dispose()

    bodies = CommandBodies(url)
    try:
        assert await bodies.identity() == identity
        asked = {("f-1", "sow-1"), ("f-1", "sow-2"), ("f-ü", "sow-1"), ("f-ü", "sow-9")}
        found = await bodies.find(asked)
        assert found.keys() == asked - {("f-ü", "sow-9")}
        encode = app.serializer.encode_stream
        assert found["f-ü", "sow-1"] == (1, encode(streams[2]), False)
        assert (found["f-1", "sow-2"].version, found["f-1", "sow-2"].damaged) == (2, True)
        assert await bodies.find(set()) == {}
    finally:
        await bodies.aclose()


async def test_no_database_is_made(tmp_path: Any) -> None:
    bodies = CommandBodies(f"sqlite:///{tmp_path / 'none.db'}")
    with pytest.raises(SchemaOutOfDate):
        await bodies.identity()
    await bodies.aclose()
    assert not (tmp_path / "none.db").exists()
