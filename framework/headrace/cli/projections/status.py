"""`headrace projection list` and `status`: the tables that projections have, and how far they are behind."""

import asyncio
import dataclasses
import json
import shlex
import sys
from datetime import datetime
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import AppPath, QueueAddress, ReadModelsUrl
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # a database is loaded by the function that needs it
    from collections.abc import Iterator

    from headrace.watch.lag import ProjectionLag

__all__ = ["list_projections", "status"]

_BEHIND = 1


def status(
    names: Annotated[
        list[str] | None, typer.Argument(help="The projections' names; none: all.")
    ] = None,
    *,
    app_path: AppPath,
    broker: QueueAddress = "127.0.0.1:9876",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    behind_max: Annotated[
        int | None,
        typer.Option(min=0, metavar="MS", help="Exit status 1 if one is further behind than this."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON per projection.")] = False,
) -> None:
    """Show how far projections are behind, per queue and per parked aggregate."""
    lags = asyncio.run(_measure(app_path, names or [], broker, read_models))
    if as_json:
        for lag in lags:
            typer.echo(json.dumps(_plain(lag)))
    else:
        _show(lags)
    if behind_max is not None and any(lag.elsewhere or lag.age_ms > behind_max for lag in lags):
        sys.exit(_BEHIND)


async def _measure(
    app_path: str, names: list[str], broker: str, read_models: str
) -> "list[ProjectionLag]":
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models
    from headrace.transports.open import open_transport
    from headrace.watch.lag import Lags

    app = load_app(app_path)
    wanted = {name: app.projection(name) for name in names or app.projections}
    async with existing_read_models(read_models) as models:
        for projection in wanted.values():
            await models.ensure(projection)
        async with open_transport(broker) as transport:
            return await Lags(
                app_name=app.name, projections=wanted, read_models=models, transport=transport
            ).measure()


def _show(lags: "list[ProjectionLag]") -> None:
    columns = ("projection", "queue", "next", "end", "behind", "for", "state")
    print_table(columns, (cells for lag in lags for cells in _cells(lag)))


def _cells(lag: "ProjectionLag") -> "Iterator[tuple[object, ...]]":
    """Returns the rows of the table for a projection: its queues, other versions, parked aggregates."""
    waits = "paused" if lag.paused_at is not None else lag.obstacle and f"waits: {lag.obstacle}"
    state = lag.elsewhere or waits or "live"
    if lag.group_paused is not None:
        group = shlex.quote(lag.group_paused)
        state = f"{state}, paused by an operator: headrace group set {group} --consume on"
    for queue in lag.queues:
        age = _span(queue.age_ms)
        places = (str(queue.queue[1]), queue.next_offset, queue.end, queue.messages)
        yield lag.projection, *places, age, state
    for each in lag.other_versions:
        stands = "goes live by command" if each.by_command else "is built next to the live one"
        use = (
            f"generation {each.generation} of version {each.version}: {stands},"
            f" {each.behind_live:,} messages behind it"
        )
        yield lag.projection, "all", None, None, each.messages, None, use
    for key in lag.parked:
        age = _span(key.age_ms)
        yield lag.projection, key.aggregate_id, None, None, key.messages, age, "parked"


def _span(age_ms: int) -> str:
    return f"{age_ms / 1_000:,.1f} s" if age_ms else ""


def _plain(lag: "ProjectionLag") -> Any:
    return {
        **json.loads(json.dumps(dataclasses.asdict(lag), default=datetime.isoformat)),
        "messages": lag.messages,
        "age_ms": lag.age_ms,
    }


def list_projections(
    *,
    app_path: AppPath,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    json: Annotated[bool, typer.Option("--json", help="A line of JSON per projection.")] = False,
) -> None:
    """List an application's projections: live and other generations, rows, and aggregates parked."""
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models
    from headrace.watch.overview import projection_rows

    app = load_app(app_path)

    async def ask() -> list[dict[str, Any]]:
        async with existing_read_models(read_models) as models:
            return await projection_rows(app.projections, models)

    found = asyncio.run(ask())
    if json:
        for row in found:
            typer.echo(dumps(row))
        return
    columns = ("projection", "generation", "version", "rows", "parked", "state")
    print_table(columns, (cells for row in found for cells in _list_cells(row)))


def _list_cells(row: dict[str, Any]) -> "Iterator[tuple[object, ...]]":
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
