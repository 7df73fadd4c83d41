"""
The archive's tables in PostgreSQL: what is written to them in one transaction, and what is read.

Rows commit together with the log position up to which they go. So after a crash or a lost answer the
position alone says what is archived, and nothing is ever written twice.

Used by `archiver` and `past`; uses asyncpg. It knows no store and no connection of the broker. Every wait
is bounded; every failure of the database is `ArchiveUnavailable`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from headrace_mq.archive.rows import COLUMNS
from headrace_mq.errors import ArchiveUnavailable, MessageQueueError
from headrace_mq.message import QueueRef

if TYPE_CHECKING:  # loaded when an archive is opened: few brokers have one
    import asyncpg

__all__ = [
    "SCHEMA_REVISION",
    "ArchivePositionMoved",
    "ArchiveUnfit",
    "Database",
    "KeptLog",
    "Keyed",
    "RowSource",
    "shown",
]

# The revision of `migrations/queue` that this version reads and writes.
SCHEMA_REVISION = "0001"
# One copies, two read: more readers than the broker can decode for would only hold connections.
_CONNECTIONS_MAX = 3
# A pool that does not close is cut off after this: its server is away.
_CLOSE_MS = 2_000
_I64_MAX = (1 << 63) - 1
_STATEMENTS = (
    "advance", "begin", "block", "encoding", "firsts", "keyed", "lock", "logs", "schema",
    "stored_from",
)  # fmt: skip


class ArchiveUnfit(MessageQueueError):
    """The database cannot be this broker's archive; the sentence says what to do."""


class ArchivePositionMoved(MessageQueueError):
    """A log's archived position is not where this broker left it: look again before going on."""


class KeptLog(NamedTuple):
    """How far a log is archived, and of which store it is."""

    log: str
    store_id: str
    position: int


class Keyed(NamedTuple):
    """What is searched for: a key of a topic, between log positions and append times."""

    topic: str
    key: str
    position: int
    before: int
    from_ms: int
    to_ms: int
    rows_max: int


class RowSource(Protocol):
    """What is copied in one transaction."""

    @property
    def end(self) -> int:
        """The log position behind what was yielded; known when all was."""
        ...

    def chunks(self) -> AsyncGenerator[bytes]:
        """Yields a file in the format of COPY."""
        ...


def shown(url: str) -> str:
    """Returns a URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")).geturl()


class Database:
    """One archive; nothing is connected before it is used.

    Args:
        url: postgresql://….
        connect_ms: longest wait for a connection.
        statement_ms: longest run of one statement, and of the copy of one transaction.
    """

    def __init__(self, url: str, *, connect_ms: int, statement_ms: int) -> None:
        self._url = url.replace("postgresql+asyncpg://", "postgresql://", 1)
        self.shown = shown(self._url)
        self._connect_s = connect_ms / 1_000
        self._statement_s = statement_ms / 1_000
        self._sql = {name: _statement(name) for name in _STATEMENTS}
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def check(self) -> None:
        """Returns if the schema is the one of this version.

        Raises:
            ArchiveUnfit: it is not, or the database does not hold Unicode.
            ArchiveUnavailable: the database did not answer.
        """
        asyncpg = _driver()
        async with self._connection() as connection:
            encoding = await connection.fetchval(self._sql["encoding"])
            if encoding != "UTF8":
                raise ArchiveUnfit(
                    f"the database {self.shown} holds text as {encoding}; make one with the"
                    " encoding UTF8 for the archive"
                )
            try:
                revision = await connection.fetchval(self._sql["schema"])
            except asyncpg.UndefinedTableError:
                revision = None
        if revision is None or (revision != SCHEMA_REVISION and str(revision) < SCHEMA_REVISION):
            raise ArchiveUnfit(
                f"the archive's schema in {self.shown} is "
                f"{'missing' if revision is None else 'behind this version'}; run: headrace archive"
                f" upgrade --url {self.shown}"
            )
        if revision != SCHEMA_REVISION:
            raise ArchiveUnfit(
                f"the archive's schema in {self.shown} is at {revision}, which this version does"
                " not know: a newer one made it; start that version"
            )

    async def logs(self) -> list[KeptLog]:
        """Returns the logs that are archived here. Raises ArchiveUnavailable."""
        async with self._connection() as connection:
            return [KeptLog(*row) for row in await connection.fetch(self._sql["logs"])]

    async def begin(self, log: str, store_id: str, position: int) -> None:
        """Enters a log, unless there is one of its name. Raises ArchiveUnavailable."""
        async with self._connection() as connection:
            await connection.execute(self._sql["begin"], log, store_id, position)

    async def add(self, kept: KeptLog, source: RowSource) -> None:
        """Copies rows and moves the log's position behind them, both or neither.

        Raises:
            ArchivePositionMoved: the log is not where `kept` says; nothing was copied.
            ArchiveUnavailable: the outcome is unknown; `logs` tells it.
        """
        async with self._connection() as connection, connection.transaction():
            held = await connection.fetchval(self._sql["lock"], *kept)
            if held is None:
                raise ArchivePositionMoved(
                    f"the log {kept.log!r} is not archived up to {kept.position} in {self.shown}"
                )
            await connection.copy_to_table(
                "archived_records",
                source=source.chunks(),
                columns=COLUMNS,
                format="binary",
                timeout=self._statement_s,
            )
            await connection.fetchval(self._sql["advance"], *kept, source.end)

    async def firsts(self, queues: Collection[QueueRef]) -> dict[QueueRef, int]:
        """Returns the first offset held of each queue that has one. Raises ArchiveUnavailable."""
        topics, numbers = [queue.topic for queue in queues], [queue.queue_id for queue in queues]
        async with self._connection() as connection:
            rows = await connection.fetch(self._sql["firsts"], topics, numbers)
        return {QueueRef(topic, number): first for topic, number, first in rows}

    async def block(
        self, queue: QueueRef, offset: int, messages_max: int, bytes_max: int
    ) -> list[Sequence[Any]]:
        """Returns rows from an offset on, beginning with the row before it.

        Raises:
            ArchiveUnavailable: the database did not answer.
        """
        async with self._connection() as connection:
            return list(
                await connection.fetch(self._sql["block"], *queue, offset, messages_max, bytes_max)
            )

    async def stored_from(self, queue: QueueRef, offset: int) -> tuple[int, int] | None:
        """Returns the first offset held from one on, and its append time; None behind all.

        Raises:
            ArchiveUnavailable: the database did not answer.
        """
        async with self._connection() as connection:
            row = await connection.fetchrow(self._sql["stored_from"], *queue, offset)
        return None if row is None else (row[0], row[1])

    async def keyed(self, wanted: Keyed) -> list[Sequence[Any]]:
        """Returns messages of a key, each with its queue first. Raises ArchiveUnavailable."""
        # An append time behind all of them may be any number on the wire.
        bounds = [min(value, _I64_MAX) for value in wanted[2:6]]
        async with self._connection() as connection:
            return list(
                await connection.fetch(
                    self._sql["keyed"], wanted.topic, wanted.key, *bounds, wanted.rows_max
                )
            )

    async def aclose(self) -> None:
        """Closes the connections; what runs on them ends."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), _CLOSE_MS / 1_000)
        except Exception:  # noqa: BLE001 - it is given up either way
            pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        asyncpg = _driver()
        try:
            if self._pool is None:
                # This opens no connection, so that no caller waits here for a server that is away.
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=_CONNECTIONS_MAX,
                    timeout=self._connect_s,
                    command_timeout=self._statement_s,
                    # What the log may delete must have reached the disk there.
                    server_settings={
                        "application_name": "headrace broker",
                        "synchronous_commit": "on",
                    },
                )
            async with self._pool.acquire(timeout=self._connect_s) as connection:
                yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            raise ArchiveUnavailable(
                f"the archive {self.shown} does not answer ({type(error).__name__}: {error}); start"
                " or repair the database: the broker goes on by itself"
            ) from error


def _driver() -> Any:
    try:
        import asyncpg
    except ImportError as error:
        raise ArchiveUnfit(
            "an archive needs the package asyncpg, which is not installed; run: pip install asyncpg"
        ) from error
    return asyncpg


def _statement(name: str) -> str:
    content = (files("headrace_mq.archive") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in content.splitlines() if not line.startswith("--"))
