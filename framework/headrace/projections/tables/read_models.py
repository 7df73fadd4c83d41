"""
The database of read models: tables, generations, offsets and readers of every projection.

Used by everything that runs, rebuilds, verifies or reads projections. It owns the engine, and begins and
ends every transaction except those of batches. It knows neither subscriptions nor folds.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    event,
    exists,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headrace._runtime.clock import Clock, SystemClock
from headrace.errors import ProjectionError, ProjectionNotFound
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import generations
from headrace.projections.tables.contents import Target, read_offsets, write_offsets, write_versions
from headrace.projections.tables.generations import ProjectionState
from headrace.projections.tables.index.statements import create_indexes
from headrace.projections.tables.reader import ProjectionReader
from headrace.projections.tables.rebuild_locks import RebuildLocks
from headrace.projections.tables.row_tables import build_table, physical_name
from headrace.stores.database.engines import (
    EngineLimits,
    autocommit,
    create_engine,
    create_sqlite_engine,
    database_url,
    is_in_memory,
)
from headrace.stores.database.parked import ParkedStore
from headrace.stores.database.schema import prepare
from headrace.stores.database.tables import parked_rows, projection_versions
from headrace.transports.base import QueueId

__all__ = ["ProjectionReader", "ProjectionState", "ReadModels"]

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

# How often a waiting caller checks whether a projection has caught up: no person notices the delay, and
# no database the load.
_WAIT_POLL_MS: Final = 10


class ReadModels:
    """The tables of projections in one database.

    All methods may be called concurrently; the first one looks at the schema, which must be this
    version's (`SchemaOutOfDate`), and gives a new SQLite file its tables. Failures of the database itself are raised as they are
    (`sqlalchemy.exc.SQLAlchemyError`, `OSError`).

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.
        clock: tells how old a rebuild is and how long a wait lasts.
        limits: of the connections.

    Attributes:
        locks: of the rebuilds that this object's owner runs.
    """

    def __init__(
        self, url: str, *, clock: Clock | None = None, limits: EngineLimits | None = None
    ) -> None:
        self.url = url
        self._clock = clock or SystemClock()
        # Its tables begin empty and are looked into by lists of keys.
        self._engine = create_engine(url, limits, plan_anew=True)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine.sync_engine, "invalidate", _roll_back)
        self._reading = autocommit(self._engine)
        self.locks = RebuildLocks(self._engine)
        # The databases that no second connection can see, and PostgreSQL, have none.
        self._writer = _blocking_engine(url, limits)
        self._write_thread = ThreadPoolExecutor(1, "headrace-read-models")
        self._preparing = asyncio.Lock()  # so that the schema is looked at once
        self._prepared = False
        # A table per projection and generation asked for: SQLAlchemy caches statements by table.
        self._tables: dict[tuple[Projection[Any], str], Table] = {}

    @property
    def engine(self) -> AsyncEngine:
        """The engine; every transaction on it can write."""
        return self._engine

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A connection in a write transaction, committed when the block ends without an error.

        Raises:
            SchemaOutOfDate: the database's schema is behind; says what to run.
        """
        await self._prepare()
        async with self._engine.begin() as connection:
            yield connection

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """Runs work in one write transaction, committed unless it raises; returns its result.

        On an SQLite file it runs in a thread of its own, one after the other: a change of thread
        per transaction, where `begin` needs several per statement. Cancelling the caller does not
        end it.

        Raises:
            SchemaOutOfDate: the database's schema is behind; says what to run.
        """
        await self._prepare()
        if self._writer is None:
            async with self._engine.begin() as connection:
                return await connection.run_sync(work)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._write_thread, _run, self._writer, work)

    async def run_alone(self, work: Callable[[Connection], T]) -> T:
        """Runs work whose every statement is a transaction of its own; returns its result.

        Raises:
            SchemaOutOfDate: the database's schema is behind; says what to run.
        """
        async with self._read() as connection:
            return await connection.run_sync(work)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Yields a connection whose reads all see one moment; it does not block writers."""
        await self._prepare()
        if self._engine.dialect.name == "sqlite":
            async with self._reading.connect() as connection:
                await connection.exec_driver_sql("BEGIN")
                yield connection
        else:
            async with self._engine.connect() as connection:
                await connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
                yield connection

    async def ensure(self, projection: Projection[Any]) -> None:
        """Sets up a projection's first table, its view and its row, unless they are there.

        Raises:
            ProjectionError: the projection's columns have changed; says what to run.
            DefinitionError: the name is one of Headrace's own tables.
        """
        # Where all is there, nothing is written: the disk may take no writes.
        if not await self.is_set_up(projection):
            async with self.begin() as connection:
                await generations.ensure(connection, projection)

    async def is_set_up(self, projection: Projection[Any]) -> bool:
        """Returns whether a projection's first table is there; raises as `ensure`."""
        async with self._read() as connection:
            return await generations.is_set_up(connection, projection)

    async def state(self, name: str) -> ProjectionState:
        """Returns the stored state of a projection; raises `ProjectionNotFound`."""
        found = await self._find_state(name)
        if found is None:
            raise ProjectionNotFound(f"projection {name} has no tables in {self._name} yet")
        return found

    async def generation(self, name: str) -> int:
        """Returns the live generation's number; raises `ProjectionNotFound`."""
        return (await self.state(name)).generation

    async def parked(self, name: str) -> int:
        """Returns how many aggregates wait behind letters of the live generation."""
        parked = ParkedStore(name, await self._live(name))
        async with self._read() as connection:
            return await connection.run_sync(parked.count)

    async def offsets(self, name: str, generation: int) -> dict[QueueId, int]:
        """Returns the next offset per queue that a generation will apply."""
        async with self._read() as connection:
            return await read_offsets(connection, name, generation)

    def table_for(self, projection: Projection[Any], generation: int) -> Table:
        """Returns the table of a generation."""
        return self._table(projection, physical_name(projection.name, generation))

    def target(self, projection: Projection[R], generation: int) -> Target[R]:
        """Returns a generation as `apply_batch` and its writers want it."""
        return Target(
            projection=projection,
            generation=generation,
            table=self.table_for(projection, generation),
        )

    def reader(
        self, projection: Projection[R], *, generation: int | None = None
    ) -> ProjectionReader[R]:
        """Returns a reader of the live generation, also after a switch, or of the one given."""
        name = projection.name if generation is None else physical_name(projection.name, generation)
        return ProjectionReader(self._reading, projection, self._table(projection, name))

    async def begin_shadow(self, projection: Projection[Any], owner: str, **choices: Any) -> int:
        """Creates an empty shadow table to rebuild into and returns its generation.

        Tables that no generation uses any more are dropped on the way.

        Args:
            projection: whose fields the table gets; they may differ from the live ones.
            owner: unique per rebuild, 64 characters at most.
            choices: `keep_finished` and `as_of`, as of `generations.begin_shadow`.

        Raises:
            RebuildRunning: another rebuild began less than 6 hours ago and has not ended.
        """
        async with self.begin() as connection:
            return await generations.begin_shadow(
                connection, projection, owner, self._clock.now(), **choices
            )

    async def switch(self, projection: Projection[Any], generation: int, owner: str) -> None:
        """Makes a shadow live, in one transaction: number, view, previous generation.

        The live runner notices at its next batch and goes on from the shadow's offsets. What was
        the previous generation until now is dropped afterwards.

        Raises:
            ProjectionError: the shadow is no longer this owner's.
        """
        async with self.begin() as connection:
            await generations.switch(connection, projection, generation, owner)
        async with self.begin() as connection:
            await generations.drop_leftovers(connection, projection.name)

    async def rollback(self, projection: Projection[Any]) -> int:
        """Makes the previous generation live again and returns its number.

        It goes on from its own offsets, so it catches up with what it missed.

        Raises:
            ProjectionError: there is none, or its columns are not the projection's.
        """
        async with self.begin() as connection:
            return await generations.rollback(connection, projection)

    async def pause(self, name: str) -> None:
        """Lets nothing more be applied to the live generation, until `resume`; outlives restarts.

        Its runner notices at its next batch, or within a second. Letters may be taken up meanwhile.

        Raises:
            ProjectionNotFound: it was never set up.
        """
        async with self.begin() as connection:
            state = await generations.lock_state(connection, name)
            if state.paused_at is None:
                await generations.set_paused(connection, name, self._clock.now())

    async def resume(self, name: str) -> None:
        """Lets a paused projection go on where it stands; nothing happens to one that is not.

        Raises:
            ProjectionNotFound: it was never set up.
        """
        async with self.begin() as connection:
            await generations.set_paused(connection, name, None)

    async def reset(
        self,
        projection: Projection[Any],
        owner: str,
        *,
        offsets: Mapping[QueueId, int] | None = None,
        versions: Mapping[str, int] | None = None,
        note: Callable[[Connection, int], object] | None = None,
    ) -> int:
        """Starts over with an empty table, which is live at once; returns its generation.

        The table from before is kept for `rollback`.

        Args:
            projection: which one.
            owner: unique per reset, 64 characters at most.
            offsets: per queue the offset to go on from; the topic's beginning by default.
            versions: the last version of each aggregate before those offsets, all of them.
            note: called in the transaction with the generation, for what else is noted of it.

        Raises:
            RebuildRunning: a rebuild is under way.
        """
        async with self.begin() as connection:
            generation = await generations.begin_shadow(
                connection, projection, owner, self._clock.now()
            )
            target = self.target(projection, generation)
            await connection.run_sync(create_indexes, projection, target.table.name)
            await write_offsets(connection, target, offsets or {})
            await write_versions(connection, target, versions or {})
            if note is not None:
                await connection.run_sync(note, generation)
            await generations.switch(connection, projection, generation, owner)
            await generations.drop_leftovers(connection, projection.name)
        return generation

    async def drop_generation(self, name: str, generation: int) -> None:
        """Drops a generation's table, offsets and versions.

        Raises:
            ProjectionError: it is live, or being built.
        """
        async with self.begin() as connection:
            await generations.drop_generation(connection, name, generation)

    async def abandon_shadow(self, name: str, generation: int, owner: str) -> None:
        """Drops a shadow that its owner gives up; nothing happens if it is no longer the owner's."""
        async with self.begin() as connection:
            await generations.abandon_shadow(connection, name, generation, owner)

    async def wait_for_offsets(
        self,
        projection: Projection[Any],
        targets: Mapping[QueueId, int],
        *,
        timeout_ms: int,
        generation: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Waits until a generation has applied each queue up to an offset, exclusive.

        Works from any process.

        Args:
            projection: which one.
            targets: per queue the next offset to reach, such as the queue's end.
            timeout_ms: how long to wait at most.
            generation: which generation; None: whichever is live.
            check: called at every look; may raise to end the wait.

        Raises:
            ProjectionError: it has not caught up in time; says what is missing.
        """
        behind: dict[QueueId, int] = {}

        async def reached() -> bool:
            if check is not None:
                check()
            number = generation or await self._live(projection.name)
            offsets = await self.offsets(projection.name, number)
            behind.clear()
            behind.update(
                (queue, target - offsets.get(queue, 0))
                for queue, target in targets.items()
                if offsets.get(queue, 0) < target
            )
            return not behind

        if not await self._wait(reached, timeout_ms):
            lag = ", ".join(f"{topic}/{number}: {n}" for (topic, number), n in behind.items())
            raise ProjectionError(
                f"projection {projection.name} has not caught up within {timeout_ms} ms;"
                f" messages behind: {lag}"
            )

    async def wait_for_version(
        self, projection: Projection[Any], aggregate_id: str, version: int, *, timeout_ms: int
    ) -> None:
        """Waits until the live generation has folded a version of an aggregate.

        Raises:
            ProjectionError: it has not in time; or it has parked the aggregate, which raises at once.
        """

        async def reached() -> bool:
            query = _standing(projection.name, await self._live(projection.name), aggregate_id)
            async with self._read() as connection:
                folded, parked = (await connection.execute(query)).one()
            if (folded or 0) >= version:
                return True
            if parked:
                raise ProjectionError(
                    f"projection {projection.name} has parked {aggregate_id}; `headrace parked"
                    f" show --processor projection:{projection.name}` tells why"
                )
            return False

        if not await self._wait(reached, timeout_ms):
            raise ProjectionError(
                f"projection {projection.name} has not folded version {version} of {aggregate_id}"
                f" within {timeout_ms} ms"
            )

    async def aclose(self) -> None:
        """Finishes what is under way and closes the connections."""
        await asyncio.to_thread(self._close_writer)
        await self.locks.aclose()
        await self._engine.dispose()

    def _close_writer(self) -> None:
        self._write_thread.shutdown()
        if self._writer is not None:
            self._writer.dispose()

    @property
    def _name(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    async def _prepare(self) -> None:
        """Looks at the schema, once; a new SQLite file gets it."""
        async with self._preparing:
            if not self._prepared:
                await prepare(self._engine)
                self._prepared = True

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[AsyncConnection]:
        await self._prepare()
        async with self._reading.connect() as connection:
            yield connection

    async def _find_state(self, name: str) -> ProjectionState | None:
        async with self._read() as connection:
            return await generations.find_state(connection, name)

    async def _live(self, name: str) -> int:
        """Returns the live generation; 0, which has no rows, before the projection is set up."""
        state = await self._find_state(name)
        return 0 if state is None else state.generation

    def _table(self, projection: Projection[Any], name: str) -> Table:
        key = (projection, name)
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = build_table(projection, name)
        return table

    async def _wait(self, reached: Callable[[], Awaitable[bool]], timeout_ms: int) -> bool:
        deadline = self._clock.monotonic_ms() + timeout_ms
        while not await reached():
            if self._clock.monotonic_ms() >= deadline:
                return False
            await asyncio.sleep(_WAIT_POLL_MS / 1_000)
        return True


def _standing(name: str, generation: int, aggregate_id: str) -> Select[int | None, bool]:
    """Selects the version of an aggregate that was folded, and whether the aggregate is parked."""

    def of(columns: Any) -> tuple[ColumnElement[bool], ...]:
        return (
            columns.name == name,
            columns.generation == generation,
            columns.aggregate_id == aggregate_id,
        )

    versions = projection_versions.c
    folded = select(versions.version).where(*of(versions)).scalar_subquery()
    return select(folded, exists().where(*of(parked_rows.c)))


def _roll_back(connection: Any, _record: object, _cause: object) -> None:
    """Ends the transaction of a connection that is about to be closed.

    The statement that a cancelled task leaves behind keeps a closed SQLite connection, and with it
    the write lock, until the interpreter happens to collect it.
    """
    with suppress(Exception):
        connection.rollback()


def _blocking_engine(url: str, limits: EngineLimits | None) -> Engine | None:
    parsed = database_url(url)
    if parsed.get_backend_name() != "sqlite" or is_in_memory(parsed):
        return None
    return create_sqlite_engine(url, replace(limits or EngineLimits(), connections_max=1))


def _run(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.begin() as connection:
        return work(connection)
