"""
The generations of a projection: which one is live, which one is being built, and the switch.

    ensure ──▶ 1 live
    begin_shadow ──▶ 1 live, 2 shadow ──switch──▶ 2 live, 1 previous ──rollback──▶ 1 live, 2 previous
                              └──abandon──▶ 1 live

Services of another version than the live one's fold events into a generation of their own, which is
followed: see `succession`.

Every function takes a connection in a write transaction and locks the projection's row first, as
the batches of the live runner do: a switch falls between two batches, never into one.

Used by `ReadModels` and by rebuilds, which begin and commit the transactions.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.ddl import CreateTable

from headrace.errors import DefinitionError, ProjectionError, RebuildRunning
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.generation_tables import (
    check_free,
    drop,
    drop_others,
    find_all,
)
from headrace.projections.tables.index.statements import create_indexes
from headrace.projections.tables.origins import (
    GenerationOrigin,
    ProjectionState,
    check_origin,
    find_state,
    get_state,
    lock_state,
    lock_state_now,
    note_origin,
    note_use,
    origin_of,
    origins_of,
)
from headrace.projections.tables.row_tables import (
    build_table,
    create_view,
    drop_view,
    fingerprint,
    fits,
    physical_name,
)
from headrace.projections.tables.shadow_load import drop_staging, find_plan, take_staging
from headrace.stores.database.tables import (
    metadata,
    projections,
)

__all__ = [
    "REBUILD_STALE_MS",
    "ProjectionState",
    "abandon_shadow",
    "adopt_shadow",
    "begin_shadow",
    "create",
    "drop_generation",
    "drop_leftovers",
    "ensure",
    "find_finished",
    "find_state",
    "get_state",
    "go_live",
    "is_set_up",
    "lock_state",
    "lock_state_now",
    "reopen_shadow",
    "rollback",
    "running",
    "set_paused",
    "switch",
]

# A rebuild older than this has died without a word; the next one may clear it away. Longer than a
# rebuild of a billion events should take.
REBUILD_STALE_MS: Final = 6 * 3_600_000

_FIRST_GENERATION: Final = 1


async def is_set_up(connection: AsyncConnection, projection: Projection[Any]) -> bool:
    """Returns whether generation 1 and the view are there; writes nothing.

    Raises:
        ProjectionError, DefinitionError: as `ensure`.
    """
    name = projection.name
    if name in metadata.tables:
        raise DefinitionError(f"projection {name}: that is a table of Headrace's own; rename it")
    state = await find_state(connection, name)
    if state is not None:
        _check_columns(state, projection)
    return state is not None


async def ensure(connection: AsyncConnection, projection: Projection[Any]) -> None:
    """Sets up generation 1 and the view unless they are there, of whichever version.

    Raises:
        ProjectionError: the version is the live one's, and the columns are no longer those of the live generation, or something else
            has the projection's name.
        DefinitionError: the name is one of Headrace's own tables.
    """
    if await is_set_up(connection, projection):
        return
    name, mark = projection.name, fingerprint(projection)
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    created = await connection.execute(
        dialect.insert(projections)
        .values(name=name, generation=_FIRST_GENERATION, fingerprint=mark)
        .on_conflict_do_nothing()
    )
    if created.rowcount == 1:
        table = build_table(projection, physical_name(name, _FIRST_GENERATION))
        await connection.run_sync(check_free, name, table.name)
        await connection.execute(CreateTable(table))
        await connection.run_sync(create_indexes, projection, table.name)
        await connection.execute(create_view(name, table))
        origin = GenerationOrigin(version=projection.version, followed=True, by_command=True)
        await note_origin(connection, name, _FIRST_GENERATION, origin)
        return
    _check_columns(await lock_state(connection, name), projection)


def _check_columns(state: ProjectionState, projection: Projection[Any]) -> None:
    if state.version == projection.version and state.fingerprint != fingerprint(projection):
        raise ProjectionError(
            f"projection {projection.name}: the fields of {projection.row.__name__} have changed;"
            f" run `headrace projection rebuild {projection.name}` to rebuild its table"
        )


async def begin_shadow(
    connection: AsyncConnection,
    projection: Projection[Any],
    owner: str,
    now: datetime,
    *,
    keep_finished: bool = False,
    as_of: str | None = None,
) -> int:
    """Creates the next generation's empty table and returns its number.

    Args:
        connection: in a write transaction.
        projection: whose table.
        owner: who builds it.
        now: since when.
        keep_finished: leave the newest table alone that a rebuild has finished; others that are not in
            use are dropped.
        as_of: what a person asked for; the table will never go live, and no rebuild drops it.

    Raises:
        RebuildRunning: another rebuild is under way, by what is stored, and not stale.
        ProjectionNotFound: the projection was never set up.
        ProjectionError: it has handlers, which would meet events a second time.
    """
    if projection.has_handlers:
        raise ProjectionError(
            f"projection {projection.name} writes to tables of your own, which a rebuild would fill"
            " twice; move what is to be rebuilt into a projection without @with_session"
        )
    state = await lock_state(connection, projection.name)
    started_at = state.rebuild_started_at
    stale = timedelta(milliseconds=REBUILD_STALE_MS)
    if started_at is not None and now - started_at < stale:
        raise running(state)
    found = await find_all(connection, state.name)
    finished = None
    if keep_finished:
        finished = await find_finished(connection, state, projection.version)
    kept = state.used(found) | {finished}
    dead = state.rebuild_generation
    if dead in found and not _is_served(state, found[dead]):
        kept -= {dead}
    origin = GenerationOrigin(version=projection.version, as_of=as_of)
    generation = await create(connection, projection, state, origin)
    await drop_others(connection, state.name, kept | {generation})
    await _update(
        connection,
        state.name,
        rebuild_generation=generation,
        rebuild_owner=owner,
        rebuild_started_at=now,
    )
    return generation


async def create(
    connection: AsyncConnection,
    projection: Projection[Any],
    state: ProjectionState,
    origin: GenerationOrigin,
) -> int:
    """Creates the next generation's empty table and returns its number."""
    numbers = (await find_all(connection, state.name)).keys() | state.kept
    generation = max(numbers) + 1
    table = build_table(projection, physical_name(state.name, generation))
    await connection.execute(CreateTable(table))
    await note_origin(connection, state.name, generation, origin)
    return generation


def running(state: ProjectionState) -> RebuildRunning:
    """Returns the error that says who is rebuilding a projection."""
    return RebuildRunning(
        f"projection {state.name}: {state.rebuild_owner} has been rebuilding it since"
        f" {state.rebuild_started_at:%Y-%m-%d %H:%M:%S} UTC; wait for it, or use --take-over"
    )


async def switch(
    connection: AsyncConnection, projection: Projection[Any], generation: int, owner: str
) -> None:
    """Makes a shadow the live generation and the live one the previous.

    Raises:
        ProjectionError: this rebuild no longer owns the shadow.
    """
    state = await lock_state(connection, projection.name)
    if (state.rebuild_generation, state.rebuild_owner) != (generation, owner):
        raise ProjectionError(
            f"projection {state.name}: generation {generation} is no longer the shadow that"
            f" {owner} builds; run the rebuild again"
        )
    await go_live(connection, projection, state, generation)
    await _update(
        connection,
        state.name,
        rebuild_generation=None,
        rebuild_owner=None,
        rebuild_started_at=None,
    )


async def rollback(connection: AsyncConnection, projection: Projection[Any]) -> int:
    """Swaps the live and the previous generation; returns the live one.

    Raises:
        ProjectionError: there is no previous generation, or its columns are not the projection's.
    """
    state = await lock_state(connection, projection.name)
    previous = state.previous_generation
    if previous is None:
        raise ProjectionError(f"projection {state.name} has no previous generation to go back to")
    table = build_table(projection, physical_name(state.name, previous))
    if not await connection.run_sync(fits, table):
        raise ProjectionError(
            f"projection {state.name}: generation {previous} does not have the fields of"
            f" {projection.row.__name__}; deploy the code it was built with, then roll back"
        )
    await go_live(connection, projection, state, previous)
    return previous


async def abandon_shadow(
    connection: AsyncConnection, name: str, generation: int, owner: str
) -> None:
    """Drops a shadow that its owner gives up, unless services fold events into it.

    Nothing happens if it is no longer the owner's.
    """
    state = await lock_state(connection, name)
    if (state.rebuild_generation, state.rebuild_owner) != (generation, owner):
        return
    await _update(
        connection, name, rebuild_generation=None, rebuild_owner=None, rebuild_started_at=None
    )
    if not _is_served(state, await origin_of(connection, name, generation)):
        await drop(connection, name, generation)


def _is_served(state: ProjectionState, origin: GenerationOrigin) -> bool:
    """Whether services of another version than the live one fold events into a generation."""
    return origin.followed and origin.version != state.version


async def adopt_shadow(
    connection: AsyncConnection,
    projection: Projection[Any],
    generation: int,
    *,
    owners: tuple[str, str],
    staged: bool = False,
) -> bool:
    """Gives a shadow from the first owner to the second, who goes on with it; False: it cannot be.

    It must still be the first one's and have the projection's columns.

    Args:
        connection: in a write transaction.
        projection: whose shadow.
        generation: its number.
        owners: the first and the second.
        staged: the second goes on with shares that were copied next to the shadow, which must be there
            with their plan; in place of with the shadow's own rows.
    """
    before, after = owners
    state = await lock_state(connection, projection.name)
    if (state.rebuild_generation, state.rebuild_owner) != (generation, before):
        return False
    table = build_table(projection, physical_name(state.name, generation))
    origin = await origin_of(connection, state.name, generation)
    if origin.version != projection.version or not await connection.run_sync(fits, table):
        return False
    on_postgresql = connection.dialect.name == "postgresql"
    if staged:
        if not on_postgresql or await find_plan(connection, table.name) is None:
            return False
        await take_staging(connection, table.name, after)
    elif on_postgresql:
        await drop_staging(connection, table.name)
    await _update(connection, state.name, rebuild_owner=after)
    return True


async def find_finished(
    connection: AsyncConnection, state: ProjectionState, version: int
) -> int | None:
    """Returns the generation of a version that may be put in place, if there is one.

    That is one that a rebuild has finished and not put in place, or that services fold events into.
    Numbers only grow, and a rebuild gives its own up only with its table, or finished.
    """
    found = await find_all(connection, state.name)
    used = {state.generation, state.rebuild_generation}
    newest = max(
        (
            number
            for number, origin in found.items()
            if origin.as_of is None and origin.version == version and number not in used
        ),
        default=None,
    )
    # Of the live version, older ones are what a switch has left, and the previous one is for `rollback`.
    if newest is not None and version == state.version and newest <= max(state.kept):
        return None
    return newest


async def reopen_shadow(
    connection: AsyncConnection,
    projection: Projection[Any],
    generation: int,
    owner: str,
    now: datetime,
) -> None:
    """Makes a finished generation a shadow again, whose owner brings it up to date.

    Raises:
        ProjectionError: its columns are not the projection's.
    """
    name = projection.name
    table = build_table(projection, physical_name(name, generation))
    if not await connection.run_sync(fits, table):
        raise ProjectionError(
            f"projection {name}: the rebuilt table {table.name} does not have the fields of"
            f" {projection.row.__name__}; run `headrace projection rebuild {name}`"
        )
    await check_origin(connection, projection, generation)
    await _update(
        connection, name, rebuild_generation=generation, rebuild_owner=owner, rebuild_started_at=now
    )


async def set_paused(connection: AsyncConnection, name: str, paused_at: datetime | None) -> None:
    """Notes since when a projection is paused; None: it goes on.

    Raises:
        ProjectionNotFound: it was never set up.
    """
    await lock_state(connection, name)
    await _update(connection, name, paused_at=paused_at)


async def drop_generation(connection: AsyncConnection, name: str, generation: int) -> None:
    """Drops a generation's table, offsets, versions and letters.

    Raises:
        ProjectionError: it is live, or being built.
    """
    state = await lock_state(connection, name)
    if generation in {state.generation, state.rebuild_generation}:
        raise ProjectionError(f"projection {name}: generation {generation} is in use")
    if generation == state.previous_generation:
        await _update(connection, name, previous_generation=None)
    await drop(connection, name, generation)


async def drop_leftovers(connection: AsyncConnection, name: str) -> None:
    """Drops every generation that is not in use and not as of a moment."""
    state = await lock_state(connection, name)
    await drop_others(connection, name, state.used(await origins_of(connection, name)))


async def go_live(
    connection: AsyncConnection,
    projection: Projection[Any],
    state: ProjectionState,
    generation: int,
) -> None:
    """Makes a generation the live one and the live one the previous; the projection is locked."""
    mark = fingerprint(projection)
    table = build_table(projection, physical_name(state.name, generation))
    await check_origin(connection, projection, generation)
    # Replacing keeps the grants and the views that users put on top, but only PostgreSQL can, and
    # only where the columns stay.
    replace = connection.dialect.name == "postgresql" and (
        projection.has_columns_of(state.fingerprint)
    )
    if not replace:
        await connection.execute(drop_view(state.name))
    await connection.execute(create_view(state.name, table, replace=replace))
    await _update(
        connection,
        state.name,
        generation=generation,
        previous_generation=state.generation,
        fingerprint=mark,
    )
    for number in (state.generation, generation):
        await note_use(connection, state.name, number, by_command=True)


async def _update(connection: AsyncConnection, name: str, **values: object) -> None:
    await connection.execute(update(projections).where(projections.c.name == name).values(values))
