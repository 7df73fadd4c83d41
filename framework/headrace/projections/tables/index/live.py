"""
Brings the indexes of a table level with the definition, while the application runs or a rebuild ends.

    the service starts ─▶ missing_indexes: it says which     a rebuild has loaded its rows ─▶ make_indexes
    `headrace projection index` ─▶ make_indexes on the live table, while rows are written

Used by live runners, rebuilds and the command line; uses `statements`.
"""

from functools import partial
from typing import Any

from headrace.errors import ProjectionError
from headrace.projections.definition.index import Index
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.index.statements import create_indexes, find_missing
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.row_tables import physical_name

__all__ = ["make_indexes", "missing_indexes"]


async def missing_indexes(read_models: ReadModels, projection: Projection[Any]) -> list[Index]:
    """Returns the indexes that the live table lacks, because the definition has changed."""
    if not projection.indexes:
        return []
    state = await read_models.state(projection.name)
    if state.fingerprint != projection.fingerprint:
        return []
    name = physical_name(projection.name, state.generation)
    find = partial(find_missing, projection=projection, table=name)
    return (await read_models.run_alone(find))[0]


async def make_indexes(
    read_models: ReadModels, projection: Projection[Any], generation: int | None = None
) -> tuple[int, int]:
    """Makes the indexes that a table lacks, and drops those that the definition has no more.

    Of the live table on PostgreSQL while rows are written; on SQLite writers wait meanwhile.

    Args:
        read_models: where the table is.
        projection: whose indexes.
        generation: of this number, which only the caller writes; None: the live one.

    Returns:
        How many were made, and how many dropped.

    Raises:
        ProjectionError: rows have the same values where an index is unique, names two of them; or
            the live table is of another version of the definition.
    """
    create = partial(create_indexes, projection=projection)
    if generation is not None:
        table = physical_name(projection.name, generation)
        return await read_models.transact(partial(create, table=table))
    state = await read_models.state(projection.name)
    if state.fingerprint != projection.fingerprint:
        raise ProjectionError(
            f"projection {projection.name}: the live table was made by another version of the"
            f" definition; run `headrace projection rebuild {projection.name}`"
        )
    create = partial(create, table=physical_name(projection.name, state.generation))
    if read_models.engine.dialect.name == "postgresql":
        return await read_models.run_alone(partial(create, concurrently=True))
    return await read_models.transact(create)
