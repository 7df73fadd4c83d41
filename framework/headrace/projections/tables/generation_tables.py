"""
The tables of a projection's generations: which there are, and dropping one with all that belongs to it.

Every function works within the caller's transaction. Used by `generations`, which knows which of them
are in use, and by the command line.
"""

from collections.abc import Collection

from sqlalchemy import Connection, MetaData, Table, delete, inspect
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.ddl import DropTable

from headrace.errors import ProjectionError
from headrace.projections.tables.origins import GenerationOrigin, forget_origin, origins_of
from headrace.projections.tables.row_tables import generation_of, physical_name
from headrace.projections.tables.shadow_load import drop_staging
from headrace.stores.database.tables import (
    parked_rows,
    projection_offsets,
    projection_versions,
    reader_marks,
)

__all__ = ["check_free", "drop", "drop_others", "find_all"]


async def find_all(connection: AsyncConnection, name: str) -> dict[int, GenerationOrigin]:
    """Returns all generations of a projection that have a table, and how each was built."""
    tables = await connection.run_sync(_tables_of, name)
    origins = await origins_of(connection, name)
    return {number: origins.get(number, GenerationOrigin()) for number in tables}


async def drop_others(connection: AsyncConnection, name: str, kept: Collection[int | None]) -> None:
    """Drops all generations that are not kept, except those as of a moment."""
    for generation, origin in (await find_all(connection, name)).items():
        if generation not in kept and origin.as_of is None:
            await drop(connection, name, generation)


async def drop(connection: AsyncConnection, name: str, generation: int) -> None:
    """Drops a generation's table, offsets, versions, letters and marks."""
    await forget_origin(connection, name, generation)
    for table in (projection_offsets, projection_versions, parked_rows, reader_marks):
        await connection.execute(
            delete(table).where(table.c.name == name, table.c.generation == generation)
        )
    table = Table(physical_name(name, generation), MetaData())
    if connection.dialect.name == "postgresql":
        await drop_staging(connection, table.name)
    await connection.execute(DropTable(table, if_exists=True))


def _tables_of(connection: Connection, name: str) -> list[int]:
    found = (generation_of(name, table) for table in inspect(connection).get_table_names())
    return sorted(number for number in found if number is not None)


def check_free(connection: Connection, *names: str) -> None:
    """Returns if no table and no view has one of these names.

    Raises:
        ProjectionError: one has.
    """
    inspector = inspect(connection)
    for name in names:
        if inspector.has_table(name):
            raise ProjectionError(
                f"the database of read models has another table or view named {name};"
                " rename the projection or give read models a database of their own"
            )
