"""`headrace projection list`: an application's projections, and the tables that each has."""

import asyncio
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import AppPath, ReadModelsUrl

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for databases
    from headrace.projections.definition.projection import Projection
    from headrace.projections.tables.generations import ProjectionState
    from headrace.projections.tables.origins import GenerationOrigin

__all__ = ["list_projections"]


def list_projections(
    *,
    app_path: AppPath,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    json: Annotated[bool, typer.Option("--json", help="A line of JSON per projection.")] = False,
) -> None:
    """List an application's projections: live and other generations, rows, and aggregates parked."""
    from rich.console import Console
    from rich.table import Table

    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models
    from headrace.projections.tables import generations

    app = load_app(app_path)

    async def ask() -> list[dict[str, Any]]:
        async with existing_read_models(read_models) as models:
            rows = []
            for name, projection in sorted(app.projections.items()):
                await models.ensure(projection)
                state = await models.state(name)
                async with models.snapshot() as connection:
                    others = await generations.find_all(connection, name)
                rows.append(
                    {
                        "projection": name,
                        "generation": state.generation,
                        "version": state.version,
                        "rows": await models.reader(projection).count(),
                        "parked": await models.parked(name),
                        "state": _state_of(state, projection),
                        "generations": [_told(state, *other) for other in sorted(others.items())],
                    }
                )
            return rows

    found = asyncio.run(ask())
    if json:
        for row in found:
            typer.echo(dumps(row))
        return
    table = Table("projection", "generation", "version", "rows", "parked", "state", box=None)
    for row in found:
        others = [each for each in row.pop("generations") if each["is"] != "live"]
        table.add_row(*(f"{each:,}" if isinstance(each, int) else each for each in row.values()))
        for each in others:
            table.add_row("", str(each["generation"]), str(each["version"]), "", "", each["is"])
    Console().print(table)


def _state_of(state: "ProjectionState", projection: "Projection[Any]") -> str:
    if state.paused_at is not None:
        return "paused"
    if (obstacle := state.obstacle(projection)) is not None:
        return f"waits: {obstacle}"
    return "live" if state.rebuild_generation is None else "live, being rebuilt"


def _told(state: "ProjectionState", number: int, origin: "GenerationOrigin") -> dict[str, Any]:
    """Returns the line about a generation that has a table."""
    if origin.as_of is not None:
        use = f"as of {origin.as_of}"
    elif number == state.generation:
        use = "live"
    elif number == state.previous_generation:
        use = "previous"
    else:
        use = "being built" if number == state.rebuild_generation else "kept"
    return {"generation": number, "version": origin.version, "is": use}
