"""`headrace projection switch` and `rollback`: makes another table of a projection the live one."""

import asyncio
from typing import Annotated

import typer

from headrace.cli.options import AppPath, BrokerAddress, EventStoreUrl, NoBroker, ReadModelsUrl

__all__ = ["rollback", "switch"]

Name = Annotated[str, typer.Argument(help="The projection's name.")]


def switch(
    name: Name,
    *,
    app_path: AppPath,
    broker: BrokerAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    no_broker: NoBroker = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Switch even if another rebuild seems to be running."),
    ] = False,
) -> None:
    """Make a rebuilt table live that its rebuild left aside, because rows differed or by --no-switch.

    The table first catches up with the events since its rebuild; nothing is folded again. The switch
    happens however many rows differ. `rollback` undoes it.
    """
    from headrace.rebuild.promotion import promote

    report = asyncio.run(
        promote(
            app_path,
            name,
            broker=None if no_broker else broker,
            read_models_url=read_models,
            event_store_url=event_store,
            take_over=take_over,
        )
    )
    typer.echo(
        f"projection {name}: {report.caught_up:,} messages caught up; table {report.table} with"
        f" {report.rows:,} rows is live; `headrace projection rollback {name}` goes back"
    )


def rollback(
    name: Name, *, app_path: AppPath, read_models: ReadModelsUrl = "sqlite:///var/read.db"
) -> None:
    """Put the table from before the last switch back in place."""
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models

    projection = load_app(app_path).projection(name)

    async def ask() -> int:
        async with existing_read_models(read_models) as models:
            await models.rollback(projection)
            return await models.generation(name)

    typer.echo(f"projection {name} is back at generation {asyncio.run(ask())}")
