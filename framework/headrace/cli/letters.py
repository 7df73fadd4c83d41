"""`headrace projection letters|retry|skip`: the aggregates that a projection has parked."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli.options import AppPath, EventStoreUrl, ReadModelsUrl

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace._projecting.letters import Letter, Letters

__all__ = ["letters", "retry", "skip"]

T = TypeVar("T")

Name = Annotated[str, typer.Argument(help="The projection's name.")]
Aggregate = Annotated[str, typer.Argument(help="The id of the parked aggregate.")]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON per letter.")]

_NOT_ALL = 1


def letters(
    name: Name,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """List the aggregates that a projection has parked, the oldest letter first."""
    found = _with_letters(app_path, name, event_store, read_models, lambda each: each.all())
    _show(name, found, as_json=as_json)


def retry(
    name: Name,
    aggregates: Annotated[
        list[str] | None, typer.Argument(help="Ids of parked aggregates; none: all of them.")
    ] = None,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """Apply what waits, with the code of now. Exit status 1 if something still cannot be."""

    async def run(parked: "Letters") -> "tuple[int, list[Letter]]":
        ids = aggregates or [letter.aggregate_id for letter in await parked.all()]
        outcomes = [await parked.retry(aggregate_id) for aggregate_id in ids]
        return len(ids), [letter for letter in outcomes if letter is not None]

    tried, left = _with_letters(app_path, name, event_store, read_models, run)
    typer.echo(f"{tried - len(left)} of {tried} letters of {name} are done", err=as_json)
    if left:
        _show(name, left, as_json=as_json)
        sys.exit(_NOT_ALL)


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
    left = _with_letters(
        app_path, name, event_store, read_models, lambda each: each.skip(aggregate)
    )
    if left is not None:
        typer.echo(f"{aggregate} has another one that cannot be applied", err=True)
        _show(name, [left], as_json=as_json)
        sys.exit(_NOT_ALL)
    typer.echo(f"{aggregate} goes on without it", err=as_json)


def _with_letters(
    app_path: str,
    name: str,
    event_store: str,
    read_models: str,
    work: "Callable[[Letters], Awaitable[T]]",
) -> T:
    from headrace._projecting.letters import Letters
    from headrace._projecting.read_models import ReadModels
    from headrace.app import load_app
    from headrace.cli.logs import configure_logs
    from headrace.stores.opening import open_event_store

    # Away from the standard output, which a program may read.
    configure_logs("console")
    app = load_app(app_path)
    projection = app.projection(name)

    async def run() -> T:
        models = ReadModels(read_models)
        try:
            store = await open_event_store(event_store, app.serializer)
            try:
                return await work(Letters(projection, models, store))
            finally:
                await store.aclose()
        finally:
            await models.aclose()

    return asyncio.run(run())


def _show(name: str, found: "list[Letter]", *, as_json: bool) -> None:
    if as_json:
        for letter in found:
            typer.echo(json.dumps(_plain(letter)))
        return
    if not found:
        typer.echo(f"projection {name} has parked nothing")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("aggregate", "applied up to", "waiting", "since", "retries", "error", box=None)
    for letter in found:
        table.add_row(
            letter.aggregate_id,
            f"version {letter.version}",
            str(letter.held),
            f"{letter.parked_at:%Y-%m-%d %H:%M:%S}",
            str(letter.retries),
            letter.error,
        )
    Console().print(table)


def _plain(letter: "Letter") -> dict[str, object]:
    topic, queue_id = letter.queue
    return {
        "aggregate_id": letter.aggregate_id,
        "version": letter.version,
        "topic": topic,
        "queue_id": queue_id,
        "offset": letter.offset,
        "parked_at": letter.parked_at.isoformat(),
        "held": letter.held,
        "retries": letter.retries,
        "error": letter.error,
    }
