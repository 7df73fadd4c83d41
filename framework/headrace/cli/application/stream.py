"""`headrace stream`: shows and checks what the event store holds, of one aggregate or of all."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Union

import typer

from headrace.cli.options import WHOLE_MAX, AppPath, EventStoreUrl
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for databases
    from headrace.errors import DamagedStream
    from headrace.serialization import Serializer
    from headrace.stores.base import EventStore, StoredStream

__all__ = ["commands"]

commands = typer.Typer(help="Look at what the event store holds.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each stream.")]

_DEFAULT_STORE = "sqlite:///var/events.db"
# Streams read in one statement: enough to be quick, little memory.
_PAGE = 500

_Entry = Union["StoredStream", "DamagedStream"]


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

    Exit status 1: the aggregate has no events, or some cannot be read, which are named.
    """

    async def read(store: "EventStore") -> list[_Entry]:
        found: list[_Entry] = []
        while page := await store.survey(
            aggregate_id=aggregate_id,
            after_position=found[-1].position if found else 0,
            limit=_PAGE,
        ):
            found += page
        return found

    serializer, every = _read(app_path, event_store, read)
    found = [each for each in every if (_version_of(each) or 0) > after]
    if as_json:
        _print_lines(serializer, found, with_position=False)
    else:
        _show_events(found)
    if any(map(_is_damaged, found)):
        raise typer.Exit(1)
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
    """List what all aggregates stored, rejections included, in the order of storing.

    Streams that cannot be read are named where they stand.
    """

    async def read(store: "EventStore") -> list[_Entry]:
        position = max(0, await store.last_position() - limit) if after is None else after
        found: list[_Entry] = []
        while len(found) < limit:
            page = await store.survey(after_position=position, limit=min(_PAGE, limit - len(found)))
            if not page:
                break
            found += page
            position = page[-1].position
        return found

    serializer, found = _read(app_path, event_store, read)
    if as_json:
        _print_lines(serializer, found)
    else:
        _show_streams(found)


@commands.command()
def check(
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    fill_in: Annotated[
        bool,
        typer.Option(
            "--fill-in",
            help="Add checksums, computed now, to streams that were stored without one.",
        ),
    ] = False,
) -> None:
    """Read every stream and name those that are not what was stored, or do not decode.

    Exit status 1: there is one.
    """
    from headrace.app import load_app
    from headrace.cli.logs import configure_logs
    from headrace.stores.audit import audit
    from headrace.stores.database.schema import check as check_schema

    configure_logs("console", level="critical")
    serializer = load_app(app_path).serializer_at(event_store)

    def tell(damaged: "DamagedStream") -> None:
        typer.echo(
            f"position {damaged.position}: {_place_of(damaged)}, command {damaged.command_id}:"
            f" {_in_a_line(damaged.why)}"
        )

    async def walk() -> Any:
        await check_schema(event_store)
        return await audit(event_store, serializer, fill_in=fill_in, tell=tell)

    found = asyncio.run(walk())
    typer.echo(f"{found.streams:,} streams read, {found.damaged:,} damaged")
    if found.filled_in:
        typer.echo(f"{found.filled_in:,} were given a checksum")
    if found.without:
        typer.echo(
            f"{found.without:,} were written before there were checksums; --fill-in gives them one"
        )
    if found.damaged:
        raise typer.Exit(1)


def _read(
    app_path: str, url: str, read: Callable[["EventStore"], Awaitable[list[_Entry]]]
) -> tuple["Serializer", list[_Entry]]:
    from headrace.app import load_app
    from headrace.cli.application.databases import existing_events
    from headrace.cli.logs import configure_logs

    # Its log lines would be mixed with the lines of the report.
    configure_logs("console", level="critical")
    serializer = load_app(app_path).serializer_at(url)

    async def open_and_read() -> list[_Entry]:
        async with existing_events(url, serializer) as store:
            return await read(store)

    return serializer, asyncio.run(open_and_read())


def _is_damaged(entry: _Entry) -> bool:
    return isinstance(entry, Exception)


def _version_of(entry: _Entry) -> int | None:
    return entry.version if isinstance(entry, Exception) else entry.stream.version


def _place_of(damaged: "DamagedStream") -> str:
    version = "no version" if damaged.version is None else f"version {damaged.version:,}"
    return f"{version} of {damaged.aggregate_id}"


def _in_a_line(why: str) -> str:
    return " ".join(why.split())


def _print_lines(
    serializer: "Serializer", found: Sequence[_Entry], *, with_position: bool = True
) -> None:
    import msgspec

    for entry in found:
        content: dict[str, Any] = {"position": entry.position} if with_position else {}
        if isinstance(entry, Exception):
            content |= {
                "aggregate_id": entry.aggregate_id,
                "version": entry.version,
                "command_id": entry.command_id,
                "damaged": entry.why,
            }
        else:
            content |= msgspec.json.decode(serializer.encode_stream(entry.stream))
        typer.echo(msgspec.json.encode(content))


def _show_events(found: Sequence[_Entry]) -> None:
    if found:
        columns = ("version", "recorded (UTC)", "command", "event", "fields")
        print_table(columns, (cells for entry in found for cells in _event_cells(entry)))


def _event_cells(entry: _Entry) -> Iterator[tuple[object, ...]]:
    if isinstance(entry, Exception):
        yield entry.version, None, entry.command_id, "cannot be read", _in_a_line(entry.why)
        return
    for event, context in entry.stream.contexts():
        recorded = f"{context.recorded_at:%Y-%m-%d %H:%M:%S}"
        message = (event.message_name, event.model_dump_json())
        yield context.version, recorded, context.command_id, *message


def _show_streams(found: Sequence[_Entry]) -> None:
    columns = ("position", "recorded (UTC)", "type", "aggregate", "version", "what")
    print_table(columns, map(_stream_cells, found))


def _stream_cells(entry: _Entry) -> tuple[object, ...]:
    version = _version_of(entry)
    if isinstance(entry, Exception):
        why = f"cannot be read: {_in_a_line(entry.why)}"
        return entry.position, None, None, entry.aggregate_id, version, why
    stream = entry.stream
    what = ", ".join(each.message_name for each in (*stream.events, *stream.messages)) or "nothing"
    if stream.rejection is not None:
        what = f"{stream.rejection.command_name} rejected: {stream.rejection.error}"
    recorded = f"{stream.recorded_at:%Y-%m-%d %H:%M:%S}"
    place = (entry.position, recorded, stream.aggregate_type, stream.aggregate_id)
    return *place, version, what
