"""`headrace process`: lists, shows and prunes the instances of processes."""

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.cli.options import ReadModelsUrl
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace.processes.overview import Processes, ProcessInstance

__all__ = ["commands"]

commands = typer.Typer(help="Instances of processes.", no_args_is_help=True)

T = TypeVar("T")

Name = Annotated[str, typer.Argument(help="The process's name.")]
Key = Annotated[str, typer.Argument(help="The instance's key.")]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON per instance.")]


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
    print_table(
        ("process", "instance", "last event", "since (UTC)", "pending", "stuck"),
        (
            (
                one.process, one.key, one.last_event, _moment(one.changed_at), len(one.pending),
                "ended" if one.ended else ", ".join(each.kind for each in one.stuck),
            )
            for one in found
        ),
    )  # fmt: skip


@commands.command()
def show(
    name: Name,
    key: Key,
    *,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
) -> None:
    """Show an instance: state, last event, what is pending, why it stands still, and where."""
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
        if reason.traceback:
            typer.echo(reason.traceback)


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
    from headrace.cli.application.databases import existing_read_models
    from headrace.cli.queue.administration import milliseconds
    from headrace.processes.pruned import PRUNED_MAX, count_ended, prune

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
    from headrace.cli.application.databases import existing_read_models
    from headrace.processes.overview import Processes

    async def run() -> T:
        async with existing_read_models(read_models) as models:
            return await work(Processes(models))

    return asyncio.run(run())


def _plain(instance: "ProcessInstance") -> Any:
    """Returns an instance as JSON values; the names are its attributes'."""
    return json.loads(json.dumps(dataclasses.asdict(instance), default=datetime.isoformat))


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
