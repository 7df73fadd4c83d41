"""`headrace command`: commands in flight, the result of one, and the newest results."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import WHOLE_MAX, AppPath, BrokerAddress, EventStoreUrl, ReadModelsUrl
from headrace.cli.queue.administration import AsJson, ask, print_json
from headrace.cli.tables import print_table
from headrace.figures.records import ROWS_MAX, word
from headrace.figures.words import age, when

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for databases
    from headrace.app import App
    from headrace.settings import Settings

__all__ = ["commands"]

commands = typer.Typer(help="Commands of an application, and their results.", no_args_is_help=True)

_DEFAULT_STORE = "sqlite:///var/events.db"
_DEFAULT_MODELS = "sqlite:///var/read.db"
_UNKNOWN = 1


@commands.command("list")
def list_in_flight(
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    read_models: ReadModelsUrl = _DEFAULT_MODELS,
    page: Annotated[int, typer.Option(min=1, help="Which page of those that wait.")] = 1,
    rows: Annotated[int, typer.Option(min=1, max=ROWS_MAX, help="How many on a page.")] = 50,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """List what waits in the queues of commands, who has it, and how many are parked."""
    from headrace.journey.in_flight import commands_in_flight

    app, settings = _application(app_path, event_store, read_models)
    found = ask(
        broker, lambda admin: commands_in_flight(admin, app, settings, page=page, rows=rows)
    )
    if as_json:
        print_json(found)
        return
    print_table(
        ("topic", "queue", "waiting", "oldest waits", "done up to", "member"),
        (
            (
                one["topic"], one["queue_id"], one["waiting"], age(found["now_ms"], one["oldest_at_ms"]),
                one["done_up_to"], word(one["member"]),
            )
            for one in found["queues"]
        ),
    )  # fmt: skip
    if found["waiting"]:
        print_table(
            ("command", "id", "aggregate", "sent (UTC)", "before it", "state", "handler"),
            (
                (
                    word(one["command"]), word(one["command_id"]), word(one["aggregate_id"]),
                    when(one["stored_at_ms"]), one["before"], one["state"], one["handler"],
                )
                for one in found["waiting"]
            ),
        )  # fmt: skip
    if found["hidden"]:
        typer.echo(f"ids and states of commands are hidden: it {found['hidden']}")
    parked = sum(one["commands"] for one in found["parked"])
    typer.echo(
        f"{found['total']:,} wait, page {found['page']} of {found['pages']}; {parked:,} are parked, and {found['held']:,}"
        f" held behind them; {found['members']} members{', paused' if found['paused'] else ''}"
    )


@commands.command()
def show(
    command_id: Annotated[str, typer.Argument(metavar="ID", help="Which command.")],
    *,
    aggregate: Annotated[
        str, typer.Option(metavar="ID", help="Its aggregate; finds it however old it is.")
    ] = "",
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    read_models: ReadModelsUrl = _DEFAULT_MODELS,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Show the result of a command. Exit status 1 if nothing is known of it."""
    from headrace.journey.command_result import command_found, plain_result

    app, settings = _application(app_path, event_store, read_models)
    found = ask(broker, lambda admin: command_found(admin, app, settings, command_id, aggregate))
    told = plain_result(found)
    stream = found.stream
    told["events"] = (
        [each.message_name for each in (*stream.events, *stream.messages)] if stream else []
    )
    if as_json:
        print_json(told)
    else:
        rows = ((name.replace("_", " "), _text(value)) for name, value in told.items())
        print_table(("", ""), ((name, value) for name, value in rows if value))
    if told["status"] == "unknown":
        raise typer.Exit(_UNKNOWN)


@commands.command()
def results(
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    read_models: ReadModelsUrl = _DEFAULT_MODELS,
    before: Annotated[
        int | None,
        typer.Option(min=1, max=WHOLE_MAX, help="Only positions below, the last of a page."),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=ROWS_MAX, help="How many at most.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest results, and how many of the newest 1,000 had which status and error."""
    from headrace.cli.queue.administration import quiet
    from headrace.journey.command_result import newest_results, result_row

    quiet()
    app, settings = _application(app_path, event_store, read_models)
    found = asyncio.run(newest_results(app, settings, before=before, rows=rows))
    shown = [result_row(one) for one in found.page]
    if as_json:
        print_json(found.plain | {"results": shown})
        return
    print_table(
        ("status", "error", "commands"),
        ((one["status"], one["error"], one["commands"]) for one in found.plain["outcomes"]),
    )
    print_table(
        ("position", "recorded (UTC)", "command", "aggregate", "version", "status", "events or cause"),
        (
            (
                one["position"], one["recorded_at"][:19].replace("T", " "), word(one["command_id"]),
                word(one["aggregate_id"]), one["version"], one["status"],
                word(", ".join(one["events"]) or ": ".join(each for each in (one["error"], one["sentence"]) if each)),
            )
            for one in shown
        ),
    )  # fmt: skip
    parked, conflicts = sum(found.parked.values()), found.plain["conflicts"]
    further = f"; go on with --before {found.following}" if found.following is not None else ""
    typer.echo(f"{parked:,} are parked, {conflicts:,} of them after too many conflicts{further}")


def _application(path: str, event_store: str, read_models: str) -> "tuple[App, Settings]":
    """The application, and the databases that are there."""
    from headrace.app import load_app
    from headrace.settings import Settings
    from headrace.stores.database.schema import check

    async def look() -> None:
        for url in (event_store, read_models):
            await check(url)

    app = load_app(path)
    asyncio.run(look())
    return app, Settings(event_store=event_store, read_models=read_models)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(word(str(each)) for each in value)
    return "" if value is None else word(str(value))
