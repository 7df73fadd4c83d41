"""`headrace stream`: what the event store holds, of one aggregate or of all."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import WHOLE_MAX, AppPath, EventStoreUrl

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for databases
    from headrace._domain.stream import EventStream
    from headrace.serialization import Serializer
    from headrace.stores.base import EventStore

__all__ = ["commands"]

commands = typer.Typer(help="Look at what the event store holds.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each stream.")]

_DEFAULT_STORE = "sqlite:///var/events.db"
# Streams read in one statement: enough to be quick, little memory.
_PAGE = 500

# Position, where known, and stream.
_Placed = tuple[int | None, "EventStream"]


@commands.command()
def show(
    aggregate_id: Annotated[str, typer.Argument(metavar="ID", help="Whose events.")],
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    after: Annotated[
        int, typer.Option(min=0, max=WHOLE_MAX, help="Leave out the versions up to this one.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the events of one aggregate, each as this application reads it.

    Exit status 1: the aggregate has no events.
    """

    async def read(store: "EventStore") -> list[_Placed]:
        return [
            (None, stream) for stream in await store.read_stream(aggregate_id, after_version=after)
        ]

    serializer, found = _read(app_path, event_store, read)
    if as_json:
        _print_lines(serializer, found)
    else:
        _show_events(found)
    if not found:
        typer.echo(f"{aggregate_id} has no events after version {after}", err=True)
        raise typer.Exit(1)


@commands.command(name="list")
def list_streams(
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    after: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=WHOLE_MAX,
            help="Begin behind this position; the newest are shown without it.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many positions at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List what all aggregates stored, rejections included, in the order of storing."""

    async def read(store: "EventStore") -> list[_Placed]:
        position = max(0, await store.last_position() - limit) if after is None else after
        found: list[_Placed] = []
        while len(found) < limit:
            page = await store.read_all(
                after_position=position, limit=min(_PAGE, limit - len(found))
            )
            if not page:
                break
            found += [(each.position, each.stream) for each in page]
            position = page[-1].position
        return found

    serializer, found = _read(app_path, event_store, read)
    if as_json:
        _print_lines(serializer, found)
    else:
        _show_streams(found)


def _read(
    app_path: str, url: str, read: Callable[["EventStore"], Awaitable[list[_Placed]]]
) -> tuple["Serializer", list[_Placed]]:
    from headrace.app import load_app
    from headrace.cli.existing import existing_events
    from headrace.cli.logs import configure_logs

    # Its lines would stand between those of the report.
    configure_logs("console", level="critical")
    serializer = load_app(app_path).serializer

    async def open_and_read() -> list[_Placed]:
        async with existing_events(url, serializer) as store:
            return await read(store)

    return serializer, asyncio.run(open_and_read())


def _print_lines(serializer: "Serializer", found: Sequence[_Placed]) -> None:
    import msgspec

    for position, stream in found:
        content: dict[str, Any] = msgspec.json.decode(serializer.encode_stream(stream))
        if position is not None:
            content = {"position": position, **content}
        typer.echo(msgspec.json.encode(content))


def _show_events(found: Sequence[_Placed]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("version", "recorded", "command", "event", "fields", box=None)
    for _, stream in found:
        for event, context in stream.contexts():
            first = context.sequence == 1
            table.add_row(
                f"{context.version:,}" if first else "",
                f"{context.recorded_at:%Y-%m-%d %H:%M:%S}" if first else "",
                context.command_id if first else "",
                event.message_name,
                event.model_dump_json(),
            )
    if found:
        Console().print(table)


def _show_streams(found: Sequence[_Placed]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("position", "recorded", "type", "aggregate", "version", "what", box=None)
    for position, stream in found:
        rejection = stream.rejection
        table.add_row(
            f"{position:,}",
            f"{stream.recorded_at:%Y-%m-%d %H:%M:%S}",
            stream.aggregate_type,
            stream.aggregate_id,
            "" if stream.version is None else f"{stream.version:,}",
            ", ".join(each.message_name for each in (*stream.events, *stream.messages)) or "nothing"
            if rejection is None
            else f"{rejection.command_name} rejected: {rejection.error}",
        )
    Console().print(table)
