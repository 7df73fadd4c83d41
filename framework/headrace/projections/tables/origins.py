"""
What the database says about a projection, and how each of its generations was built and is used.

Each is built by a version of the definition, of all events or as of a moment. Services fold events into
the newest generation of their version that is followed, also while another one is live.

A generation without a row is of version 1 and of all events, and a rebuild is filling it or has kept it:
one that was built before there were versions.

Used by `generations`, within its transactions, and by the command line. It knows no other table.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.errors import ProjectionError, ProjectionNotFound
from headrace.projections.definition.projection import Projection, version_of
from headrace.stores.database.tables import projection_generations, projections

__all__ = [
    "GenerationOrigin",
    "ProjectionState",
    "check_origin",
    "find_state",
    "forget_origin",
    "get_state",
    "is_followed",
    "lock_state",
    "lock_state_now",
    "note_origin",
    "note_use",
    "origin_of",
    "origins_of",
]

_columns = projection_generations.c
_LOCKED_STATE: Final = (
    select(projections).where(projections.c.name == bindparam("name")).with_for_update()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOrigin:
    """How a generation was built.

    Attributes:
        version: of the projection's definition.
        as_of: what a person asked for, a time or offsets, where later events were left out; such a
            table never goes live.
        followed: services of its version fold events into it; False as long as a rebuild fills it.
        by_command: services do not put it in place by themselves: it was live before, or a rebuild has
            kept it for a person to look at.
    """

    version: int = 1
    as_of: str | None = None
    followed: bool = False
    by_command: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionState:
    """What the database says about one projection.

    Attributes:
        name: the projection's name and its view's.
        generation: the live one.
        previous_generation: what a rollback goes back to.
        fingerprint: of the live generation's columns.
        rebuild_generation: the shadow under way.
        rebuild_owner: who builds it.
        rebuild_started_at: since when.
        paused_at: since when nothing is applied to the live one; None: it is not paused.
    """

    name: str
    generation: int
    previous_generation: int | None
    fingerprint: str
    rebuild_generation: int | None
    rebuild_owner: str | None
    rebuild_started_at: datetime | None
    paused_at: datetime | None

    @property
    def version(self) -> int:
        """Of the definition that the live generation was built by."""
        return version_of(self.fingerprint)

    def own(self, origins: Mapping[int, GenerationOrigin], version: int) -> int | None:
        """Returns the generation into which code of a version folds events; None: there is none.

        That is the live one, the one before it, or the newest one of that version.
        """
        if version == self.version:
            return self.generation
        found = [
            number
            for number, origin in origins.items()
            if origin.followed and origin.version == version
        ]
        previous = self.previous_generation
        return previous if previous in found else max(found, default=None)

    def used(self, origins: Mapping[int, GenerationOrigin]) -> frozenset[int]:
        """The generations that are kept: `kept`, and what code of newer versions folds events into."""
        newer = {each.version for each in origins.values() if each.version > self.version}
        own = {self.own(origins, version) for version in newer}
        return self.kept | frozenset(number for number in own if number is not None)

    def obstacle(
        self, projection: Projection[Any], origins: Mapping[int, GenerationOrigin]
    ) -> str | None:
        """Why this code cannot fold events of a projection now; None: it can."""
        if self.paused_at is not None:
            return "it is paused"
        if self.own(origins, projection.version) is not None:
            return None
        do = (
            f"a service with this code, or `headrace projection rebuild {self.name}`, makes new rows"
            if self.version < projection.version
            else f"run the code of version {self.version}, or `headrace projection rollback {self.name}`"
            " with this code"
        )
        return f"its rows are of version {self.version} and this code has version {projection.version}; {do}"

    @property
    def kept(self) -> frozenset[int]:
        """The generations whose tables are in use."""
        used = {self.generation, self.previous_generation, self.rebuild_generation}
        return frozenset(number for number in used if number is not None)


async def find_state(connection: AsyncConnection, name: str) -> ProjectionState | None:
    """Returns the projection's row, or None if it was never set up."""
    found = await connection.execute(select(projections).where(projections.c.name == name))
    row = found.mappings().one_or_none()
    return None if row is None else ProjectionState(**row)


async def get_state(connection: AsyncConnection, name: str) -> ProjectionState:
    """Returns the projection's row, not locked; raises `ProjectionNotFound`."""
    state = await find_state(connection, name)
    if state is None:
        raise _never_set_up(name)
    return state


async def lock_state(connection: AsyncConnection, name: str) -> ProjectionState:
    """Returns the projection's row, locked until the transaction ends.

    On SQLite the write transaction itself is the lock.

    Raises:
        ProjectionNotFound: it was never set up.
    """
    return await connection.run_sync(lock_state_now, name)


def lock_state_now(connection: Connection, name: str) -> ProjectionState:
    """Like `lock_state`, for a connection that blocks."""
    row = connection.execute(_LOCKED_STATE, {"name": name}).mappings().one_or_none()
    if row is None:
        raise _never_set_up(name)
    return ProjectionState(**row)


def _never_set_up(name: str) -> ProjectionNotFound:
    return ProjectionNotFound(f"projection {name} has no tables yet; run the application once")


async def note_origin(
    connection: AsyncConnection, name: str, generation: int, origin: GenerationOrigin
) -> None:
    """Writes how a new generation is built."""
    place = {"name": name, "generation": generation}
    await connection.execute(insert(projection_generations).values(**place, **asdict(origin)))


async def note_use(
    connection: AsyncConnection, name: str, generation: int, *, by_command: bool
) -> None:
    """Writes that services of its version fold events into a generation, unless it is as of a moment."""
    of_it = (_columns.name == name, _columns.generation == generation)
    noted = await connection.execute(
        update(projection_generations)
        .where(*of_it, _columns.as_of.is_(None))
        .values(followed=True, by_command=by_command)
    )
    if noted.rowcount == 0 and generation not in await origins_of(connection, name):
        origin = GenerationOrigin(followed=True, by_command=by_command)
        await note_origin(connection, name, generation, origin)


def is_followed(connection: Connection, name: str, generation: int, version: int) -> bool:
    """Whether services of a version fold events into a generation."""
    query = select(_columns.version).where(
        _columns.name == name, _columns.generation == generation, _columns.followed
    )
    return connection.scalar(query) == version


async def forget_origin(connection: AsyncConnection, name: str, generation: int) -> None:
    """Deletes what is known of a generation that is dropped."""
    of_it = (_columns.name == name, _columns.generation == generation)
    await connection.execute(delete(projection_generations).where(*of_it))


async def origin_of(connection: AsyncConnection, name: str, generation: int) -> GenerationOrigin:
    """Returns how a generation was built."""
    return (await origins_of(connection, name)).get(generation, GenerationOrigin())


async def origins_of(connection: AsyncConnection, name: str) -> dict[int, GenerationOrigin]:
    """Returns how generations were built that say so, by number."""
    found = await connection.execute(select(projection_generations).where(_columns.name == name))
    return {
        each.generation: GenerationOrigin(
            version=each.version,
            as_of=each.as_of,
            followed=each.followed,
            by_command=each.by_command,
        )
        for each in found
    }


async def check_origin(
    connection: AsyncConnection, projection: Projection[Any], generation: int
) -> None:
    """Returns if a generation may go live for a projection.

    Raises:
        ProjectionError: another version of it built that, or it lacks later events.
    """
    origin = await origin_of(connection, projection.name, generation)
    if origin.version != projection.version:
        raise ProjectionError(
            f"projection {projection.name}: generation {generation} was built by version"
            f" {origin.version} and this code has version {projection.version}; run this with the code"
            " of that version"
        )
    if origin.as_of is not None:
        raise ProjectionError(
            f"projection {projection.name}: generation {generation} is as of {origin.as_of} and lacks"
            " later events; it cannot go live"
        )
