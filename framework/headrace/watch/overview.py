"""
The projections of an application and the tables that each has: rows, generations, and what they are for.

    balances   generation 3 is live · 2 is the previous one · 4 is being built

Used by `headrace projection list` and the console. It writes nothing but what a projection needs that was never set up.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.projections.definition.projection import Projection
from headrace.projections.tables.generation_tables import find_all
from headrace.projections.tables.origins import GenerationOrigin, ProjectionState
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.succession import ahead_of

__all__ = ["projection_rows"]


async def projection_rows(
    projections: Mapping[str, Projection[Any]], models: ReadModels
) -> list[dict[str, Any]]:
    """Returns what there is of each projection, by name, as JSON values.

    Args:
        projections: by name.
        models: where their tables are.

    Raises:
        sqlalchemy.exc.SQLAlchemyError, OSError: the database is away.
    """
    rows = []
    for name, projection in sorted(projections.items()):
        await models.ensure(projection)
        state = await models.state(name)
        async with models.snapshot() as connection:
            others = await find_all(connection, name)
            told = [await _told(connection, state, *other) for other in sorted(others.items())]
        rows.append(
            {
                "projection": name,
                "generation": state.generation,
                "version": state.version,
                "rows": await models.reader(projection).count(),
                "parked": await models.parked(name),
                "state": _state_of(state, projection, others),
                "generations": told,
            }
        )
    return rows


def _state_of(
    state: ProjectionState,
    projection: Projection[Any],
    origins: Mapping[int, GenerationOrigin],
) -> str:
    if state.paused_at is not None:
        return "paused"
    if (obstacle := state.obstacle(projection, origins)) is not None:
        return f"waits: {obstacle}"
    return "live" if state.rebuild_generation is None else "live, being rebuilt"


async def _told(
    connection: AsyncConnection, state: ProjectionState, number: int, origin: GenerationOrigin
) -> dict[str, Any]:
    """Returns the line about a generation that has a table."""
    if origin.as_of is not None:
        use = f"as of {origin.as_of}"
    elif number == state.generation:
        use = "live"
    elif number == state.previous_generation:
        use = "previous"
    elif number == state.rebuild_generation:
        use = "being built"
    else:
        use = "kept" if origin.by_command or not origin.followed else "being built by services"
    told = {"generation": number, "version": origin.version, "is": use}
    if not origin.followed or origin.version == state.version:
        return told
    behind = await ahead_of(connection, state.name, state.generation, number)
    return told | {"behind": sum(behind.values())}
