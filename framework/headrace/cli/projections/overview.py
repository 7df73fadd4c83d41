"""`headrace projection list`: an application's projections, and the tables that each has."""

import asyncio
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import AppPath, ReadModelsUrl
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for databases
    from collections.abc import Iterator, Mapping

    from sqlalchemy.ext.asyncio import AsyncConnection

    from headrace.projections.definition.projection import Projection
    from headrace.projections.tables.origins import GenerationOrigin, ProjectionState

__all__ = ["list_projections"]


def list_projections(
    *,
    app_path: AppPath,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    json: Annotated[bool, typer.Option("--json", help="A line of JSON per projection.")] = False,
) -> None:
    """List an application's projections: live and other generations, rows, and aggregates parked."""
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models
    from headrace.projections.tables.generation_tables import find_all

    app = load_app(app_path)

    async def ask() -> list[dict[str, Any]]:
        async with existing_read_models(read_models) as models:
            rows = []
            for name, projection in sorted(app.projections.items()):
                await models.ensure(projection)
                state = await models.state(name)
                async with models.snapshot() as connection:
                    others = await find_all(connection, name)
                    told = [
                        await _told(connection, state, *other) for other in sorted(others.items())
                    ]
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

    found = asyncio.run(ask())
    if json:
        for row in found:
            typer.echo(dumps(row))
        return
    columns = ("projection", "generation", "version", "rows", "parked", "state")
    print_table(columns, (cells for row in found for cells in _cells(row)))


def _cells(row: dict[str, Any]) -> "Iterator[tuple[object, ...]]":
    """Returns the rows of the table for a projection: the live generation, then the others."""
    *live, generations = row.values()
    yield tuple(live)
    for other in generations:
        if other["is"] == "live":
            continue
        use = other["is"]
        if "behind" in other:
            use = f"{use}, {other['behind']:,} messages behind the live one"
        yield row["projection"], other["generation"], other["version"], None, None, use


def _state_of(
    state: "ProjectionState",
    projection: "Projection[Any]",
    origins: "Mapping[int, GenerationOrigin]",
) -> str:
    if state.paused_at is not None:
        return "paused"
    if (obstacle := state.obstacle(projection, origins)) is not None:
        return f"waits: {obstacle}"
    return "live" if state.rebuild_generation is None else "live, being rebuilt"


async def _told(
    connection: "AsyncConnection", state: "ProjectionState", number: int, origin: "GenerationOrigin"
) -> dict[str, Any]:
    """Returns the line about a generation that has a table."""
    from headrace.projections.tables.succession import ahead_of

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
