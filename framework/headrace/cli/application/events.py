"""`headrace events`: publishes what the event topic lacks, and exports events to files for analysis."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import (
    AppPath,
    EventStoreUrl,
    LogFormat,
    QueueAddress,
    ReadModelsUrl,
    Unsealed,
    vouching_store,
)

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for databases
    from headrace.app import App
    from headrace.events.republication import Republished
    from headrace.settings import Settings

__all__ = ["commands"]

commands = typer.Typer(help="The event topic.", no_args_is_help=True)


@commands.callback()
def _events() -> None:
    """The event topic."""


@commands.command()
def republish(
    *,
    app_path: AppPath,
    broker: QueueAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Recreate the topic first, with exactly the events of the event store. No"
            " service may run. This store is then the one that readers belong to.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what is missing; change nothing.")
    ] = False,
    log_format: LogFormat = "console",
) -> None:
    """Publish what the event store has and the event topic lacks, in each aggregate's order.

    If it is killed half way, run it again: it finds what was published.
    """
    from headrace.app import load_app
    from headrace.cli.logs import configure_logs
    from headrace.cli.queue.administration import quiet
    from headrace.settings import Settings

    configure_logs(log_format)
    quiet()
    settings = Settings(broker=broker, event_store=event_store, read_models=read_models)
    app = load_app(app_path)
    done = asyncio.run(_republish(app, settings, replace=replace, dry_run=dry_run))
    verb = "are missing" if dry_run else "were missing and are there now"
    published = done.stored if replace else done.published
    typer.echo(
        f"{published:,} of {done.stored:,} streams {verb}; the topic held {done.held:,} of them"
    )
    if done.damaged:
        typer.echo(
            f"{done.damaged:,} streams cannot be read and were left out; `headrace stream check`"
            " names them",
            err=True,
        )


async def _republish(
    app: "App", settings: "Settings", *, replace: bool, dry_run: bool
) -> "Republished":
    from headrace.cli.application.databases import existing_events, existing_read_models
    from headrace.events.publisher import event_topic
    from headrace.events.republication import Republication
    from headrace.events.sealed_transport import seal_events
    from headrace.lineage.adoption import adopt_store
    from headrace.lineage.check import topic_reader
    from headrace.transports.open import open_transport

    topic = event_topic(app.name)
    serializer = app.serializer_at(settings.event_store)
    async with existing_events(settings.event_store, serializer) as store:
        if replace and not dry_run:
            await _delete(settings.broker or "", topic)
        async with open_transport(settings.broker) as plain:
            transport, _ = await seal_events(plain, app.name, store, serializer)
            if not dry_run:
                await transport.ensure_topic(topic, queues=settings.event_queues, forever=True)
            republication = Republication(
                name=app.name,
                store=store,
                transport=transport,
                serializer=serializer,
                settings=settings,
            )
            done = await republication.run(dry_run=dry_run)
        if replace and not dry_run:
            async with existing_read_models(settings.read_models) as models:
                names = [name for name in app.readers.values() if name not in app.projections]
                await adopt_store(models, store, names=names, topic=topic_reader(topic))
        return done


async def _delete(broker: str, topic: str) -> None:
    """Deletes a topic; its consumer groups start from the beginning of the next topic of that name.

    Raises:
        HeadraceError: a member of a group reads it; or the queue is a Kafka cluster.
    """
    from headrace.errors import HeadraceError
    from headrace.transports.kafka.address import is_kafka
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.errors import GroupNotEmpty, TopicInUse, TopicNotFound

    if is_kafka(broker):
        raise HeadraceError(
            f"--replace is for the built-in queue; delete topic {topic} with kafka-topics --delete, and"
            " start the service: it publishes what the topic lacks"
        )
    async with AdminClient(broker) as admin:
        try:
            await admin.freeze(topic, writing=True, reading=True)
        except TopicNotFound:
            return
        try:
            for group in await admin.groups():
                if topic in (await admin.group(group.group)).topics:
                    await admin.reset_offsets(group.group, "latest", topics=[topic])
            await admin.delete_queues(topic)
        except (GroupNotEmpty, TopicInUse) as error:
            await admin.thaw(topic)
            raise HeadraceError(
                f"{topic} is being read ({error}); stop the services, then run this again"
            ) from error


@commands.command()
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where parts are kept; made if it is not there.")
    ],
    *,
    app_path: AppPath,
    to: Annotated[str, typer.Option("--to", help="The format: 'parquet'.")] = "parquet",
    broker: QueueAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    unsealed: Unsealed = False,
    held_only: Annotated[
        bool,
        typer.Option(
            "--held-only", help="Begin with what a trimmed topic holds; earlier events lack."
        ),
    ] = False,
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
    part = export_events(
        app_path, folder, broker=broker, event_store_url=store, held_only=held_only
    )
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
