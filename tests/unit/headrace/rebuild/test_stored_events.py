"""The event store read as the event topic is: by a range of one queue."""

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProjectionError, SchemaOutOfDate
from headrace.rebuild.stored_events import STORE, open_stored_events
from headrace.stores.base import EventStore
from headrace.stores.database.schema import upgrade


@pytest.fixture
async def streams(event_store: EventStore, ledger: Any) -> list[Any]:
    made = [
        ledger.stream(key, version, ledger.Booked(partner="p", amount=version))
        for version in (1, 2)
        for key in ("a", "b")
    ]
    made.insert(2, ledger.rejection("a"))
    await event_store.append(made)
    return made


async def test_streams_come_as_messages_and_as_columns(
    streams: list[Any], store_url: str, ledger: Any
) -> None:
    decode = ledger.serializer.decode_stream
    async with open_stored_events(store_url, messages_max=2) as stored:
        ((queue, (first, end)),) = (await stored.ranges()).items()
        assert (queue, first) == (STORE, 0)
        assert end == await stored.end()
        read = [some async for some in stored.read(queue, first, end)]
        assert [len(some) for some in read] == [2, 2, 1]
        messages = [each for some in read for each in some]
        assert [decode(each.body) for each in messages] == streams
        assert [each.key for each in messages] == ["a", "b", "a", "a", "b"]
        (portion,) = [each async for each in stored.bodies(queue, first, end)]
        assert list(portion.offsets) == [each.offset for each in messages]
        assert list(portion.bodies) == [each.body for each in messages]
        later = [each async for each in stored.bodies(queue, messages[2].offset, end)]
        assert list(later[0].bodies) == [each.body for each in messages[2:]]
        only = [each async for each in stored.bodies(queue, first, end, keys=frozenset("b"))]
        assert [decode(body).aggregate_id for body in only[0].bodies] == ["b", "b"]


async def test_a_store_that_nobody_else_can_read_is_a_sentence(tmp_path: Path) -> None:
    for url in (None, "memory://"):
        with pytest.raises(ProjectionError, match="give the URL of its database"):
            async with open_stored_events(url, messages_max=2):
                pass
    mistyped = tmp_path / "mistyped.db"
    with pytest.raises(SchemaOutOfDate, match="there is no database"):
        async with open_stored_events(f"sqlite:///{mistyped}", messages_max=2):
            pass
    assert not mistyped.exists()


async def test_a_database_that_is_away_is_a_sentence(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'lost.db'}"
    await upgrade(url)
    async with open_stored_events(url, messages_max=2) as stored:
        (tmp_path / "lost.db").rename(tmp_path / "elsewhere")
        with pytest.raises(ProjectionError, match="the event store cannot be read"):
            await stored.end()
        with pytest.raises(ProjectionError, match="the event store cannot be read"):
            _ = [some async for some in stored.read(STORE, 0, 9)]
