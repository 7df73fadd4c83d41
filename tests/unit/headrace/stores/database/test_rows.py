"""A row says of itself whether it is what was stored."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.domain.message import Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.errors import DamagedStream, SubjectKeysError, UnknownMessageType
from headrace.serialization import JsonSerializer
from headrace.stores.base import EventStore, StoredStream
from headrace.stores.database.engines import create_engine
from headrace.stores.database.rows import by_command, checksum_of, entry_in, stream_in
from headrace.stores.open import open_event_store
from headrace.stores.postgres.partitions import reshard
from headrace.subjects.keys import MemoryKeys
from headrace.subjects.personal import Personal
from headrace.testing.conformance.streams import conformance_serializer, rejected, stream

SERIALIZER = conformance_serializer()


def row_of(**changed: object) -> tuple[object, ...]:
    one = stream("a", 1, text="500")
    body = SERIALIZER.encode_stream(one)
    checksum = checksum_of("a", "Notebook", 1, one.command_id, body)
    fields = {
        "position": 7,
        "aggregate_id": "a",
        "aggregate_type": "Notebook",
        "version": 1,
        "command_id": one.command_id,
        "body": body.decode(),
        "checksum": checksum,
    }
    return tuple((fields | changed).values())


@pytest.fixture(params=["sqlite_database", "migrated_postgres", "migrated_postgres in shards"])
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param.split()[0])
    if "shards" in request.param:
        asyncio.run(reshard(url, 3))
    return url


@pytest.fixture
async def store(database: str) -> AsyncIterator[EventStore]:
    store = await open_event_store(database, SERIALIZER)
    yield store
    await store.aclose()


@pytest.fixture
async def by_hand(database: str) -> AsyncIterator[AsyncConnection]:
    """A connection of somebody who changes the database past the store."""
    engine = create_engine(database)
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


async def change(connection: AsyncConnection, statement: str) -> None:
    await connection.execute(text(statement))
    await connection.commit()


def test_a_row_is_its_stream() -> None:
    assert stream_in(row_of(), SERIALIZER) == stream("a", 1, text="500")
    assert entry_in(row_of(), SERIALIZER) == StoredStream(
        position=7, stream=stream("a", 1, text="500")
    )


@given(
    place=st.integers(0, len(row_of()[5]) - 1),  # type: ignore[arg-type]  # it is a text
    character=st.characters(codec="utf-8", exclude_characters="\0"),
)
def test_any_other_character_in_a_body_is_found(place: int, character: str) -> None:
    body = str(row_of()[5])
    changed = body[:place] + character + body[place + 1 :]
    if changed != body:
        with pytest.raises(DamagedStream, match="its checksum differs"):
            stream_in(row_of(body=changed), SERIALIZER)


@pytest.mark.parametrize(
    "changed",
    [
        {"aggregate_id": "b"},
        {"aggregate_type": "Other"},
        {"version": 2},
        {"version": None},
        {"command_id": "other"},
        {"checksum": 0},
    ],
)
def test_any_other_column_is_found(changed: dict[str, object]) -> None:
    with pytest.raises(DamagedStream, match=r"position 7, command .* cannot be read"):
        stream_in(row_of(**changed), SERIALIZER)


def test_a_row_without_a_checksum_is_accepted() -> None:
    assert stream_in(row_of(checksum=None), SERIALIZER) == stream("a", 1, text="500")
    with pytest.raises(DamagedStream, match="is no event stream"):
        stream_in(row_of(checksum=None, body='{"aggregate_type": 1}'), SERIALIZER)


def test_an_event_of_an_unknown_type_is_no_damage_where_one_stream_is_read() -> None:
    body = str(row_of()[5]).replace("Noted", "Gone")
    with pytest.raises(UnknownMessageType):
        stream_in(row_of(checksum=None, body=body), SERIALIZER)
    entry = entry_in(row_of(checksum=None, body=body), SERIALIZER)
    assert isinstance(entry, DamagedStream)
    (found,) = by_command([row_of(checksum=None, body=body)], SERIALIZER).values()
    assert isinstance(found, DamagedStream)


async def test_a_digit_changed_in_the_database_is_found_by_every_way_of_reading(
    store: EventStore, by_hand: AsyncConnection
) -> None:
    await store.append(
        [stream("a", 1, text="100"), stream("a", 2, text="500"), stream("b", 1), rejected("a", "n")]
    )
    await change(
        by_hand,
        """UPDATE event_streams SET body = replace(body, '"500"', '"900"')
           WHERE aggregate_id = 'a' AND version = 2""",
    )
    named = r"version 2 of aggregate a \(position 2, command command-2\).*checksum differs.*backup"
    for read in (
        store.read_stream("a"),
        store.read_stream("a", after_version=1),
        store.find_command("a", "command-2"),
        store.read_all(),
    ):
        with pytest.raises(DamagedStream, match=named):
            await read
    # What is whole is read as before.
    assert await store.read_stream("a", to_version=1) == [stream("a", 1, text="100")]
    assert await store.read_stream("b") == [stream("b", 1)]
    both = await store.find_stored({("a", "command-2"), ("a", "command-1")})
    assert both[("a", "command-1")] == stream("a", 1, text="100")
    assert re.search(named, str(both[("a", "command-2")]))
    entries = await store.survey()
    assert [isinstance(each, StoredStream) for each in entries] == [True, False, True, True]
    assert [each.position for each in entries] == [1, 2, 3, 4]
    (_, found, _) = await store.survey(aggregate_id="a")
    assert isinstance(found, DamagedStream)
    assert (found.position, found.aggregate_id, found.version) == (2, "a", 2)


async def test_a_stream_written_before_there_were_checksums_is_read(
    store: EventStore, by_hand: AsyncConnection
) -> None:
    await store.append([stream("a", 1)])
    await change(by_hand, "UPDATE event_streams SET checksum = NULL")
    assert await store.read_stream("a") == [stream("a", 1)]
    assert await store.append([stream("a", 2)])
    assert await store.read_stream("a") == [stream("a", 1), stream("a", 2)]


async def test_a_row_that_never_decoded_fails_only_its_own_readers(
    store: EventStore, by_hand: AsyncConnection
) -> None:
    """As an event with a number that is none, which an earlier version stored as null."""
    await store.append([stream("a", 1), stream("b", 1)])
    broken = json.dumps({**json.loads(SERIALIZER.encode_stream(stream("a", 1))), "events": [{}]})
    await by_hand.execute(
        text("UPDATE event_streams SET checksum = NULL, body = :body WHERE aggregate_id = 'a'"),
        {"body": broken},
    )
    await by_hand.commit()
    with pytest.raises(DamagedStream, match="does not decode"):
        await store.read_stream("a")
    first, second = await store.survey()
    assert isinstance(first, DamagedStream)
    assert second == StoredStream(position=2, stream=stream("b", 1))


class Registered(DomainEvent):
    who: str
    name: Annotated[str, Personal(subject="who")]


class FarKeys(MemoryKeys):
    """Notes what it is asked for, and by which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, set[str]]] = []
        self.damaged = ""

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        if self.damaged in subjects:
            raise SubjectKeysError(f"the key of {self.damaged} cannot be unwrapped")
        self.asked.append((threading.get_ident(), set(subjects)))
        return {each: self.find(each) for each in subjects}

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        return {each: self.make(each) for each in subjects}


def personal_serializer(keys: MemoryKeys) -> JsonSerializer:
    events: Registry[DomainEvent] = Registry("event")
    events.add(Registered)
    return JsonSerializer(Registry[Command]("command"), events, None, keys)


async def test_keys_of_what_is_read_are_asked_for_at_once_and_off_the_event_loop(
    database: str,
) -> None:
    keys, both = FarKeys(), {"c-1", "c-2"}
    store = await open_event_store(database, personal_serializer(keys))
    events = {n: Registered(who=f"c-{n}", name="Ann") for n in (1, 2)}
    await store.append([replace(stream("a", n), events=(events[n],)) for n in (1, 2)])
    await store.aclose()
    ways: list[tuple[str, tuple[Any, ...], set[str]]] = [
        ("read_stream", ("a",), both),
        ("find_command", ("a", "command-1"), {"c-1"}),
        ("find_stored", ([("a", "command-1"), ("a", "command-2")],), both),
        ("read_all", (), both),
        ("survey", (), both),
    ]
    for way, arguments, whose in ways:
        keys.asked.clear()
        store = await open_event_store(database, personal_serializer(keys))
        assert "Ann" in repr(await getattr(store, way)(*arguments))
        await store.aclose()
        ((thread, asked),) = keys.asked
        assert asked == whose
        assert thread != threading.get_ident()


async def test_a_key_that_cannot_be_unwrapped_damages_its_own_stream_alone(database: str) -> None:
    keys = FarKeys()
    writer = await open_event_store(database, personal_serializer(keys))
    events = {each: Registered(who=each, name="Ann") for each in ("c-1", "c-2", "c-3")}
    await writer.append(
        [replace(stream(each, 1), events=(event,)) for each, event in events.items()]
    )
    await writer.aclose()
    keys.damaged = "c-2"
    store = await open_event_store(database, personal_serializer(keys))
    found = await store.find_stored({(each, "command-1") for each in events})
    assert {each: isinstance(one, DamagedStream) for (each, _), one in found.items()} == {
        "c-1": False, "c-2": True, "c-3": False,
    }  # fmt: skip
    assert [isinstance(each, DamagedStream) for each in await store.survey()] == [
        False, True, False,
    ]  # fmt: skip
    assert "Ann" in repr(await store.read_stream("c-1"))
    for read in (store.read_stream("c-2"), store.find_command("c-2", "command-1")):
        with pytest.raises(DamagedStream, match="the key of c-2 cannot be unwrapped"):
            await read
    await store.aclose()
