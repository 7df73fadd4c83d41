import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import event, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from headrace.domain.stream import EventStream
from headrace.stores.base import AppendOutcome
from headrace.stores.database.engines import EngineLimits
from headrace.stores.postgres.store import _TURN, PostgresEventStore
from headrace.testing.conformance.streams import conformance_serializer, rejected, stream

APPENDED = AppendOutcome.APPENDED
DUPLICATE = AppendOutcome.DUPLICATE_COMMAND
CONFLICT = AppendOutcome.VERSION_CONFLICT

INSERT = """
    INSERT INTO event_streams
        (aggregate_id, aggregate_type, version, command_id, recorded_at, body)
    VALUES ($1, 'Notebook', $2, $3, now(), $4)
"""


@pytest.fixture
async def store(migrated_postgres: str) -> AsyncIterator[PostgresEventStore]:
    store = PostgresEventStore(migrated_postgres, conformance_serializer())
    yield store
    await store.aclose()


@pytest.fixture
async def other(migrated_postgres: str) -> AsyncIterator[asyncpg.Connection]:
    """Another program's connection to the same database."""
    url = make_url(migrated_postgres)
    connection = await asyncpg.connect(
        host=str(url.query["host"]), user=url.username, database=url.database
    )
    yield connection
    await connection.close()


async def _insert(
    other: asyncpg.Connection, aggregate_id: str, version: int | None, command_id: str
) -> None:
    """Writes as every adapter of this table must: in its turn."""
    await other.execute("SELECT pg_advisory_xact_lock($1)", _TURN)
    streams = stream(aggregate_id, version or 1, command_id)
    body = conformance_serializer().encode_stream(streams).decode()
    await other.execute(INSERT, aggregate_id, version, command_id, body)


async def _until_a_writer_waits(other: asyncpg.Connection) -> None:
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    while not await other.fetchval(waits):
        pass


async def test_a_reader_does_not_skip_a_transaction_that_is_still_open(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    await store.append([stream("a", 1)])
    end = await store.last_position()
    async with other.transaction():
        await _insert(other, "slow", 1, "c")
        # The slow writer has its position already; the quick one must not commit a later one.
        quick = asyncio.create_task(store.append([stream("quick", 1)]))
        await _until_a_writer_waits(other)
        assert await store.read_all(after_position=end) == []
        assert await store.last_position() == end
        assert not quick.done()
    assert await quick == [APPENDED]
    later = await store.read_all(after_position=end)
    assert [found.stream.aggregate_id for found in later] == ["slow", "quick"]


async def test_a_reader_would_skip_a_slow_transaction_if_writers_took_no_turns(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    """The test above can fail: this is what it guards against."""
    async with other.transaction():
        body = conformance_serializer().encode_stream(stream("slow", 1)).decode()
        await other.execute(INSERT, "slow", 1, "c", body)
        await store.append([stream("quick", 1)])
        seen = await store.last_position()
        assert len(await store.read_all()) == 1
    assert await store.read_all(after_position=seen) == []
    assert len(await store.read_all()) == 2


async def test_an_append_that_waited_sees_what_was_stored_meanwhile(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    async with other.transaction():
        await _insert(other, "a", 1, "c")
        append = asyncio.create_task(
            store.append(
                [
                    stream("a", 2, "next"),
                    stream("b", 1),
                    stream("a", 3, "after"),
                ]
            )
        )
        await _until_a_writer_waits(other)
    # When it was sent, version 1 was not there; at its turn nothing stands in its way.
    assert await append == [APPENDED] * 3


@pytest.mark.parametrize(
    ("late", "outcome"),
    [
        (stream("a", 1, "c"), DUPLICATE),
        (stream("a", 1, "d"), CONFLICT),
        (rejected("a", "c"), DUPLICATE),
        (rejected("a", "d"), APPENDED),
        (stream("a", 3, "d"), CONFLICT),
    ],
)
async def test_an_append_that_waited_is_judged_by_what_was_stored_meanwhile(
    store: PostgresEventStore, other: asyncpg.Connection, late: EventStream, outcome: AppendOutcome
) -> None:
    async with other.transaction():
        await _insert(other, "a", 1, "c")
        append = asyncio.create_task(store.append([stream("b", 1), late]))
        await _until_a_writer_waits(other)
    assert await append == [APPENDED, outcome]


async def test_an_unknown_constraint_stays_an_error_and_stores_nothing(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    await other.execute("CREATE UNIQUE INDEX uq_other ON event_streams (recorded_at)")
    with pytest.raises(IntegrityError, match="uq_other"):
        await store.append([stream("a", 1), stream("b", 1)])
    assert await store.read_all() == []


async def test_the_wait_for_a_turn_is_bounded(
    migrated_postgres: str, store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    impatient = PostgresEventStore(
        migrated_postgres, conformance_serializer(), EngineLimits(statement_timeout_ms=500)
    )
    async with other.transaction():
        await _insert(other, "slow", 1, "c")
        with pytest.raises(DBAPIError, match="statement timeout"):
            await impatient.append([stream("a", 1)])
    # With the usual limit: where much is going on, a disk alone takes longer than the other one.
    assert await store.append([stream("a", 1)]) == [APPENDED]
    await impatient.aclose()


async def test_appends_at_the_same_time_are_all_stored(store: PostgresEventStore) -> None:
    appends = [store.append([stream(f"a-{number}", 1)]) for number in range(20)]
    assert await asyncio.gather(*appends) == [[APPENDED]] * 20


async def test_a_cancelled_append_leaves_no_turn_behind(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    async with other.transaction():
        await _insert(other, "slow", 1, "c")
        append = asyncio.create_task(store.append([stream("a", 1)]))
        await _until_a_writer_waits(other)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
    assert await store.append([stream("b", 1)]) == [APPENDED]
    (outcome,) = await store.append([stream("a", 1)])
    assert outcome in {APPENDED, DUPLICATE}
    assert await store.read_stream("a") == [stream("a", 1)]


async def _end_connections(other: asyncpg.Connection) -> None:
    await other.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE application_name = 'headrace'"
    )


async def test_an_append_takes_another_connection_where_the_writer_s_is_lost(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    for version in (1, 2, 3):
        assert await store.append([stream("a", version)]) == [APPENDED]
        await _end_connections(other)
        await store._engine.dispose()


async def test_an_append_can_be_repeated_after_lost_connections(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    await store.append([stream("a", 1)])
    await store.read_stream("a")
    await _end_connections(other)
    with pytest.raises((SQLAlchemyError, OSError)):
        await store.append([stream("b", 1)])
    assert await store.append([stream("b", 1)]) == [APPENDED]


async def test_an_append_is_one_round_trip(
    migrated_postgres: str, other: asyncpg.Connection
) -> None:
    store = PostgresEventStore(
        migrated_postgres, conformance_serializer(), EngineLimits(connections_max=1)
    )
    await store.append([stream("warm", 1)])
    statements: list[str] = []
    event.listen(
        store._engine.sync_engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, *_: statements.append(statement),
    )
    await store.append([stream(f"a-{number}", 1) for number in range(100)])
    # The server keeps the last thing that a connection sent: a COMMIT would be a second one.
    last = await other.fetchval(
        "SELECT query FROM pg_stat_activity WHERE application_name = 'headrace'"
    )
    await store.aclose()
    assert statements == []
    assert last.startswith("WITH turn")
