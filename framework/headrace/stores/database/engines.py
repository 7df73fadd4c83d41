"""
Opens databases by URL, SQLite and PostgreSQL, with every setting that durability depends on.

Used by the event stores, the read models and the rebuilds. A setting of the database that could lose
acknowledged data is set here for each connection, never left to the server's configuration.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    AsyncAdaptedQueuePool,
    Connection,
    Engine,
    ExceptionContext,
    QueuePool,
    event,
    make_url,
)
from sqlalchemy import create_engine as create_blocking_engine
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from headrace._runtime.private_files import FILE_MODE
from headrace.errors import DefinitionError, ExtraMissing
from headrace.stores.database.read_only import ReadOnlyFile, why_read_only
from headrace.stores.database.tls import TLS_OPTIONS, tls_arguments

__all__ = [
    "EngineLimits",
    "autocommit",
    "create_engine",
    "create_sqlite_engine",
    "database_url",
    "is_in_memory",
]

E = TypeVar("E", AsyncEngine, Engine)

_SQLITE = "sqlite+aiosqlite"
_POSTGRES = "postgresql+asyncpg"
_DRIVERS = {
    "sqlite": _SQLITE,
    _SQLITE: _SQLITE,
    "postgresql": _POSTGRES,
    _POSTGRES: _POSTGRES,
}
_AUTOCOMMIT = "headrace_autocommit"
# Among what is noted of a connection: the file can be read only.
_READ_ONLY = "headrace_read_only"

# What may follow the `?` of a URL; all else that a driver knows is set here.
_SQLITE_OPTIONS = frozenset({"cached_statements", "timeout"})
_POSTGRES_OPTIONS = TLS_OPTIONS | {
    "host",
    "krbsrvname",
    "passfile",
    "port",
    "prepared_statement_cache_size",
    "target_session_attrs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The bounds of one engine.

    Attributes:
        connections_max: connections kept open; enough to hide commit latency, few enough for
            several processes to share one server.
        checkout_timeout_ms: longest wait for one of them.
        connect_timeout_ms: longest wait for a new one (PostgreSQL).
        busy_timeout_ms: longest wait for another process's write transaction (SQLite); the
            longest of ours, 1,000 streams, takes well under a second.
        statement_timeout_ms: longest run of one statement, waiting for locks included
            (PostgreSQL).
        idle_transaction_ms: longest silence within a transaction before the server ends it, so
            that a stuck process cannot hold up the others (PostgreSQL).
    """

    connections_max: int = 5
    checkout_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    busy_timeout_ms: int = 10_000
    statement_timeout_ms: int = 30_000
    idle_transaction_ms: int = 60_000


def database_url(url: str) -> URL:
    """Returns the URL with the driver that Headrace uses.

    Raises:
        DefinitionError: it is not a URL, or not one of SQLite or PostgreSQL, or has an option that
            they do not know.
        ExtraMissing: it is one of PostgreSQL, and the driver is not installed.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise DefinitionError(
            "this is not a database URL; use sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        ) from error
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise DefinitionError(
            f"{parsed.drivername}:// is not a database that Headrace knows;"
            " use sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        )
    if driver == _SQLITE and ("uri" in parsed.query or str(parsed.database).startswith("file:")):
        raise DefinitionError("name the SQLite file as it is: sqlite:///FILE, not file:… and uri=…")
    known = _SQLITE_OPTIONS if driver == _SQLITE else _POSTGRES_OPTIONS
    unknown = sorted(parsed.query.keys() - known)
    if unknown:
        raise DefinitionError(
            f"a {parsed.drivername}:// URL has no option {unknown[0]!r}; it may have:"
            f" {', '.join(sorted(known))}"
        )
    if driver == _POSTGRES:
        _check_driver()
    return parsed.set(drivername=driver)


def _check_driver() -> None:
    try:
        import asyncpg  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise ExtraMissing(
            "a postgresql:// URL needs asyncpg: pip install 'headrace[postgres]'"
        ) from error


def is_in_memory(url: URL) -> bool:
    """Whether the URL names an SQLite database that no file holds."""
    return url.drivername == _SQLITE and url.database in {None, "", ":memory:"}


def create_engine(
    url: str, limits: EngineLimits | None = None, *, plan_anew: bool = False
) -> AsyncEngine:
    """Returns an engine; nothing is opened before its first use.

    SQLite: WAL with synchronous=FULL; every transaction is BEGIN IMMEDIATE, so that none fails
    half way because another one wrote. A database in memory has one connection, which waits its
    turn. A file that takes no writes is opened for reading; see `read_only`. PostgreSQL:
    synchronous_commit=on, and time limits on the server.

    Args:
        url: of the database.
        limits: of time, and of connections.
        plan_anew: let PostgreSQL plan a statement at each execution. A plan that is kept may be one
            for a table that was empty when it was made, so that a look for a few keys reads all
            rows until the server next counts them; a new one costs about 0.1 ms.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """
    limits = limits or EngineLimits()
    parsed = database_url(url)
    if parsed.drivername == _SQLITE:
        return _create_sqlite(parsed, limits)
    return _create_postgres(parsed, limits, "force_custom_plan" if plan_anew else "auto")


def create_sqlite_engine(url: str, limits: EngineLimits | None = None) -> Engine:
    """Returns an engine for SQLite that blocks; only for threads of the caller's own.

    Set as `create_engine` sets it. A transaction costs one change of thread in all, where the
    asyncio driver needs several for each statement.

    Raises:
        DefinitionError: the URL is not one of SQLite.
    """
    limits = limits or EngineLimits()
    parsed = database_url(url)
    if parsed.drivername != _SQLITE:
        raise DefinitionError(f"{parsed.drivername}:// is not SQLite; use sqlite:///FILE")
    engine = create_blocking_engine(
        parsed.set(drivername="sqlite"),
        poolclass=QueuePool,
        pool_size=_connections_of(parsed, limits),
        max_overflow=0,
        pool_timeout=limits.checkout_timeout_ms / 1_000,
    )
    _prepare_connections(engine, parsed, limits)
    return engine


def autocommit(engine: E) -> E:
    """Returns the same engine with every statement a transaction of its own.

    Right for single statements: one round trip, and on SQLite reads do not wait for writers.
    """
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_AUTOCOMMIT: True})
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _create_sqlite(url: URL, limits: EngineLimits) -> AsyncEngine:
    engine = create_async_engine(
        url,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=_connections_of(url, limits),
        max_overflow=0,
        pool_timeout=limits.checkout_timeout_ms / 1_000,
        connect_args={"async_creator_fn": _connect_sqlite},
    )
    _prepare_connections(engine.sync_engine, url, limits)
    return engine


async def _connect_sqlite(*names: Any, **options: Any) -> Any:
    """Opens a connection; where that fails or is cancelled, it ends with the connection's thread.

    The driver lets that thread go on by itself, and it fails aloud where the loop has ended meanwhile.
    """
    import aiosqlite

    connection = aiosqlite.connect(*names, **options)
    thread = connection._thread  # noqa: SLF001 - the driver names its thread nowhere else
    thread.daemon = True
    opening = asyncio.ensure_future(connection)
    try:
        return await asyncio.shield(opening)
    except BaseException:
        ended = asyncio.ensure_future(_end_opening(opening, connection, thread))
        while not ended.done():
            # One that is cancelled again ends no sooner: what is open would stay open.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([ended])
        ended.result()
        raise


async def _end_opening(opening: "asyncio.Future[Any]", connection: Any, thread: Any) -> None:
    await asyncio.wait([opening])
    if opening.exception() is None:
        await connection.close()
    await asyncio.to_thread(thread.join)


def _connections_of(url: URL, limits: EngineLimits) -> int:
    # A second connection to a database in memory would be a second, empty database.
    return 1 if is_in_memory(url) else limits.connections_max


def _prepare_connections(engine: Engine, url: URL, limits: EngineLimits) -> None:
    def on_connect(connection: Any, record: ConnectionPoolEntry) -> None:
        # The driver would begin transactions by rules of its own; on_begin does it instead.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {limits.busy_timeout_ms}")
        if _READ_ONLY not in record.info:
            mode = _write_ahead(cursor, limits)
            cursor.execute("PRAGMA synchronous = FULL")
            if mode != "wal" and not is_in_memory(url):
                raise DefinitionError(
                    f"SQLite cannot keep a write-ahead log next to {url.database} (journal mode"
                    f" {mode!r}); use a file on a local, writable disk"
                )
        cursor.close()

    def on_begin(connection: Connection) -> None:
        if not connection.get_execution_options().get(_AUTOCOMMIT):
            read_only = _READ_ONLY in connection.info
            connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    def on_error(context: ExceptionContext) -> None:
        # A call that is cancelled would have its connection thrown away, and the database with it.
        context.is_disconnect = False

    if is_in_memory(url):
        event.listen(engine, "handle_error", on_error)
    else:
        _prepare_file(engine, Path(url.database or ""))
    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)


def _write_ahead(cursor: Any, limits: EngineLimits) -> str:
    """Switches a file to the write-ahead log, and returns the journal mode that it has then.

    While another process writes to a file that has none yet, SQLite refuses the switch at once,
    without its busy timeout: so two that open a new file at one time. The begin of a transaction
    waits for the other's end.

    Raises:
        sqlite3.OperationalError: the file is still locked after the busy timeout.
    """
    until = time.monotonic() + limits.busy_timeout_ms / 1_000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return str(cursor.fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("COMMIT")


def _prepare_file(engine: Engine, file: Path) -> None:
    """Makes a new file with our modes, and opens one that takes no writes for reading."""

    def before_connect(
        _dialect: object, record: ConnectionPoolEntry, names: list[Any], options: dict[str, Any]
    ) -> None:
        record.info.pop(_READ_ONLY, None)
        if file.parent.is_dir() and not file.exists():
            # The log and the index of the database get the same mode from SQLite.
            os.close(os.open(file, os.O_CREAT | os.O_RDWR, FILE_MODE))
        elif why_read_only(file) is not None:
            record.info[_READ_ONLY] = read_only = ReadOnlyFile.of(file)
            names[0] = read_only.uri
            options["uri"] = True

    def on_checkout(_connection: object, record: ConnectionPoolEntry, _proxy: object) -> None:
        read_only: ReadOnlyFile | None = record.info.get(_READ_ONLY)
        if read_only is not None and read_only.is_outdated(file):
            raise DisconnectionError

    event.listen(engine, "do_connect", before_connect)
    event.listen(engine, "checkout", on_checkout)


def _create_postgres(url: URL, limits: EngineLimits, plans: str) -> AsyncEngine:
    return create_async_engine(
        url.difference_update_query(TLS_OPTIONS),
        pool_size=limits.connections_max,
        max_overflow=0,
        pool_timeout=limits.checkout_timeout_ms / 1_000,
        connect_args={
            **tls_arguments(url),
            "timeout": limits.connect_timeout_ms / 1_000,
            # A little after the server's own limit: it speaks only where the server is gone.
            "command_timeout": limits.statement_timeout_ms / 1_000 + 5,
            "server_settings": {
                "application_name": "headrace",
                "synchronous_commit": "on",
                "plan_cache_mode": plans,
                "statement_timeout": str(limits.statement_timeout_ms),
                "idle_in_transaction_session_timeout": str(limits.idle_transaction_ms),
            },
        },
    )
