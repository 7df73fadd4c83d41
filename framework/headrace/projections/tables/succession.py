"""
Versions of a projection side by side: each folds into a generation of its own, and one is live.

    live: 1 of version 1 ─▶ code of version 2 comes ─▶ 2 of version 2, from the topic's beginning
      ─▶ it has all that the live one has ─▶ live: 2 of version 2, previous: 1 of version 1

Code of the older version goes on with the previous generation until the next switch drops it. Only code of
a newer version makes a generation, and only a newer version goes live by itself, so services of two
versions never undo each other's switch.

Used by the runner, by way of `Turn`; uses `generations`. The caller begins and commits the transactions.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Select, and_, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import generations
from headrace.projections.tables.contents import read_offsets
from headrace.projections.tables.generations import ProjectionState
from headrace.projections.tables.origins import GenerationOrigin, origins_of
from headrace.projections.tables.row_tables import build_table, fits, physical_name
from headrace.stores.database.tables import parked_rows, projection_versions
from headrace.transports.base import QueueId

__all__ = [
    "ahead_of",
    "count_further",
    "find_own",
    "further",
    "lacks",
    "may_go_live",
    "take_own",
    "why_none",
]

# Versions newer than the live one that have a generation: the one that is deployed, and the next one. A
# further one waits, because each costs as much as the live one.
_NEWER_MAX: Final = 2


async def find_own(
    connection: AsyncConnection, projection: Projection[Any]
) -> tuple[ProjectionState, int | None]:
    """Returns a projection's state, and the generation into which its code folds events, if any.

    Raises:
        ProjectionNotFound: it was never set up.
    """
    state = await generations.get_state(connection, projection.name)
    origins = await origins_of(connection, projection.name)
    return state, state.own(origins, projection.version)


async def take_own(connection: AsyncConnection, projection: Projection[Any]) -> int | None:
    """Returns the generation into which a projection's code folds events; makes it if it may.

    Args:
        connection: in a write transaction.
        projection: whose code.

    Returns:
        None: code of this version has to wait.

    Raises:
        ProjectionError: the generation has other columns.
    """
    state = await generations.lock_state(connection, projection.name)
    origins = await origins_of(connection, projection.name)
    own = state.own(origins, projection.version)
    if own == state.generation:
        return own
    if own is not None:
        table = build_table(projection, physical_name(state.name, own))
        if not await connection.run_sync(fits, table):
            raise ProjectionError(
                f"projection {state.name}: the fields of {projection.row.__name__} have changed since"
                f" {table.name} was made for version {projection.version}; raise the version, or drop the"
                f" table with `headrace projection drop {state.name} {own}`"
            )
        return own
    if why_none(state, origins, projection) is not None:
        return None
    origin = GenerationOrigin(version=projection.version, followed=True)
    return await generations.create(connection, projection, state, origin)


def why_none(
    state: ProjectionState, origins: Mapping[int, GenerationOrigin], projection: Projection[Any]
) -> str | None:
    """Returns why code gets no generation of its own to fold into; None: it has one, or may make it."""
    obstacle = state.obstacle(projection, origins)
    if obstacle is None or state.paused_at is not None or projection.version < state.version:
        return obstacle
    if projection.has_handlers:
        return (
            f"its rows are of version {state.version} and this code has version {projection.version}; new"
            " rows cannot be built next to them, because its handlers would meet events twice: move the"
            " rows into a projection without @with_session"
        )
    newer = {each.version for each in origins.values() if each.followed}
    newer = {version for version in newer if version > state.version}
    if len(newer) >= _NEWER_MAX:
        told = ", ".join(map(str, sorted(newer)))
        return (
            f"versions {told} are being built already next to version {state.version}, which is live;"
            " put one in place with `headrace projection switch`, or drop one"
        )
    return None


def may_go_live(
    state: ProjectionState, origins: Mapping[int, GenerationOrigin], generation: int
) -> bool:
    """Whether a generation goes live by itself once it has all that the live one has."""
    origin = origins.get(generation)
    return (
        origin is not None
        and origin.followed
        and not origin.by_command
        and origin.version > state.version
        and state.paused_at is None
    )


async def ahead_of(
    connection: AsyncConnection, name: str, generation: int, other: int
) -> dict[QueueId, int]:
    """Returns how many messages a generation has applied that another has not, by queue."""
    has = await read_offsets(connection, name, other)
    offsets = await read_offsets(connection, name, generation)
    ahead = {queue: offset - has.get(queue, 0) for queue, offset in offsets.items()}
    return {queue: count for queue, count in ahead.items() if count > 0}


async def lacks(connection: AsyncConnection, name: str, generation: int, live: int) -> str | None:
    """Returns the first aggregate that the live generation has more of than another; None: none.

    One that is parked in the other one alone is among them.
    """
    parked = parked_rows.alias("parked")
    theirs = parked_rows.alias("theirs")
    known = select(literal(1)).where(
        theirs.c.name == name,
        theirs.c.generation == live,
        theirs.c.aggregate_id == parked.c.aggregate_id,
    )
    alone = select(parked.c.aggregate_id).where(
        parked.c.name == name, parked.c.generation == generation, ~known.exists()
    )
    found: str | None = await connection.scalar(alone.limit(1))
    if found is not None:
        return found
    query = further(name, live, generation).limit(1)
    return (await connection.execute(query)).scalar()


def further(
    name: str, generation: int, other: int, *, parked: bool = True
) -> Select[str, int, int]:
    """Selects the aggregates that a generation has more of than another, and how much each has.

    Args:
        name: the projection's.
        generation: the one.
        other: the other.
        parked: those that are parked in the other one, too.
    """
    own, its = projection_versions.alias("own"), projection_versions.alias("its")
    has = func.coalesce(its.c.version, 0)
    same = (its.c.name == name, its.c.generation == other, its.c.aggregate_id == own.c.aggregate_id)
    found = (
        select(own.c.aggregate_id, own.c.version, has.label("other"))
        .select_from(own.outerjoin(its, and_(*same)))
        .where(own.c.name == name, own.c.generation == generation, own.c.version > has)
        .order_by(own.c.aggregate_id)
    )
    if parked:
        return found
    letters = parked_rows.c
    letter = select(literal(1)).where(
        letters.name == name,
        letters.generation == other,
        letters.aggregate_id == own.c.aggregate_id,
    )
    return found.where(~letter.exists())


async def count_further(
    connection: AsyncConnection, name: str, generation: int, other: int
) -> tuple[int, int]:
    """Returns how many aggregates a generation has more of than another, and the other way round.

    Versions of the two are brought together once for both numbers, as a projection may be locked meanwhile.
    """
    own, its = projection_versions.alias("own"), projection_versions.alias("its")
    theirs = and_(its.c.name == name, its.c.generation == other)
    counts = (
        select(
            func.count().filter(own.c.version > func.coalesce(its.c.version, 0)),
            func.count().filter(its.c.version > own.c.version),
            func.count().filter(its.c.version > 0),
        )
        .select_from(own.outerjoin(its, and_(theirs, its.c.aggregate_id == own.c.aggregate_id)))
        .where(own.c.name == name, own.c.generation == generation)
    )
    more, less, shared = (await connection.execute(counts)).one()
    there = await connection.scalar(select(func.count()).where(theirs, its.c.version > 0)) or 0
    return more, less + there - shared
