"""`headrace projection pause|resume|index|reset|switch|rollback|drop`: controls live projections."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli.options import (
    AppPath,
    EventStoreUrl,
    NoBroker,
    QueueAddress,
    ReadModelsUrl,
    Unsealed,
    vouching_store,
)

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace.projections.tables.read_models import ReadModels

__all__ = ["drop", "index", "pause", "reset", "resume", "rollback", "switch"]

T = TypeVar("T")

Name = Annotated[str, typer.Argument(help="The projection's name.")]
Names = Annotated[list[str], typer.Argument(help="The projections' names.")]


def pause(
    names: Names, *, app_path: AppPath, read_models: ReadModelsUrl = "sqlite:///var/read.db"
) -> None:
    """Pause projections until `resume`; they stay paused across restarts."""
    _each(app_path, names, read_models, lambda models, name: models.pause(name))
    for name in names:
        typer.echo(f"projection {name} is paused")


def resume(
    names: Names, *, app_path: AppPath, read_models: ReadModelsUrl = "sqlite:///var/read.db"
) -> None:
    """Resume paused projections where they stopped."""
    _each(app_path, names, read_models, lambda models, name: models.resume(name))
    for name in names:
        typer.echo(f"projection {name} goes on")


def index(
    name: Name, *, app_path: AppPath, read_models: ReadModelsUrl = "sqlite:///var/read.db"
) -> None:
    """Make the indexes of the live table that the definition has got since, and drop the others.

    On PostgreSQL rows go on being written meanwhile; on SQLite writers wait.
    """
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models
    from headrace.projections.tables.index.live import make_indexes

    projection = load_app(app_path).projection(name)

    async def run() -> tuple[int, int]:
        async with existing_read_models(read_models) as models:
            return await make_indexes(models, projection)

    made, dropped = asyncio.run(run())
    typer.echo(f"projection {name}: {made} indexes made, {dropped} dropped")


def reset(
    name: Name,
    *,
    app_path: AppPath,
    broker: QueueAddress = "127.0.0.1:9876",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    unsealed: Unsealed = False,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE:OFFSET",
            help="Leave out what lies before an offset of a queue; queues that are not named begin"
            " at their beginning. Several times. What lies there is read, and believed as the event"
            " store vouches for it.",
        ),
    ] = None,
) -> None:
    """Start a projection over with an empty table, which is live at once; `rollback` undoes it.

    To keep the present table live until its successor is complete, use `rebuild`.
    """
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models
    from headrace.events.publisher import event_topic
    from headrace.lineage.marks import note_epochs
    from headrace.rebuild.event_topic import EventTopic, versions_before
    from headrace.rebuild.owner import new_owner
    from headrace.rebuild.shadow import open_truth

    app = load_app(app_path)
    projection = app.projection(name)
    topic = event_topic(app.name)
    offsets = {(topic, number): offset for number, offset in map(_place, at or [])}

    async def run() -> int:
        async with existing_read_models(read_models) as models:
            await models.ensure(projection)
            versions: dict[str, int] = {}
            epochs: dict[int, int] = {}
            if offsets:
                store = vouching_store(event_store, unsealed=unsealed)
                async with open_truth(store, app.serializer_at(store)) as truth:
                    source = EventTopic(broker, topic, messages_max=10_000, belief=truth.belief)
                    # Asked before it is read: a later loss is noticed.
                    epochs = dict((await source.lineage({}, patient=False)).epochs)
                    versions = await versions_before(source, offsets)

            return await models.reset(
                projection,
                new_owner(),
                offsets=offsets,
                versions=versions,
                note=lambda connection, generation: note_epochs(
                    connection, (name, generation), epochs
                ),
            )

    generation = asyncio.run(run())
    typer.echo(f"projection {name} starts over as generation {generation}")


def switch(
    name: Name,
    *,
    app_path: AppPath,
    broker: QueueAddress = "127.0.0.1:9876",
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
    """Put the table from before the last switch back in place, and say how far it is behind."""
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models
    from headrace.projections.tables.succession import ahead_of

    projection = load_app(app_path).projection(name)

    async def ask() -> tuple[int, int]:
        async with existing_read_models(read_models) as models:
            before = await models.generation(name)
            generation = await models.rollback(projection)
            async with models.snapshot() as connection:
                ahead = await ahead_of(connection, name, before, generation)
            return generation, sum(ahead.values())

    generation, behind = asyncio.run(ask())
    stands = (
        f"it is {behind:,} messages behind the rows from before, and services with this code catch up"
        if behind
        else "it has all that the rows from before had"
    )
    typer.echo(f"projection {name} is back at generation {generation}; {stands}")


def drop(
    name: Name,
    generation: Annotated[int, typer.Argument(help="Of which `headrace projection list` tells.")],
    *,
    app_path: AppPath,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
) -> None:
    """Drop a table of a projection that is not live: the previous one, one that was kept, one as of a moment."""
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models
    from headrace.projections.tables.generation_tables import find_all

    load_app(app_path).projection(name)

    async def ask() -> None:
        async with existing_read_models(read_models) as models:
            async with models.snapshot() as connection:
                there = await find_all(connection, name)
            if generation not in there:
                raise typer.BadParameter(
                    f"projection {name} has the generations {', '.join(map(str, there))}",
                    param_hint="GENERATION",
                )
            await models.drop_generation(name, generation)

    asyncio.run(ask())
    typer.echo(f"generation {generation} of projection {name} is gone")


def _place(text: str) -> tuple[int, int]:
    number, colon, offset = text.partition(":")
    if not colon or not number.isdecimal() or not offset.isdecimal():
        raise typer.BadParameter(f"write QUEUE:OFFSET, as in 0:1200, not {text!r}")
    return int(number), int(offset)


def _each(
    app_path: str,
    names: list[str],
    read_models: str,
    work: "Callable[[ReadModels, str], Awaitable[T]]",
) -> None:
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_read_models

    app = load_app(app_path)
    projections = [app.projection(name) for name in names]

    async def run() -> None:
        async with existing_read_models(read_models) as models:
            for projection in projections:
                await models.ensure(projection)
                await work(models, projection.name)

    asyncio.run(run())
