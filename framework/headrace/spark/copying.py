"""
A task's share of a rebuild's result, copied into PostgreSQL by the task itself.

    batches ─▶ rows, versions, deleted keys ─▶ COPY, in one transaction, which notes the share
           └─▶ counts, and nothing else ─▶ the driver

Spark may run a task again, or twice at a time. What an attempt has copied is seen by nobody before
it commits; the first one that does has noted the share, and no other can. Sits between: the last
fold of a job, which yields records, and the tables of `staging`. Runs on executors. Must never know a
live table.
"""

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import asyncpg
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._projecting.staging import copy_share, enter_staging, is_noted, note_share
from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock, SystemClock
from headrace.errors import ProjectionError
from headrace.spark.fold import (
    DELETED,
    MISSING,
    ROW,
    TALLY,
    VERSION,
    Batches,
    Record,
    projection_of,
    records_to_arrow,
)
from headrace.spark.plan import FoldPlan, load_application
from headrace.spark.rows import RowCodec
from headrace.stores.engines import EngineLimits, create_engine, database_url

__all__ = ["CONNECTIONS_MAX", "LEFT_OUT", "SHARES", "Copying", "copy_out", "place_in"]

# Connections of all tasks together: a third of what PostgreSQL lets in by default, for more cores
# than most clusters have. A task holds one from its first rows to its last.
CONNECTIONS_MAX: Final = 32
# What a task counts: itself if it copied something, and sentences that it kept to itself.
SHARES: Final = "shares"
LEFT_OUT: Final = "missing"

# Sentences about missing versions that a task lets pass: a few of them are shown.
_SENTENCES_MAX: Final = 5
# From one look for a free connection to the next.
_LOOK_MS_MIN: Final = 20
_LOOK_MS_MAX: Final = 1_000
# How long a task waits for another one to be done with its connection: as long as one may take.
_TURN_MS_MAX: Final = 1_800_000
# One batch of rows takes seconds. Between two of them a task folds, for as long as it takes: a
# session whose task is gone holds up nobody but the next rebuild, which ends it.
_LIMITS: Final = EngineLimits(
    connections_max=1, statement_timeout_ms=300_000, idle_transaction_ms=1_800_000
)
_PORT: Final = 5432
_TOO_MANY_CONNECTIONS: Final = "53300"

# Kinds of records that no task passes on as they come.
_KEPT: Final = (ROW, VERSION, DELETED, MISSING)
_OTHERS: Final = ("kind", "key", "number")
_FAILURES: Final = (OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """Where the tasks of a job copy to; travels with it.

    Attributes:
        url: of the database, as every executor reaches it; not shown, it may hold a password.
        table: the shadow's.
        owner: of the shadow.
        connections_max: of all tasks together.
    """

    url: str = field(repr=False)
    table: str
    owner: str
    connections_max: int = CONNECTIONS_MAX


def copy_out(copying: Copying, plan: FoldPlan, share: int, batches: Batches) -> Batches:
    """Copies rows, versions and deleted keys; yields the records of other kinds.

    Args:
        copying: where to.
        plan: names the projection.
        share: which part of the result this is, the same for each attempt.
        batches: the records of the share.

    Raises:
        ProjectionError: the database cannot be reached from here, or refuses the rows.
    """
    application = load_application(plan.app, plan.folder)
    codec: RowCodec[Any] = RowCodec(projection_of(application, plan))
    sentences = left_out = 0
    with closing(_Share(copying, plan.projection, share)) as own:
        for batch in batches:
            kinds = batch["kind"]
            rows = batch.filter(pc.equal(kinds, ROW))["data"].to_pylist()
            others = batch.filter(pc.is_in(kinds, pa.array([VERSION, DELETED])))
            own.add(
                [codec.values(row) for row in rows],
                list(zip(*(others[name].to_pylist() for name in _OTHERS), strict=True)),
            )
            rest = batch.filter(pc.invert(pc.is_in(kinds, pa.array(_KEPT))))
            if rest.num_rows:
                yield rest
            missing = batch.filter(pc.equal(kinds, MISSING))
            if missing.num_rows:
                some = missing.slice(0, _SENTENCES_MAX - sentences)
                sentences += some.num_rows
                left_out += missing.num_rows - some.num_rows
                yield some
        counts = {SHARES: int(own.commit()), LEFT_OUT: left_out}
    yield records_to_arrow(
        [Record.known(TALLY, name, number=count) for name, count in counts.items() if count]
    )


def place_in(url: str) -> str:
    """Returns where the database of a URL is, without credentials."""
    parsed = database_url(url)
    host = str(parsed.host or parsed.query.get("host", "localhost"))
    return host if host.startswith("/") else f"{host}:{parsed.port or _PORT}"


class _Share:
    """One attempt at a share: a connection and a transaction, from the first rows on.

    Args:
        copying: where to.
        projection: its name, for errors.
        share: which one.
        clock: bounds the wait for a connection.
    """

    def __init__(
        self, copying: Copying, projection: str, share: int, clock: Clock | None = None
    ) -> None:
        self._copying = copying
        self._projection = projection
        self._share = share
        self._clock = clock or SystemClock()
        self._runner = asyncio.Runner()
        self._engine = create_engine(copying.url, _LIMITS)
        self._connection: AsyncConnection | None = None
        self._done = False
        self._rows = 0

    def add(self, rows: Sequence[tuple[Any, ...]], others: Sequence[tuple[str, str, int]]) -> None:
        """Copies some rows, and some others."""
        if rows or others:
            self._run(self._add(rows, others))

    def commit(self) -> bool:
        """Commits, unless another attempt has; returns whether there was anything to copy."""
        if self._connection is not None and not self._done:
            self._run(self._commit(self._connection))
        return self._connection is not None

    def close(self) -> None:
        """Ends the connection; what was not committed is gone."""
        try:
            self._runner.run(self._close())
        finally:
            self._runner.close()

    async def _add(
        self, rows: Sequence[tuple[Any, ...]], others: Sequence[tuple[str, str, int]]
    ) -> None:
        if self._connection is None:
            self._connection = await self._enter()
            self._done = await is_noted(self._connection, self._copying.table, self._share)
        if not self._done:
            await copy_share(self._connection, self._copying.table, rows, others)
            self._rows += len(rows)

    async def _commit(self, connection: AsyncConnection) -> None:
        copying = self._copying
        if await note_share(connection, copying.table, copying.owner, self._share, self._rows):
            await connection.commit()
        else:
            await connection.rollback()

    async def _enter(self) -> AsyncConnection:
        """Returns a connection, when there is one for this task."""
        backoff = Backoff(ms_min=_LOOK_MS_MIN, ms_max=_LOOK_MS_MAX)
        until_ms, attempt = self._clock.monotonic_ms() + _TURN_MS_MAX, 0
        while True:
            connection = await self._connect()
            if connection is not None:
                copying = self._copying
                if await enter_staging(connection, copying.table, copying.connections_max):
                    return connection
                # It must not be kept while others wait for one, nor count as one.
                await connection.invalidate()
                await connection.close()
            if self._clock.monotonic_ms() > until_ms:
                raise ProjectionError(
                    f"projection {self._projection}: no connection to the database at"
                    f" {place_in(self._copying.url)} became free for {_TURN_MS_MAX // 60_000}"
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
                f" {place_in(self._copying.url)}: {type(error).__name__}: {_sentence(error)};"
                f" this was tried on {socket.gethostname()}, and every Spark executor copies its"
                " rows there itself: name the database by an address that all of them reach, and"
                " let them in"
            ) from error

    async def _close(self) -> None:
        if self._connection is not None:
            # A rollback of what was not committed; or the connection is gone, which is one too.
            with suppress(*_FAILURES):
                await self._connection.close()
        await self._engine.dispose()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._runner.run(work)
        except _FAILURES as error:
            raise ProjectionError(
                f"projection {self._projection}: copying rows into {self._copying.table} failed on"
                f" {socket.gethostname()}: {type(error).__name__}: {_sentence(error)}"
            ) from error


def _sentence(error: BaseException) -> str:
    """Returns what the database says, on one line and without the statement."""
    said = str(getattr(error, "orig", error))
    return next(iter(said.splitlines()), "")
