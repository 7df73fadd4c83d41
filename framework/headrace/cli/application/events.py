"""`headrace events`: publishes what the event topic lacks, and exports events to files for analysis."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.application import republish
from headrace.cli.options import (
    AppPath,
    BrokerAddress,
    EventStoreUrl,
    LogFormat,
    Unsealed,
    vouching_store,
)

__all__ = ["commands"]

commands = typer.Typer(help="The event topic.", no_args_is_help=True)
commands.command()(republish.republish)


@commands.callback()
def _events() -> None:
    """The event topic."""


@commands.command()
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where parts are kept; made if it is not there.")
    ],
    *,
    app_path: AppPath,
    to: Annotated[str, typer.Option("--to", help="The format: 'parquet'.")] = "parquet",
    broker: BrokerAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    unsealed: Unsealed = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
    log_format: LogFormat = "console",
) -> None:
    """Export the events that no earlier export has, each once; a part is written whole or not at all."""
    from headrace.cli.logs import configure_logs
    from headrace.spark.analysis.export import export_events

    configure_logs(log_format)
    if to != "parquet":
        raise typer.BadParameter("use 'parquet'", param_hint="--to")
    store = vouching_store(event_store, unsealed=unsealed)
    part = export_events(app_path, folder, broker=broker, event_store_url=store)
    if json:
        typer.echo(part.to_json())
        return
    if not part.number:
        typer.echo(f"{folder} holds everything already")
        return
    typer.echo(
        f"{part.messages:,} messages with {sum(part.events.values()):,} events are in part"
        f" {part.number} of {folder}: {part.bytes:,} bytes"
    )
    for name, count in sorted(part.events.items()):
        typer.echo(f"  {name}: {count:,}")
    for name, count in sorted(part.unknown.items()):
        typer.echo(f"  {name}: {count:,}, unknown to the application; in messages/ only")
    for sentence in part.left_out.values():
        typer.echo(f"left out from there on, in messages/ only: {' '.join(sentence.split())}")
