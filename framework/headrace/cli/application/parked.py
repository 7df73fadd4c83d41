"""`headrace parked`: lists, shows, retries and skips what an application could not handle."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli.options import AppPath, EventStoreUrl, QueueAddress, ReadModelsUrl
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace.parked import Parked, ParkedEntry

__all__ = ["commands"]

commands = typer.Typer(
    help="Commands, events and instances that could not be handled.", no_args_is_help=True
)

T = TypeVar("T")


def _processor(text: str | None) -> str | None:
    from headrace.parked import COMMANDS, KINDS

    kind, _, name = (text or "").partition(":")
    if text is not None and (kind not in KINDS or (kind == COMMANDS) == bool(name)):
        raise typer.BadParameter(
            "use 'commands', 'projection:NAME', 'handlers:NAME', 'process:NAME' or"
            f" 'instances:NAME', not {text!r}"
        )
    return text


Processor = Annotated[
    str | None,
    typer.Option(
        callback=_processor,
        help="What parked it: commands, projection:NAME, handlers:NAME, process:NAME, instances:NAME.",
    ),
]
Aggregate = Annotated[
    str | None, typer.Option(help="The id of its aggregate; of an instance its key.")
]
CommandId = Annotated[str | None, typer.Option("--command", help="The id of a parked command.")]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON for each.")]

_DEFAULT_STORE = "sqlite:///var/events.db"
_DEFAULT_MODELS = "sqlite:///var/read.db"
_DEFAULT_BROKER = "127.0.0.1:9876"
_NOT_ALL = 1


@commands.command("list")
def list_parked(
    *,
    processor: Processor = None,
    aggregate: Aggregate = None,
    command_id: CommandId = None,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    read_models: ReadModelsUrl = _DEFAULT_MODELS,
    as_json: AsJson = False,
) -> None:
    """List what is parked: commands in their order, then the oldest of each processor first."""
    databases = _Databases(app_path, event_store, read_models)
    wanted = _Wanted(processor, aggregate, command_id)
    _show(databases.work(wanted.find), as_json=as_json)


@commands.command()
def show(
    *,
    processor: Processor = None,
    aggregate: Aggregate = None,
    command_id: CommandId = None,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    read_models: ReadModelsUrl = _DEFAULT_MODELS,
    as_json: AsJson = False,
) -> None:
    """Show all that is known: where in the code it failed, and a command as it came."""
    from headrace.parked import plain_entry

    databases = _Databases(app_path, event_store, read_models)
    for entry in databases.work(_Wanted(processor, aggregate, command_id).find_some):
        plain = plain_entry(entry) | {"traceback": entry.traceback}
        if entry.letter is not None:
            plain |= {
                "key": entry.letter.key,
                "headers": dict(entry.letter.headers),
                "body": entry.letter.body.decode("utf-8", "backslashreplace"),
            }
        if as_json:
            typer.echo(json.dumps(plain))
            continue
        traceback = plain.pop("traceback")
        for name, value in plain.items():
            if value is not None and value != "":
                typer.echo(f"{name + ':':14}{value}")
        typer.echo(f"{traceback or 'no traceback was kept'}\n")


@commands.command()
def retry(
    *,
    processor: Processor = None,
    aggregate: Aggregate = None,
    command_id: CommandId = None,
    app_path: AppPath,
    broker: QueueAddress = _DEFAULT_BROKER,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    read_models: ReadModelsUrl = _DEFAULT_MODELS,
    timeout_ms: Annotated[int, typer.Option(min=1, help="Longest wait for each command.")] = 30_000,
    as_json: AsJson = False,
) -> None:
    """Handle what waits, with the code of now: all that is parked, or what the options choose.

    Commands are run by the running application, and those held behind them follow by themselves;
    events are handled here. Exit status 1 if something is still parked.
    """
    databases = _Databases(app_path, event_store, read_models)
    wanted = _Wanted(processor, aggregate, command_id)
    chosen = databases.work(wanted.find_first)

    async def run(parked: "Parked") -> "list[ParkedEntry | None]":
        return [await parked.retry(each, timeout_ms=timeout_ms) for each in chosen]

    outcomes = databases.work(run, broker=broker, entries=chosen)
    left = [entry for entry in outcomes if entry is not None]
    typer.echo(f"{len(chosen) - len(left)} of {len(chosen)} parked are done", err=as_json)
    if left:
        _show(left, as_json=as_json)
        sys.exit(_NOT_ALL)


@commands.command()
def skip(
    *,
    processor: Processor = None,
    aggregate: Aggregate = None,
    command_id: CommandId = None,
    app_path: AppPath,
    broker: QueueAddress = _DEFAULT_BROKER,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    read_models: ReadModelsUrl = _DEFAULT_MODELS,
    as_json: AsJson = False,
) -> None:
    """Leave out the one command or change that fails, then handle what waits behind it.

    The options must choose exactly one. Exit status 1 if another change fails, too.
    """
    databases = _Databases(app_path, event_store, read_models)
    chosen = databases.work(_Wanted(processor, aggregate, command_id).find_first)
    if len(chosen) != 1:
        raise typer.BadParameter(
            f"{len(chosen)} are parked that they choose; name one with --processor, --aggregate and"
            " --command",
            param_hint="the options",
        )
    (entry,) = chosen
    left = databases.work(lambda parked: parked.skip(entry), broker=broker, entries=chosen)
    who = f"{entry.aggregate_id} of {entry.processor}"
    if left is not None:
        typer.echo(f"{who} has another one that fails", err=True)
        _show([left], as_json=as_json)
        sys.exit(_NOT_ALL)
    what = f"command {entry.command_id}" if entry.command_id else "it"
    typer.echo(f"{who} goes on without {what}", err=as_json)


class _Wanted:
    """Which letters a command is about; None: all."""

    def __init__(
        self, processor: str | None, aggregate_id: str | None, command_id: str | None
    ) -> None:
        self._choice = {
            "processor": processor,
            "aggregate_id": aggregate_id,
            "command_id": command_id,
        }

    async def find(self, parked: "Parked") -> "list[ParkedEntry]":
        """Returns all of them."""
        return await parked.read(**self._choice)

    async def find_some(self, parked: "Parked") -> "list[ParkedEntry]":
        """Returns all of them; raises LetterNotFound if one is named that is not parked."""
        from headrace.errors import LetterNotFound

        found = await self.find(parked)
        if not found and (self._choice["aggregate_id"] or self._choice["command_id"]):
            chosen = ", ".join(f"{each!r}" for each in self._choice.values() if each)
            raise LetterNotFound(
                f"nothing is parked of {chosen}; `headrace parked list` lists what is"
            )
        return found

    async def find_first(self, parked: "Parked") -> "list[ParkedEntry]":
        """Returns the letters of `find_some` to retry or skip; held commands follow by themselves."""
        found = await self.find_some(parked)
        if self._choice["command_id"]:
            return found
        return [each for each in found if each.state != "held"]


class _Databases:
    """The databases of an application as they are; looking must not create one."""

    def __init__(self, app_path: str, event_store: str, read_models: str) -> None:
        from headrace.app import load_app
        from headrace.cli.logs import configure_logs

        # To standard error: a program may read the standard output.
        configure_logs("console")
        self._app = load_app(app_path)
        self._event_store = event_store
        self._read_models = read_models

    def work(
        self,
        work: "Callable[[Parked], Awaitable[T]]",
        *,
        broker: str | None = None,
        entries: "list[ParkedEntry] | None" = None,
    ) -> T:
        """Retries or skips letters; connects to the broker if one of them needs it."""
        from headrace.settings import Settings
        from headrace.stores.database.schema import check

        async def run() -> T:
            await check(self._event_store)
            await check(self._read_models)
            choices = {"event_store": self._event_store, "read_models": self._read_models}
            async with self._app.parked(Settings(**choices)) as parked:
                if not any(parked.needs_broker(each) for each in entries or ()):
                    return await work(parked)
            async with self._app.parked(Settings(**choices, broker=broker)) as parked:
                return await work(parked)

        return asyncio.run(run())


def _show(found: "list[ParkedEntry]", *, as_json: bool) -> None:
    if as_json:
        from headrace.parked import plain_entry

        for entry in found:
            typer.echo(json.dumps(plain_entry(entry)))
        return
    if not found:
        typer.echo("nothing is parked")
        return
    print_table(
        (
            "processor", "aggregate", "command", "state", "waiting", "since (UTC)", "attempts",
            "error",
        ),
        (
            (
                one.processor, one.aggregate_id, f"{one.name} {one.command_id}".strip(),
                one.state.value, one.waiting, f"{one.parked_at:%Y-%m-%d %H:%M:%S}", one.attempts,
                _why(one),
            )
            for one in found
        ),
    )  # fmt: skip


def _why(entry: "ParkedEntry") -> str:
    if entry.state == "held":
        return ""
    return f"{entry.error}: {entry.sentence}" if entry.error else entry.sentence
