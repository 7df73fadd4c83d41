"""`headrace handler letters|retry|skip`: the aggregates that event handlers have parked."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.application.parked import Aggregate, Aggregates, AsJson, Desk, Parked, Traceback
from headrace.cli.options import AppPath, EventStoreUrl, ReadModelsUrl

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace.app import App
    from headrace.projections.tables.read_models import ReadModels
    from headrace.stores.base import EventStore

__all__ = ["commands"]

commands = typer.Typer(help="What event handlers could not handle.", no_args_is_help=True)

Processor = Annotated[str, typer.Option(help="Whose: as in `on_event(processor=…)`.")]


@commands.command()
def letters(
    *,
    processor: Processor = "events",
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    traceback: Traceback = False,
    as_json: AsJson = False,
) -> None:
    """List the aggregates that event handlers have parked, the oldest letter first."""
    _desk(processor, app_path, event_store, read_models, as_json=as_json).list_all(
        traceback=traceback
    )


@commands.command()
def retry(
    aggregates: Aggregates = None,
    *,
    processor: Processor = "events",
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """Handle here what waits, with the code of now. Exit status 1 if something still fails."""
    _desk(processor, app_path, event_store, read_models, as_json=as_json).retry(aggregates)


@commands.command()
def skip(
    aggregate: Aggregate,
    *,
    processor: Processor = "events",
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """Leave out the one change that fails, then handle what waits behind it."""
    _desk(processor, app_path, event_store, read_models, as_json=as_json).skip(aggregate)


def _desk(
    processor: str, app_path: str, event_store: str, read_models: str, *, as_json: bool
) -> Desk:
    def find(app: "App", models: "ReadModels", store: "EventStore") -> Parked:
        from headrace.handlers.letters import HandlerLetters

        return HandlerLetters(app.event_handlers(processor), models, store)

    return Desk(
        "processor",
        processor,
        app_path=app_path,
        event_store=event_store,
        read_models=read_models,
        find=find,
        as_json=as_json,
    )
