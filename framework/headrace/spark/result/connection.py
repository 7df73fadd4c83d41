"""
A task's own connection to the database of read models, of which all tasks together have so many.

Used by tasks that copy or read rows; uses the engine. It runs on executors. It must not know a row.
"""

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import asyncpg
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock, SystemClock
from headrace.errors import ProjectionError
from headrace.projections.tables.shadow_load import enter_staging
from headrace.stores.database.engines import EngineLimits, create_engine, database_url

__all__ = ["CONNECTIONS_MAX", "TaskConnection", "place_in"]

T = TypeVar("T")

# Connections of all tasks together: a third of what PostgreSQL lets in by default, for more cores
# than most clusters have. A task holds one from its first rows to its last.
CONNECTIONS_MAX: Final = 32

# From one look for a free connection to the next.
_LOOK_MS_MIN: Final = 20
_LOOK_MS_MAX: Final = 1_000
# How long a task waits for another one to be done with its connection: as long as one may take.
_TURN_MS_MAX: Final = 1_800_000
# One batch of rows takes seconds. Between two of them a task folds, for as long as it takes: a
# session whose task is gone holds up only the next rebuild, which ends it.
_LIMITS: Final = EngineLimits(
    connections_max=1, statement_timeout_ms=300_000, idle_transaction_ms=1_800_000
)
_PORT: Final = 5432
_TOO_MANY_CONNECTIONS: Final = "53300"
_FAILURES: Final = (OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError)


def place_in(url: str) -> str:
    """Returns where the database of a URL is, without credentials."""
    parsed = database_url(url)
    host = str(parsed.host or parsed.query.get("host", "localhost"))
    return host if host.startswith("/") else f"{host}:{parsed.port or _PORT}"


class TaskConnection:
    """A connection that is opened when there is one for this task, and closed with its transaction.

    Args:
        url: of the database.
        table: the shadow's.
        projection: its name, for errors.
        doing: what fails where something fails, such as "copying rows into accounts__2".
        connections_max: of all tasks together.
        clock: bounds the wait for a connection.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        projection: str,
        doing: str,
        connections_max: int,
        clock: Clock | None = None,
    ) -> None:
        self._url = url
        self._table = table
        self._projection = projection
        self._doing = doing
        self._connections_max = connections_max
        self._clock = clock or SystemClock()
        self._runner = asyncio.Runner()
        self._engine = create_engine(url, _LIMITS)
        self._connection: AsyncConnection | None = None

    def close(self) -> None:
        """Ends the connection; what was not committed is gone."""
        try:
            self._runner.run(self._close())
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something in this thread, and names it where the database refuses it.

        Raises:
            ProjectionError: the database refuses, or the connection is lost.
        """
        try:
            return self._runner.run(work)
        except _FAILURES as error:
            raise ProjectionError(
                f"projection {self._projection}: {self._doing} failed on"
                f" {socket.gethostname()}: {type(error).__name__}: {_sentence(error)}"
            ) from error

    async def enter(self) -> AsyncConnection:
        """Returns the connection, when there is one for this task.

        Raises:
            ProjectionError: there is none, or the database cannot be reached from here.
        """
        if self._connection is not None:
            return self._connection
        backoff = Backoff(ms_min=_LOOK_MS_MIN, ms_max=_LOOK_MS_MAX)
        until_ms, attempt = self._clock.monotonic_ms() + _TURN_MS_MAX, 0
        while True:
            connection = await self._connect()
            if connection is not None:
                if await enter_staging(connection, self._table, self._connections_max):
                    self._connection = connection
                    return connection
                # It must not be kept while others wait for one, nor count as one.
                await connection.invalidate()
                await connection.close()
            if self._clock.monotonic_ms() > until_ms:
                raise ProjectionError(
                    f"projection {self._projection}: no connection to the database at"
                    f" {place_in(self._url)} became free for {_TURN_MS_MAX // 60_000}"
                    " minutes; allow more of them, or run on fewer cores"
                )
            attempt += 1
            await backoff.pause(attempt)

    async def _connect(self) -> AsyncConnection | None:
        """Returns a connection; None where the server has no more of them."""
        try:
            return await self._engine.connect()
        except _FAILURES as error:
            sqlstate = getattr(getattr(error, "orig", None), "sqlstate", None)
            if sqlstate == _TOO_MANY_CONNECTIONS:
                return None
            raise ProjectionError(
                f"projection {self._projection}: no connection to the database of read models at"
                f" {place_in(self._url)}: {type(error).__name__}: {_sentence(error)};"
                f" this was tried on {socket.gethostname()}, and every Spark executor reads and"
                " writes its rows there itself: name the database by an address that all of them reach, and"
                " let them in"
            ) from error

    async def _close(self) -> None:
        if self._connection is not None:
            # A rollback of what was not committed; or the connection is gone, which is one too.
            with suppress(*_FAILURES):
                await self._connection.close()
        await self._engine.dispose()


def _sentence(error: BaseException) -> str:
    """Returns what the database says, on one line and without the statement."""
    said = str(getattr(error, "orig", error))
    return next(iter(said.splitlines()), "")
