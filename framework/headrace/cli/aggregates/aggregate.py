"""`headrace aggregate`: lists aggregates, shows the state of one at a version, and compares two versions."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli.options import WHOLE_MAX, AppPath, EventStoreUrl
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for databases
    from headrace.aggregates.directory import AggregateEntry
    from headrace.aggregates.past import Past

__all__ = ["commands"]

commands = typer.Typer(help="Aggregates, and what they were.", no_args_is_help=True)

T = TypeVar("T")

_DEFAULT_STORE = "sqlite:///var/events.db"
Id = Annotated[str, typer.Argument(metavar="ID", help="Which aggregate.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@commands.command(name="list")
def list_aggregates(
    *,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    kind: Annotated[str, typer.Option("--type", help="Only those of this class.")] = "",
    begin: Annotated[str, typer.Option("--from", metavar="ID", help="Begin with this id.")] = "",
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="Begin behind this id, the last one of a page.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at most.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List aggregates in the order of their ids, with their last versions."""
    from headrace.aggregates.directory import open_directory
    from headrace.stores.database.schema import check

    async def read() -> "list[AggregateEntry]":
        await check(event_store)
        async with open_directory(event_store) as directory:
            return await directory.page(aggregate_type=kind, begin=begin, after=after, limit=limit)

    found = asyncio.run(read())
    if as_json:
        for one in found:
            typer.echo(
                json.dumps(
                    {
                        "aggregate_id": one.aggregate_id,
                        "type": one.aggregate_type,
                        "version": one.version,
                        "began_at": one.began_at.isoformat(),
                        "changed_at": one.changed_at.isoformat(),
                    }
                )
            )
        return
    print_table(
        ("aggregate", "type", "version", "first event (UTC)", "last event (UTC)"),
        (
            (
                one.aggregate_id, one.aggregate_type, one.version,
                f"{one.began_at:%Y-%m-%d %H:%M:%S}", f"{one.changed_at:%Y-%m-%d %H:%M:%S}",
            )
            for one in found
        ),
    )  # fmt: skip


@commands.command()
def show(
    aggregate_id: Id,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    version: Annotated[
        int, typer.Option(min=0, max=WHOLE_MAX, help="At which version; 0 is the last one.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the state of an aggregate at a version, replayed from its events by its own class."""

    async def read(past: "Past", last: int) -> None:
        (found,) = await past.at(aggregate_id, [version or last])
        if as_json:
            typer.echo(
                json.dumps(
                    {
                        "aggregate_id": found.aggregate_id,
                        "type": found.aggregate_type,
                        "version": found.version,
                        "recorded_at": found.recorded_at.isoformat(),
                        "command_id": found.command_id,
                        "state": found.state,
                    }
                )
            )
            return
        typer.echo(
            f"{found.aggregate_type} {aggregate_id} at version {found.version:,} of {last:,}, recorded"
            f" {found.recorded_at:%Y-%m-%d %H:%M:%S} UTC by command {found.command_id}"
        )
        typer.echo(json.dumps(found.state, indent=2, ensure_ascii=False))

    _look(app_path, event_store, aggregate_id, read)


@commands.command()
def compare(
    aggregate_id: Id,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    first: Annotated[
        int, typer.Option("--from", min=1, max=WHOLE_MAX, help="The one version.")
    ] = 1,
    to: Annotated[
        int, typer.Option("--to", min=0, max=WHOLE_MAX, help="The other one; 0 is the last.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Say what differs between two versions of an aggregate."""
    from headrace.aggregates.changes import changes_between

    async def read(past: "Past", last: int) -> None:
        states = await past.at(aggregate_id, [first, to or last])
        changes = changes_between(states[0].state, states[-1].state)
        if as_json:
            for one in changes:
                typer.echo(
                    json.dumps(
                        {
                            "place": one.place,
                            "kind": one.kind,
                            "before": one.before,
                            "after": one.after,
                        }
                    )
                )
            return
        for one in changes:
            typer.echo(one.sentence)
        if not changes:
            typer.echo("the states are the same")

    _look(app_path, event_store, aggregate_id, read)


def _look(
    app_path: str, url: str, aggregate_id: str, read: "Callable[[Past, int], Awaitable[T]]"
) -> T:
    from headrace.aggregates.directory import open_directory
    from headrace.aggregates.past import Past
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_events
    from headrace.cli.logs import configure_logs
    from headrace.errors import AggregateNotFound

    # Its log lines would be mixed with the lines of the report.
    configure_logs("console", level="critical")
    app = load_app(app_path)

    async def run() -> T:
        async with (
            existing_events(url, app.serializer_at(url)) as store,
            open_directory(url) as directory,
        ):
            entry = await directory.find(aggregate_id)
            if entry is None:
                raise AggregateNotFound(
                    f"there is no aggregate {aggregate_id!r}; `headrace aggregate list` lists those that"
                    " there are"
                )
            past = Past(store, app.definition.aggregates, personal=True)
            return await read(past, entry.version)

    return asyncio.run(run())
