import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from headrace.stores.database.schema import ARCHIVE, downgrade
from headrace_mq.archive import database as module
from headrace_mq.archive.database import (
    SCHEMA_REVISION,
    ArchiveMismatch,
    ArchivePositionMoved,
    Database,
    KeptLog,
    KeySearch,
    Lost,
)
from headrace_mq.archive.rebuilt import rebuilt
from headrace_mq.archive.rows import COPY_END, COPY_START, copy_rows
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    Columns,
    assign,
    decode_records,
    encode_batch,
    read_header,
)

QUEUE = QueueRef("orders", 0)
START = KeptLog("transient", "me", 0)


class Rows:
    """Batches as a file of COPY that brings a log to `end`."""

    def __init__(self, *batches: bytes, end: int) -> None:
        self._batches = batches
        self.end = end
        self.epochs = "[]"

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield COPY_START
        for batch in self._batches:
            for rows in copy_rows(batch, read_header(batch)):
                yield rows
        yield COPY_END


def stored(offset: int, *bodies: bytes, position: int = 0, keys: list[str] | None = None) -> bytes:
    headers = [{"größe": "10 €", "n": str(n)} for n in range(len(bodies))]
    tags = ["t"] * len(bodies)
    columns = Columns(keys or [], tags, headers, list(bodies), [])
    batch = encode_batch(QUEUE, columns, born_first_ms=1_000, producer_id=2**63 + 5)
    assign(batch, base_offset=offset, position=position, appended_at_ms=2_000, epoch=3)
    return bytes(batch)


@pytest.fixture
async def database(archive_url: str) -> AsyncIterator[Database]:
    one = Database(archive_url, connect_ms=60_000, statement_ms=60_000)
    await one.begin("transient", "me", 0)
    yield one
    await one.aclose()


async def test_copied_rows_are_read_back_unchanged(database: Database) -> None:
    batch = stored(0, b"a", b"", bytes(range(256)), keys=["k", "", "ü"])
    await database.add(START, Rows(batch, end=500))
    assert await database.logs() == [KeptLog("transient", "me", 500)]
    assert await database.firsts([QUEUE, QueueRef("none", 0)]) == {QUEUE: 0}
    rows = await database.block(QUEUE, 0, 10, 1_000)
    (found,) = rebuilt(QUEUE, rows)
    assert decode_records(found.batch) == decode_records(batch)


async def test_sql_reads_messages_as_consumers_see_them(
    database: Database, archive_url: str
) -> None:
    await database.add(START, Rows(stored(4, b"hello", keys=["k"]), end=500))
    connection = await asyncpg.connect(archive_url)
    try:
        row = await connection.fetchrow(
            "SELECT topic, queue_id, queue_offset, key, tag, headers ->> 'größe', body,"
            " extract(epoch FROM born_at)::int, extract(epoch FROM stored_at)::int"
            " FROM archived_messages"
        )
    finally:
        await connection.close()
    assert tuple(row) == ("orders", 0, 4, "k", "t", "10 €", b"hello", 1, 2)


async def test_rows_and_position_come_together_or_not_at_all(database: Database) -> None:
    await database.add(START, Rows(stored(0, b"a"), end=100))
    with pytest.raises(ArchivePositionMoved):
        await database.add(START, Rows(stored(1, b"b"), end=200))
    with pytest.raises(ArchivePositionMoved):
        await database.add(KeptLog("transient", "you", 100), Rows(stored(1, b"b"), end=200))
    # What stands there already cannot be copied once more, and nothing of it is left.
    with pytest.raises(ArchiveUnavailable, match="UniqueViolation"):
        await database.add(
            KeptLog("transient", "me", 100), Rows(stored(1, b"b"), stored(0, b"a"), end=200)
        )
    assert await database.logs() == [KeptLog("transient", "me", 100)]
    assert len(await database.block(QUEUE, 0, 10, 1_000)) == 1


class Stopped(Rows):
    """Rows of a leader that is stopped in the middle of a transaction."""

    def __init__(self) -> None:
        super().__init__(end=100)
        self.reached = asyncio.Event()

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield COPY_START
        self.reached.set()
        await asyncio.Event().wait()


async def test_a_later_leader_ends_the_transaction_of_one_that_is_stopped(
    database: Database, archive_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HOLDER_S", 0.01)
    stopped, heir = Stopped(), Database(archive_url, connect_ms=60_000, statement_ms=60_000)
    adding = asyncio.create_task(database.add(START, stopped))
    await stopped.reached.wait()
    try:
        with capture_logs() as logs:
            await heir.claim(START, START._replace(epoch=5))
        assert await heir.logs() == [START._replace(epoch=5)]
    finally:
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        await heir.aclose()
    assert {line["name"] for line in logs} == {database.name}


async def test_an_own_session_that_was_cut_off_is_ended_and_no_other(
    database: Database, archive_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HOLDER_S", 0.01)
    hold = "UPDATE archive_logs SET position = position"
    own = await asyncpg.connect(archive_url, server_settings={"application_name": database.name})
    await own.execute(f"BEGIN; {hold}")
    await database.add(START, Rows(stored(0, b"a"), end=100))
    own.terminate()

    other = await asyncpg.connect(archive_url, server_settings={"application_name": "psql"})
    await other.execute(f"BEGIN; {hold}")
    held = START._replace(position=100)
    seen, find = asyncio.Event(), database._end_holders

    async def find_and_tell(*arguments: Any) -> list[str]:
        found = await find(*arguments)
        if found:
            seen.set()
        return found

    monkeypatch.setattr(database, "_end_holders", find_and_tell)
    claiming = asyncio.create_task(database.claim(held, held._replace(epoch=5)))
    await seen.wait()
    # What a limit of the server does to the one that waits.
    await other.execute(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    )
    with pytest.raises(ArchiveUnavailable, match=r"other sessions hold .* \(psql\) of .* end them"):
        await claiming
    await other.execute("COMMIT")
    await other.close()
    assert await database.logs() == [held]


async def test_lost_messages_that_cannot_be_moved_in_time_have_an_index_as_a_way_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        database._sql,
        "set_aside",
        "SELECT count(*) FROM pg_sleep(3600)"
        " WHERE $1::text[] = $2::text[] AND $3::bigint + $4::bigint + $5::bigint > 0",
    )
    monkeypatch.setattr(module, "_SET_ASIDE_S", 0.01)
    with pytest.raises(ArchiveUnavailable, match=r"CREATE INDEX CONCURRENTLY .*\(log_position\)"):
        await database.claim(START, START._replace(epoch=5), Lost([], [], epoch=1))
    assert await database.logs() == [START]


async def test_the_server_looks_for_a_client_that_is_silent(database: Database) -> None:
    async with database._connection() as connection:
        rows = await connection.fetch(
            "SELECT name, source FROM pg_settings WHERE name LIKE 'tcp_keepalives%'"
        )
    assert [tuple(row) for row in rows] == [(row[0], "client") for row in rows]
    assert len(rows) == 3


class Killed(Exception):
    """The end of a process."""


class Interrupted(Rows):
    """Rows whose broker ends when all are copied, and the position is to be moved."""

    @property
    def end(self) -> int:
        raise Killed

    @end.setter
    def end(self, value: int) -> None:
        pass


async def test_a_leader_killed_between_rows_and_position_leaves_none_to_its_heir(
    archive_url: str, database: Database
) -> None:
    with pytest.raises(Killed):
        await database.add(START, Interrupted(stored(0, b"a"), end=500))
    heir = Database(archive_url, connect_ms=60_000, statement_ms=60_000)
    try:
        assert await heir.logs() == [START]
        claimed = START._replace(epoch=2, epochs="[[1, 0]]")
        assert await heir.claim(START, claimed) == 0
        await heir.add(claimed, Rows(stored(0, b"a"), end=500))
        assert await heir.logs() == [KeptLog("transient", "me", 500, 2, "[]")]
        # The old one was only paused.
        with pytest.raises(ArchivePositionMoved):
            await database.add(START, Rows(stored(0, b"a"), end=500))
        with pytest.raises(ArchivePositionMoved):
            await database.claim(START, START._replace(epoch=1))
        assert len(await heir.block(QUEUE, 0, 10, 1_000)) == 1
    finally:
        await heir.aclose()


async def test_lost_messages_are_set_aside_and_read_no_more(
    database: Database, archive_url: str
) -> None:
    await database.add(
        START,
        Rows(
            stored(0, b"a"), stored(1, b"b", position=100), stored(2, b"c", position=200), end=300
        ),
    )
    kept = START._replace(position=300)
    claimed = kept._replace(position=100, epoch=7)
    none = Lost(topics=[], others=[QUEUE.topic], epoch=0)
    with pytest.raises(ArchivePositionMoved):
        await database.claim(claimed, claimed, none)
    assert await database.claim(kept, claimed, none) == 0
    # A topic of the log, or one that is not known, from an epoch on.
    late = claimed._replace(position=200, epoch=8)
    assert await database.claim(claimed, late, Lost([], [], epoch=4)) == 0
    assert await database.claim(late, late, Lost([], [], epoch=3)) == 1
    assert await database.claim(late, claimed, Lost([QUEUE.topic], [], epoch=9)) == 1
    assert [row[0] for row in await database.block(QUEUE, 0, 10, 1_000)] == [0]
    connection = await asyncpg.connect(archive_url)
    try:
        rows = await connection.fetch(
            "SELECT queue_offset, body, lost_in, lost_at <= now() FROM archived_lost ORDER BY 1"
        )
    finally:
        await connection.close()
    assert [tuple(row) for row in rows] == [(1, b"b", 7, True), (2, b"c", 8, True)]
    # Their places are free again.
    await database.add(claimed, Rows(stored(1, b"d", position=100), end=150))


async def test_a_block_is_bounded_by_messages_and_by_bytes(database: Database) -> None:
    await database.add(START, Rows(stored(0, *[b"x" * 1_000] * 20), end=100))
    offsets = [row[0] for row in await database.block(QUEUE, 5, 4, 1 << 20)]
    assert offsets == [5, 6, 7, 8]
    assert 1 <= len(await database.block(QUEUE, 5, 20, 3_000)) <= 4


async def test_a_block_begins_with_the_row_that_may_reach_over_its_offset(
    database: Database,
) -> None:
    await database.add(START, Rows(stored(0, b"a"), stored(9, b"b"), end=100))
    assert [row[0] for row in await database.block(QUEUE, 5, 10, 1_000)] == [0, 9]
    assert [row[0] for row in await database.block(QueueRef("none", 0), 5, 10, 1_000)] == []


async def test_times_and_keys_are_found(database: Database) -> None:
    batches = [stored(n * 2, b"a", b"b", position=n * 10, keys=["k", "l"]) for n in range(3)]
    await database.add(START, Rows(*batches, end=100))
    assert await database.stored_from(QUEUE, 5) == (5, 2_000)
    assert await database.stored_from(QUEUE, 6) is None
    wanted = KeySearch("orders", "k", 0, 20, 0, 2**64, 10)
    assert [row[1] for row in await database.keyed(wanted)] == [0, 2]
    assert await database.keyed(wanted._replace(from_ms=2_001)) == []


async def test_a_database_without_the_tables_is_refused_with_the_command_that_makes_them(
    postgres_database: str,
) -> None:
    one = Database(postgres_database, connect_ms=60_000, statement_ms=60_000)
    try:
        with pytest.raises(ArchiveMismatch, match="missing; run: headrace archive upgrade --url"):
            await one.check()
    finally:
        await one.aclose()


@pytest.mark.parametrize(
    ("revision", "sentence"), [("9999", "a newer one made it"), ("0000", "behind this version")]
)
async def test_tables_of_another_version_are_refused(
    database: Database, archive_url: str, revision: str, sentence: str
) -> None:
    await database.check()
    connection = await asyncpg.connect(archive_url)
    await connection.execute("UPDATE headrace_archive_schema SET version_num = $1", revision)
    await connection.close()
    with pytest.raises(ArchiveMismatch, match=sentence):
        await database.check()


async def test_the_tables_go_with_a_downgrade(archive_url: str, database: Database) -> None:
    await downgrade(archive_url, "base", tree=ARCHIVE)
    with pytest.raises(ArchiveMismatch, match="missing"):
        await database.check()


async def test_the_revision_is_the_last_migration(archive_url: str) -> None:
    connection = await asyncpg.connect(archive_url)
    try:
        found = await connection.fetchval("SELECT version_num FROM headrace_archive_schema")
    finally:
        await connection.close()
    assert found == SCHEMA_REVISION


async def test_a_server_that_is_not_there_is_unavailable(free_port: Callable[[], int]) -> None:
    url = f"postgresql://me:secret@127.0.0.1:{free_port()}/x"
    one = Database(url, connect_ms=60_000, statement_ms=60_000)
    with pytest.raises(ArchiveUnavailable, match="does not answer") as refused:
        await one.logs()
    assert "secret" not in str(refused.value)
    await one.aclose()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://host/db"),
        ("postgresql://me@/db?host=/tmp", "postgresql:///db"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert Database(url, connect_ms=1, statement_ms=1).shown == shown


async def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "asyncpg", None)
    one: Any = Database("postgresql://x", connect_ms=1_000, statement_ms=1_000)
    with pytest.raises(ArchiveMismatch, match=r"pip install 'headrace\[postgres\]'"):
        await one.check()
