"""`headrace projection letters|retry|skip`: the aggregates that a projection has parked."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.application.parked import Aggregate, Aggregates, AsJson, Desk, Parked, Traceback
from headrace.cli.options import AppPath, EventStoreUrl, ReadModelsUrl

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace.app import App
    from headrace.projections.tables.read_models import ReadModels
    from headrace.stores.base import EventStore

__all__ = ["letters", "retry", "skip"]

Name = Annotated[str, typer.Argument(help="The projection's name.")]


def letters(
    name: Name,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    traceback: Traceback = False,
    as_json: AsJson = False,
) -> None:
    """List the aggregates that a projection has parked, the oldest letter first."""
    _desk(name, app_path, event_store, read_models, as_json=as_json).list_all(traceback=traceback)


def retry(
    name: Name,
    aggregates: Aggregates = None,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """Apply what waits, with the code of now. Exit status 1 if something still cannot be."""
    _desk(name, app_path, event_store, read_models, as_json=as_json).retry(aggregates)


def skip(
    name: Name,
    aggregate: Aggregate,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """Leave out the one change that cannot be applied, then apply what waits behind it."""
    _desk(name, app_path, event_store, read_models, as_json=as_json).skip(aggregate)


def _desk(name: str, app_path: str, event_store: str, read_models: str, *, as_json: bool) -> Desk:
    def find(app: "App", models: "ReadModels", store: "EventStore") -> Parked:
        from headrace.projections.letters import Letters

        return Letters(app.projection(name), models, store)

    return Desk(
        "projection",
        name,
        app_path=app_path,
        event_store=event_store,
        read_models=read_models,
        find=find,
        as_json=as_json,
    )
