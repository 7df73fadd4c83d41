"""`headrace history`: seals the events of a topic in files, checks them, and trims the topic behind them."""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from headrace.cli.options import (
    AppPath,
    BrokerAddress,
    EventStoreUrl,
    LogFormat,
    QueueAddress,
    ReadModelsUrl,
)
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for databases
    from collections.abc import Callable

    from headrace.spark.history.seal import Sealing

__all__ = ["commands"]

commands = typer.Typer(help="The events of a topic, sealed in files.", no_args_is_help=True)

_DIFFERS = 1

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Where the parts are kept.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]


@commands.callback()
def _history() -> None:
    """The events of a topic, sealed in files."""


@commands.command()
def seal(
    folder: Folder,
    *,
    app_path: AppPath,
    broker: QueueAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    once: Annotated[
        bool, typer.Option("--once", help="Seal what there is now, then end (default).")
    ] = False,
    every: Annotated[
        str,
        typer.Option(metavar="TIME", help="Keep running: a new part after this time, such as 1h."),
    ] = "",
    part_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="With --every: a new part earlier, once about so many bytes wait.",
        ),
    ] = "256MiB",
    json: AsJson = False,
    log_format: LogFormat = "console",
) -> None:
    """Write what the topic holds beyond the last part, and compare it with the event store.

    Exit status 1: a part and the event store differ. Stop it with SIGTERM.
    """
    from headrace.cli.amounts import duration_ms, size_bytes
    from headrace.cli.logs import configure_logs
    from headrace.spark.history.seal import seal_history, sealing

    configure_logs(log_format)
    if once and every:
        raise typer.BadParameter("use one of --once and --every", param_hint="--every")
    every_ms, part_size = duration_ms(every or "0"), size_bytes(part_bytes)
    if every and not every_ms:
        raise typer.BadParameter("use a time above 0", param_hint="--every")

    def seal_once() -> "Sealing":
        outcome = seal_history(app_path, folder, broker=broker, event_store_url=event_store)
        _show_sealing(folder, outcome, as_json=json)
        return outcome

    with sealing(folder):
        if every:
            waiting = _waiting(app_path, folder, broker)
            _keep_sealed(seal_once, waiting, every_ms=every_ms, part_bytes=part_size)
        elif seal_once().differences:
            sys.exit(_DIFFERS)


@commands.command()
def trim(
    folder: Folder,
    *,
    app_path: AppPath,
    broker: BrokerAddress = "127.0.0.1:9876",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="Keep younger messages in the topic, such as 30d.")
    ] = "",
    before: Annotated[
        str,
        typer.Option(metavar="QUEUE:OFFSET,…", help="Let go what lies below, of these queues."),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would go; change nothing.")
    ] = False,
    json: AsJson = False,
    log_format: LogFormat = "console",
) -> None:
    """Let the event topic forget what is sealed, and what every reader of the application is past.

    Whole segments go, once all topics kept forever have released what is in them.
    """
    from headrace.cli.amounts import duration_ms
    from headrace.cli.logs import configure_logs
    from headrace.spark.history.trim import trim_history

    configure_logs(log_format)
    if bool(keep) == bool(before):
        raise typer.BadParameter("use one of --keep and --before", param_hint="--keep")
    done = asyncio.run(
        trim_history(
            app_path,
            folder,
            broker=broker,
            read_models_url=read_models,
            keep_ms=duration_ms(keep or "0"),
            before=_offsets_in(before) if before else None,
            dry_run=dry_run,
        )
    )
    if json:
        typer.echo(done.to_json())
        return
    offsets = " ".join(f"{queue}:{offset:,}" for queue, offset in sorted(done.released.items()))
    verb = "would be released" if dry_run else "are released"
    typer.echo(f"messages of {done.topic} {verb} below {offsets}")
    if not dry_run:
        typer.echo(f"{done.segments:,} segments with {done.bytes:,} bytes went now")
    if done.holding:
        typer.echo(f"the next segment stays because of {', '.join(done.holding)}")


def _offsets_in(text: str) -> dict[int, int]:
    try:
        pairs = (each.split(":") for each in text.split(","))
        found = {int(queue): int(offset) for queue, offset in pairs}
    except ValueError as error:
        raise typer.BadParameter("write it like 0:1000,1:2000", param_hint="--before") from error
    if min(*found, *found.values()) < 0:
        raise typer.BadParameter("queues and offsets count from 0", param_hint="--before")
    return found


def _keep_sealed(
    seal_once: "Callable[[], Sealing]",
    waiting: "Callable[[], int]",
    *,
    every_ms: int,
    part_bytes: int,
) -> None:
    from headrace._runtime.clock import SystemClock
    from headrace.spark.history.pace import keep_sealed

    _stop_on_signals()
    typer.echo("headrace history ready", err=True)
    keep_sealed(
        seal_once,
        waiting=waiting,
        every_ms=every_ms,
        part_bytes=part_bytes,
        clock=SystemClock(),
        pause=_pause,
    )
    sys.exit(_DIFFERS)


def _waiting(app_path: str, folder: Path, broker: str) -> "Callable[[], int]":
    from headrace.app import load_app
    from headrace.events.publisher import event_topic
    from headrace.spark.history.pace import waiting_in

    topic = event_topic(load_app(app_path).name)
    return lambda: waiting_in(folder, broker, topic)


@commands.command("list")
def list_(folder: Folder, *, json: AsJson = False) -> None:
    """List the parts of a folder: what they hold, and whether they are sealed."""
    from headrace.spark.history.overview import overview

    parts = overview(folder)
    if json:
        for part in parts:
            typer.echo(part.to_json())
    elif not parts:
        typer.echo(f"{folder} holds no parts")
    else:
        print_table(
            ("part", "messages", "events", "bytes", "sealed (UTC)", "offsets"),
            (
                (
                    part.part, part.messages, part.events, part.bytes,
                    f"{part.sealed_at:%Y-%m-%d %H:%M:%S}" if part.sealed_at else None,
                    " ".join(f"{q}:{part.start[q]}-{end}" for q, end in sorted(part.end.items())),
                )
                for part in parts
            ),
        )  # fmt: skip


@commands.command()
def verify(
    folder: Folder,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    json: AsJson = False,
    log_format: LogFormat = "console",
) -> None:
    """Compare every file with its digest, and every message with the event store.

    Exit status 1: something differs, which is named.
    """
    from headrace.cli.logs import configure_logs
    from headrace.spark.history.seal import verify_history

    configure_logs(log_format)
    found = verify_history(app_path, folder, event_store_url=event_store)
    if json:
        typer.echo(found.to_json())
    else:
        typer.echo(
            f"{found.sealed:,} of {found.parts:,} parts are sealed; {found.messages:,} messages were"
            f" compared with the event store, {found.foreign:,} of them are foreign"
        )
        for sentence in found.differences:
            typer.echo(sentence)
    if found.differences:
        sys.exit(_DIFFERS)


def _show_sealing(folder: Path, outcome: "Sealing", *, as_json: bool) -> None:
    if as_json:
        typer.echo(outcome.to_json())
        return
    for record in outcome.sealed:
        typer.echo(
            f"part {record.part} of {folder} is sealed: {record.messages:,} messages, the same as in"
            f" event store {record.store[:8]}"
        )
    if not outcome.sealed and not outcome.differences:
        typer.echo(f"{folder} holds everything already, in {outcome.parts:,} parts")
    for sentence in outcome.notes:
        typer.echo(f"note: {' '.join(sentence.split())}")
    for sentence in outcome.differences:
        typer.echo(f"not sealed: {sentence}", err=True)


def _stop_on_signals() -> None:
    """Ends the process at a signal: what was begun is given up, which leaves the folder whole.

    At once, as a kill does. An exception would come out wherever the work is: an event loop or a database
    driver would catch it and go on.
    """

    def stop(*_: object) -> NoReturn:
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _pause(pause_ms: int) -> None:
    threading.Event().wait(pause_ms / 1_000)
