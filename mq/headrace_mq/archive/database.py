"""
The archive's tables in PostgreSQL: writes rows in one transaction, and reads them back.

One transaction commits rows together with the log position they reach. So after a crash or a lost answer,
that position says what is archived, and no message is written twice.

Used by `archiver` and `archive_reader`; uses asyncpg. It knows no store and no connection of the broker. Every wait
has a limit; every failure of the database is `ArchiveUnavailable`.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace_mq._runtime.log import get_logger
from headrace_mq.archive.rows import COLUMNS
from headrace_mq.archive.term import NO_EPOCHS
from headrace_mq.effective_settings import without_secrets
from headrace_mq.errors import ArchiveUnavailable, MessageQueueError
from headrace_mq.message import QueueRef

if TYPE_CHECKING:  # loaded only when an archive is opened: few brokers have one
    import asyncpg

__all__ = [
    "SCHEMA_REVISION",
    "ArchiveMismatch",
    "ArchivePositionMoved",
    "Database",
    "KeptLog",
    "KeySearch",
    "Lost",
    "RowSource",
]

# This version reads and writes this revision of `migrations/queue`.
SCHEMA_REVISION = "0002"
# One connection copies, two read. The broker could not decode rows for more readers.
_CONNECTIONS_MAX = 3
# After this time a pool that does not close is cut off: its server does not answer.
_CLOSE_MS = 2_000
# A holder of a log's row gets this long: a transaction takes some tenths of a second. After that an earlier leader is
# paused or cut off, and its session would keep the row for hours.
_HOLDER_S = 2.0
# The server looks after 30 s of silence whether a client is still there, and gives it up after 30 s more.
_KEEPALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
# The name of each broker's sessions begins so.
_NAME = "headrace broker"
# Setting lost messages aside reads the whole archive, once after a promotion with loss; an hour bounds it.
_SET_ASIDE_S = 3_600
_I64_MAX = (1 << 63) - 1
_STATEMENTS = (
    "advance", "begin", "block", "encoding", "end_holders", "firsts", "keyed", "lock", "logs",
    "schema", "set_aside", "stored_from",
)  # fmt: skip

_log = get_logger(__name__)


class ArchiveMismatch(MessageQueueError):
    """The database cannot be this broker's archive; the message says what to do."""


class ArchivePositionMoved(MessageQueueError):
    """The archived position of a log has changed: read it again before you copy more."""


class KeptLog(NamedTuple):
    """How far a log is archived, and to which store it belongs.

    `epoch` is that of the broker which archives: no earlier one adds anything. `epochs` are those of the archived bytes,
    as JSON; see `term`.
    """

    log: str
    store_id: str
    position: int
    epoch: int = 0
    epochs: str = NO_EPOCHS


class Lost(NamedTuple):
    """Which archived messages a group has lost: those from its log's `position` on.

    `topics` are those of this log, `others` those of other logs. A message of any other topic counts from `epoch` on.
    """

    topics: Collection[str]
    others: Collection[str]
    epoch: int


class KeySearch(NamedTuple):
    """A search: a key of a topic, a range of log positions, and a range of append times."""

    topic: str
    key: str
    position: int
    before: int
    from_ms: int
    to_ms: int
    rows_max: int


class RowSource(Protocol):
    """The rows of one transaction."""

    @property
    def end(self) -> int:
        """The log position after the last row; known when all rows were yielded."""
        ...

    @property
    def epochs(self) -> str:
        """The epochs of the log below `end`."""
        ...

    def chunks(self) -> AsyncGenerator[bytes]:
        """Yields pieces of a file in the format of COPY."""
        ...


class Database:
    """The database of one archive; it connects at the first use.

    Args:
        url: postgresql://….
        connect_ms: longest wait for a connection.
        statement_ms: longest run of one statement, and of the copy of one transaction.

    Attributes:
        shown: the URL without user, password and options.
        name: of its sessions in `pg_stat_activity`; no other broker's have it.
    """

    def __init__(self, url: str, *, connect_ms: int, statement_ms: int) -> None:
        self._url = url.replace("postgresql+asyncpg://", "postgresql://", 1)
        self.shown = without_secrets(self._url)
        self.name = f"{_NAME} {uuid.uuid4().hex[:8]}"
        self._connect_s = connect_ms / 1_000
        self._statement_s = statement_ms / 1_000
        self._sql = {name: _statement(name) for name in _STATEMENTS}
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def check(self) -> None:
        """Checks that the schema has this version's revision.

        Raises:
            ArchiveMismatch: the revision is another, or the database does not store Unicode.
            ArchiveUnavailable: the database did not answer.
        """
        asyncpg = _driver()
        async with self._connection() as connection:
            encoding = await connection.fetchval(self._sql["encoding"])
            if encoding != "UTF8":
                raise ArchiveMismatch(
                    f"the database {self.shown} holds text as {encoding}; make one with the"
                    " encoding UTF8 for the archive"
                )
            try:
                revision = await connection.fetchval(self._sql["schema"])
            except asyncpg.UndefinedTableError:
                revision = None
        if revision is None or (revision != SCHEMA_REVISION and str(revision) < SCHEMA_REVISION):
            raise ArchiveMismatch(
                f"the archive's schema in {self.shown} is "
                f"{'missing' if revision is None else 'behind this version'}; run: headrace archive"
                f" upgrade --url {self.shown}"
            )
        if revision != SCHEMA_REVISION:
            raise ArchiveMismatch(
                f"the archive's schema in {self.shown} is at {revision}, which this version does"
                " not know: a newer one made it; start that version"
            )

    async def logs(self) -> list[KeptLog]:
        """Returns the logs that are archived here. Raises ArchiveUnavailable."""
        async with self._connection() as connection:
            return [KeptLog(*row) for row in await connection.fetch(self._sql["logs"])]

    async def begin(self, log: str, store_id: str, position: int) -> None:
        """Adds a log, unless the archive has a log of that name. Raises ArchiveUnavailable."""
        async with self._connection() as connection:
            await connection.execute(self._sql["begin"], log, store_id, position)

    async def add(self, kept: KeptLog, source: RowSource) -> None:
        """Copies rows and moves the log's position after them, in one transaction.

        Raises:
            ArchivePositionMoved: the log's position or epoch is not the one of `kept`; no row was copied.
            ArchiveUnavailable: the outcome is unknown; call `logs` to learn it.
        """
        async with self._connection() as connection, connection.transaction():
            # What holds it can be only an own session that the network cut off, or a later leader's.
            await self._lock(connection, kept, ends=self.name)
            await connection.copy_to_table(
                "archived_records",
                source=source.chunks(),
                columns=COLUMNS,
                format="binary",
                timeout=self._statement_s,
            )
            await self._advance(
                connection, kept._replace(position=source.end, epochs=source.epochs)
            )

    async def claim(self, kept: KeptLog, claimed: KeptLog, lost: Lost | None = None) -> int:
        """Moves a log to another epoch, and sets aside the messages that a group has lost, in one transaction.

        A move to a later epoch ends the sessions of other brokers that keep the log's row, because an earlier leader may be
        paused or cut off in the middle of a transaction.

        Args:
            kept: as it is.
            claimed: as it shall be.
            lost: which messages from the position of `claimed` on go to the table of lost ones; None: none is lost.

        Returns how many rows were set aside.

        Raises:
            ArchivePositionMoved: the log's position or epoch is not the one of `kept`; nothing was changed.
            ArchiveUnavailable: the outcome is unknown; call `logs` to learn it.
        """
        moved = 0
        async with self._connection() as connection, connection.transaction():
            later = claimed.epoch > kept.epoch
            await self._lock(connection, kept, ends=f"{_NAME}%" if later else self.name)
            if lost is not None:
                moved = await self._set_aside(connection, claimed, lost)
            await self._advance(connection, claimed)
        return moved

    async def _set_aside(self, connection: Any, claimed: KeptLog, lost: Lost) -> int:
        try:
            moved: int = await connection.fetchval(
                self._sql["set_aside"], list(lost.topics), list(lost.others),
                claimed.position, lost.epoch, claimed.epoch, timeout=_SET_ASIDE_S,
            )  # fmt: skip
        except (TimeoutError, _driver().QueryCanceledError) as error:
            raise ArchiveUnavailable(
                f"moving the messages that this group has lost to the table archived_lost of {self.shown} took too long; help"
                " it with: CREATE INDEX CONCURRENTLY lost_position ON archived_records (log_position); the broker tries again"
            ) from error
        return moved

    async def _lock(self, connection: Any, kept: KeptLog, *, ends: str) -> None:
        """Holds the row of a log; ends sessions that keep it and whose names are like `ends`."""
        asyncpg, others = _driver(), list[str]()
        locking = asyncio.ensure_future(connection.fetchval(self._sql["lock"], *kept[:4]))
        try:
            while not (await asyncio.wait({locking}, timeout=_HOLDER_S))[0]:
                others = await self._end_holders(connection.get_server_pid(), ends)
            held = await locking
        except (TimeoutError, asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError) as error:
            if not others:
                raise
            raise ArchiveUnavailable(
                f"other sessions hold the log {kept.log!r} in the archive {self.shown}: {', '.join(others)}; end them, with"
                " pg_terminate_backend, if they do not end by themselves: the broker goes on then"
            ) from error
        finally:
            locking.cancel()
            await asyncio.gather(locking, return_exceptions=True)
        if held is None:
            raise ArchivePositionMoved(
                f"the log {kept.log!r} is not archived up to {kept.position} in epoch {kept.epoch} in {self.shown}"
            )

    async def _end_holders(self, waiting: int, ends: str) -> list[str]:
        """Ends what a session waits for, if its name is like `ends`; returns who else holds that."""
        async with self._connection() as connection:
            holders = await connection.fetch(self._sql["end_holders"], waiting, ends)
        others = []
        for pid, role, name, ended in holders:
            if ended:
                _log.warning(
                    "ended a session of a broker that kept the archive: it is paused or cut off",
                    archive=self.shown, session=pid, name=name,
                )  # fmt: skip
            else:
                others.append(f"process {pid} ({name or 'without a name'}) of {role}")
        return others

    async def _advance(self, connection: Any, kept: KeptLog) -> None:
        await connection.execute(self._sql["advance"], *kept)

    async def firsts(self, queues: Collection[QueueRef]) -> dict[QueueRef, int]:
        """Returns the first archived offset of each queue that has one. Raises ArchiveUnavailable."""
        topics, numbers = [queue.topic for queue in queues], [queue.queue_id for queue in queues]
        async with self._connection() as connection:
            rows = await connection.fetch(self._sql["firsts"], topics, numbers)
        return {QueueRef(topic, number): first for topic, number, first in rows}

    async def block(
        self, queue: QueueRef, offset: int, messages_max: int, bytes_max: int
    ) -> list[Sequence[Any]]:
        """Returns rows from the last row at or before an offset on.

        Raises:
            ArchiveUnavailable: the database did not answer.
        """
        async with self._connection() as connection:
            return list(
                await connection.fetch(self._sql["block"], *queue, offset, messages_max, bytes_max)
            )

    async def stored_from(self, queue: QueueRef, offset: int) -> tuple[int, int] | None:
        """Returns the first archived offset from `offset` on, and its append time; None if there is none.

        Raises:
            ArchiveUnavailable: the database did not answer.
        """
        async with self._connection() as connection:
            row = await connection.fetchrow(self._sql["stored_from"], *queue, offset)
        return None if row is None else (row[0], row[1])

    async def keyed(self, wanted: KeySearch) -> list[Sequence[Any]]:
        """Returns messages of a key, each with its queue first. Raises ArchiveUnavailable."""
        # A client may send any number as a time; the database takes 64 bits.
        bounds = [min(value, _I64_MAX) for value in wanted[2:6]]
        async with self._connection() as connection:
            return list(
                await connection.fetch(
                    self._sql["keyed"], wanted.topic, wanted.key, *bounds, wanted.rows_max
                )
            )

    async def aclose(self) -> None:
        """Closes the connections and cancels their statements."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), _CLOSE_MS / 1_000)
        except Exception:  # noqa: BLE001 - the pool is dropped in any case
            pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        asyncpg = _driver()
        try:
            if self._pool is None:
                # This opens no connection, so no caller waits here for a server that does not answer.
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=_CONNECTIONS_MAX,
                    timeout=self._connect_s,
                    command_timeout=self._statement_s,
                    # The log deletes what is archived, so a commit must have reached the server's disk.
                    server_settings={
                        "application_name": self.name,
                        "synchronous_commit": "on",
                        **_KEEPALIVE,
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
        raise ArchiveMismatch(
            "an archive in PostgreSQL needs asyncpg: pip install 'headrace[postgres]'"
        ) from error
    return asyncpg


def _statement(name: str) -> str:
    content = (files("headrace_mq.archive") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in content.splitlines() if not line.startswith("--"))
