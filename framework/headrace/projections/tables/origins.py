"""
How each generation of a projection was built: by which version of its definition, and as of when.

A generation without a row is of version 1 and of all events: one that was built before there were
versions.

Used by `generations`, within its transactions, and by the command line. It knows no other table.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.stores.database.tables import projection_generations

__all__ = [
    "GenerationOrigin",
    "check_origin",
    "forget_origin",
    "note_origin",
    "origin_of",
    "origins_of",
]

_columns = projection_generations.c


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOrigin:
    """How a generation was built.

    Attributes:
        version: of the projection's definition.
        as_of: what a person asked for, a time or offsets, where later events were left out; such a
            table never goes live.
    """

    version: int = 1
    as_of: str | None = None


async def note_origin(
    connection: AsyncConnection, name: str, generation: int, origin: GenerationOrigin
) -> None:
    """Writes how a new generation is built."""
    values = {"version": origin.version, "as_of": origin.as_of}
    place = {"name": name, "generation": generation}
    await connection.execute(insert(projection_generations).values(**place, **values))


async def forget_origin(connection: AsyncConnection, name: str, generation: int) -> None:
    """Deletes what is known of a generation that is dropped."""
    of_it = (_columns.name == name, _columns.generation == generation)
    await connection.execute(delete(projection_generations).where(*of_it))


async def origin_of(connection: AsyncConnection, name: str, generation: int) -> GenerationOrigin:
    """Returns how a generation was built."""
    return (await origins_of(connection, name)).get(generation, GenerationOrigin())


async def origins_of(connection: AsyncConnection, name: str) -> dict[int, GenerationOrigin]:
    """Returns how generations were built that say so, by number."""
    query = select(_columns.generation, _columns.version, _columns.as_of)
    found = await connection.execute(query.where(_columns.name == name))
    return {
        number: GenerationOrigin(version=version, as_of=as_of) for number, version, as_of in found
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
