"""`headrace message trace`: follows a message or a command, hop by hop."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import WHOLE_MAX, BrokerAddress, EventStoreUrl, ReadModelsUrl
from headrace.cli.queue.administration import AsJson, ask, print_json
from headrace.cli.tables import one_line, print_table
from headrace.figures.records import described, sender_of, word
from headrace.figures.words import when

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for databases
    from headrace.journey.trace import Trace, TraceTarget

__all__ = ["trace"]


def trace(
    message_id: Annotated[
        str, typer.Argument(metavar="[ID]", help="TOPIC:QUEUE:OFFSET of a message.")
    ] = "",
    *,
    command: Annotated[str, typer.Option(metavar="ID", help="Follow this command.")] = "",
    aggregate: Annotated[
        str, typer.Option(metavar="ID", help="Its aggregate; or, with --version, whose version.")
    ] = "",
    version: Annotated[
        int, typer.Option(min=0, max=WHOLE_MAX, help="Follow what made this version.")
    ] = 0,
    app_path: Annotated[
        str, typer.Option("--app", envvar="HEADRACE_APP", help="Application as MODULE:ATTRIBUTE.")
    ] = "",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Show what happened to a message or a command, and where it stands. Exit status 1 if nothing is known of it.

    With --app: what the command did, who has handled its events, and which commands followed. Consumers of messages tell
    times only if their setting `trace_share` records the message.
    """
    from headrace.journey.trace import TraceTarget

    try:
        wanted = TraceTarget(
            message_id=message_id, command_id=command, aggregate_id=aggregate, version=version
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ID") from error
    if not (message_id or app_path):
        raise typer.BadParameter(
            "name the application, which knows its commands", param_hint="--app"
        )
    found, told = _look(broker, wanted, app_path, event_store, read_models)
    if as_json:
        print_json(told | {name: each for name, each in found.plain.items() if name != "id"})
    if not found.journey.hops:
        typer.echo(found.missing, err=True)
        raise typer.Exit(1)
    if not as_json:
        _show(found)


def _look(
    broker: str, wanted: "TraceTarget", app_path: str, event_store: str, read_models: str
) -> "tuple[Trace, dict[str, Any]]":
    """Returns what was found, and the message and its steps for programs."""
    import msgspec

    from headrace.journey.trace import trace_message

    async def question(admin: Any) -> "tuple[Trace, dict[str, Any]]":
        if app_path:
            found = await _application(admin, wanted, app_path, event_store, read_models)
        else:
            found = await trace_message(admin, wanted.message_id)
        record = found.record
        senders = {} if record is None else await admin.producers([record])
        message = None if record is None else described(record) | sender_of(record, senders)
        steps = await admin.steps(found.message_id) if found.message_id else []
        return found, {"message": message, "steps": msgspec.to_builtins(steps)}

    try:
        return ask(broker, question)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ID") from error


async def _application(
    admin: Any, wanted: "TraceTarget", app_path: str, event_store: str, read_models: str
) -> "Trace":
    from headrace.app import load_app
    from headrace.journey.command_trace import trace_application
    from headrace.settings import Settings
    from headrace.stores.database.schema import check

    app = await asyncio.to_thread(load_app, app_path)
    for url in (event_store, read_models):
        await check(url)
    settings = Settings(event_store=event_store, read_models=read_models)
    return await trace_application(admin, app, settings, wanted)


def _show(found: "Trace") -> None:
    if found.command is not None:
        chain = found.command["caused_by"]
        told = f"command {found.command['name']} {found.command['id']} of {found.command['aggregate_id']}"
        typer.echo(
            one_line(" ".join(told.split()) + (f", in the chain of {chain}" if chain else ""))
        )
    hops = found.journey.arranged()
    print_table(
        ("hop", "after", "time (UTC)", "ms", "step", "what or who", "state", "detail"),
        (
            (
                one.number, one.after, when(one.at_ms or 0), one.took_ms, one.step, word(one.name), one.state,
                word(": ".join(each for each in (one.cause, one.detail) if each)),
            )
            for one in hops
        ),
    )  # fmt: skip
