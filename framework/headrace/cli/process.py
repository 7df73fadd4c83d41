"""`headrace process`: the instances of processes, and what makes them stand still."""

import asyncio
import dataclasses
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.cli.options import AppPath, EventStoreUrl, ReadModelsUrl

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace._projecting.processes import Processes, ProcessInstance
    from headrace._projecting.stuck import StuckInstances

__all__ = ["commands"]

commands = typer.Typer(help="Instances of processes.", no_args_is_help=True)

T = TypeVar("T")

Name = Annotated[str, typer.Argument(help="The process's name.")]
Key = Annotated[str, typer.Argument(help="The instance's key.")]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON per instance.")]

_NOT_ALL = 1


@commands.command("list")
def list_instances(
    name: Annotated[str | None, typer.Argument(help="A process's name; none: all.")] = None,
    *,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    stuck: Annotated[bool, typer.Option("--stuck", help="Only those that stand still.")] = False,
    ended: Annotated[bool, typer.Option("--ended", help="Those that have ended, too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most; 1,000 is the most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List running instances, and why those that stand still do."""
    found = _look(read_models, lambda one: one.all(name, stuck=stuck, ended=ended, limit=limit))
    if as_json:
        for one in found:
            typer.echo(json.dumps(_plain(one)))
        return
    if not found:
        typer.echo("no such instances")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("process", "instance", "last event", "since", "pending", "stuck", box=None)
    for one in found:
        table.add_row(
            one.process,
            one.key,
            one.last_event,
            _moment(one.changed_at),
            str(len(one.pending)),
            "ended" if one.ended else ", ".join(each.kind for each in one.stuck),
        )
    Console().print(table)


@commands.command()
def show(
    name: Name,
    key: Key,
    *,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """Show an instance: state, last event, what is pending, why it stands still."""
    found = _look(read_models, lambda one: one.get(name, key))
    if as_json:
        typer.echo(json.dumps(_plain(found)))
        return
    typer.echo(f"{found.process} {found.key}: {'ended' if found.ended else 'running'}")
    typer.echo(f"state     {json.dumps(found.state)}")
    typer.echo(f"since     {_moment(found.began_at)}, {found.seen} seen, {found.waiting} waiting")
    typer.echo(
        f"last      {found.last_event} of {found.last_aggregate_id} at {_moment(found.changed_at)}"
    )
    for one in found.pending:
        when = "not sent yet" if one.due is None else f"due {_moment(one.due)}"
        typer.echo(f"pending   {one.name} to {one.aggregate_id}, {when}")
    for reason in found.stuck:
        typer.echo(f"{reason.kind:<9} {reason.sentence}")


@commands.command()
def retry(
    name: Name,
    keys: Annotated[
        list[str] | None, typer.Argument(help="Keys of parked instances; none: all of them.")
    ] = None,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
) -> None:
    """Handle what waits, with the code of now. Exit status 1 if something still cannot be.

    Commands that follow are sent by the running application, within seconds.
    """

    async def run(parked: "StuckInstances", instances: "Processes") -> list[tuple[str, str | None]]:
        every = keys or [
            one.key
            for one in await instances.all(name, stuck=True)
            if any(reason.kind == "parked" for reason in one.stuck)
        ]
        return [(key, await parked.retry(key)) for key in every]

    outcomes = _repair(app_path, name, event_store, read_models, run)
    left = [(key, error) for key, error in outcomes if error is not None]
    typer.echo(f"{len(outcomes) - len(left)} of {len(outcomes)} instances of {name} go on")
    for key, error in left:
        typer.echo(f"{key}: {error}", err=True)
    if left:
        sys.exit(_NOT_ALL)


@commands.command()
def skip(
    name: Name,
    key: Key,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
) -> None:
    """Leave out the one event that cannot be handled, then handle what waits behind it."""

    async def run(parked: "StuckInstances", _instances: "Processes") -> str | None:
        return await parked.skip(key)

    error = _repair(app_path, name, event_store, read_models, run)
    if error is not None:
        typer.echo(f"{key} has another one that cannot be handled: {error}", err=True)
        sys.exit(_NOT_ALL)
    typer.echo(f"{key} goes on without it")


@commands.command("prune")
def prune_ended(
    name: Name,
    *,
    before: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Those that ended before; ISO 8601, or ms since 1970 UTC."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
) -> None:
    """Delete ended instances with journal and commands, a few at a time; others go on meanwhile.

    A running application does it by itself after `process_ended_ms`.
    """
    from headrace._projecting.pruning import PRUNED_MAX, count_ended, prune
    from headrace.cli.administering import milliseconds
    from headrace.cli.existing import existing_read_models

    moment = datetime.fromtimestamp(milliseconds(before, "--before") / 1_000, UTC)

    async def run() -> int:
        async with existing_read_models(read_models) as models:
            if dry_run:
                return await models.transact(partial(count_ended, process=name, before=moment))
            pruned, last = 0, PRUNED_MAX
            while last == PRUNED_MAX:
                last = await models.transact(partial(prune, process=name, before=moment))
                pruned += last
            return pruned

    count = asyncio.run(run())
    typer.echo(f"{count} ended instances of {name} {'would be' if dry_run else 'were'} pruned")


def _look(read_models: str, work: "Callable[[Processes], Awaitable[T]]") -> T:
    from headrace._projecting.processes import Processes
    from headrace.cli.existing import existing_read_models

    async def run() -> T:
        async with existing_read_models(read_models) as models:
            return await work(Processes(models))

    return asyncio.run(run())


def _repair(
    app_path: str,
    name: str,
    event_store: str,
    read_models: str,
    work: "Callable[[StuckInstances, Processes], Awaitable[T]]",
) -> T:
    from headrace._projecting.processes import Processes
    from headrace._projecting.stuck import StuckInstances
    from headrace.app import load_app
    from headrace.cli.existing import existing_events, existing_read_models
    from headrace.cli.logs import configure_logs

    configure_logs("console")
    app = load_app(app_path)
    process, serializer = app.process(name), app.serializer

    async def run() -> T:
        async with (
            existing_read_models(read_models) as models,
            existing_events(event_store, serializer) as store,
        ):
            parked = StuckInstances(process, models, store, serializer)
            return await work(parked, Processes(models))

    return asyncio.run(run())


def _plain(instance: "ProcessInstance") -> Any:
    """Returns an instance as JSON values; the names are its attributes'."""
    return json.loads(json.dumps(dataclasses.asdict(instance), default=datetime.isoformat))


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
