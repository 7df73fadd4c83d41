"""`headrace command`: the commands that an application put aside, and what becomes of them."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli.options import WHOLE_MAX, AppPath, BrokerAddress, EventStoreUrl

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace.letters import CommandLetters
    from headrace.stores.base import CommandLetter

__all__ = ["commands"]

commands = typer.Typer(
    help="Commands that were parked, and those held behind them.", no_args_is_help=True
)

T = TypeVar("T")

Number = Annotated[int, typer.Argument(min=1, max=WHOLE_MAX, help="The letter's number.")]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON per letter.")]

_DEFAULT_STORE = "sqlite:///var/events.db"
_DEFAULT_BROKER = "127.0.0.1:9876"
_NOT_ALL = 1
# Letters read in one statement: a page of them is little memory.
_PAGE = 500


@commands.command()
def letters(
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """List the commands that were parked and those held behind them, in their order."""
    _show(_with_letters(app_path, event_store, None, _all), as_json=as_json)


@commands.command()
def show(
    number: Number,
    *,
    app_path: AppPath,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Show one letter with its command, as it came through the queue."""
    letter = _with_letters(app_path, event_store, None, lambda each: each.find(number))
    plain = _plain(letter) | {
        "key": letter.key,
        "headers": dict(letter.headers),
        "body": letter.body.decode("utf-8", "backslashreplace"),
        "trace": letter.trace,
    }
    if as_json:
        typer.echo(json.dumps(plain))
        return
    trace = plain.pop("trace")
    for name, value in plain.items():
        typer.echo(f"{name + ':':14}{value}")
    if trace:
        typer.echo(trace)


@commands.command()
def retry(
    numbers: Annotated[
        list[int] | None,
        typer.Argument(min=1, max=WHOLE_MAX, help="Numbers of letters; none: all of them."),
    ] = None,
    *,
    app_path: AppPath,
    broker: BrokerAddress = _DEFAULT_BROKER,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    timeout_ms: Annotated[int, typer.Option(min=1, help="Longest wait for each.")] = 30_000,
    as_json: AsJson = False,
) -> None:
    """Have parked commands run again by the running application; those held follow by themselves.

    Exit status 1 if something was parked again.
    """

    async def run(found: "CommandLetters") -> "tuple[int, list[CommandLetter]]":
        wished = numbers or [each.number for each in await _all(found) if each.state != "held"]
        outcomes = [await found.retry(number, timeout_ms=timeout_ms) for number in wished]
        return len(wished), [letter for letter in outcomes if letter is not None]

    tried, left = _with_letters(app_path, event_store, broker, run)
    typer.echo(f"{tried - len(left)} of {tried} letters are done", err=as_json)
    if left:
        _show(left, as_json=as_json)
        sys.exit(_NOT_ALL)


@commands.command()
def skip(
    number: Number,
    *,
    app_path: AppPath,
    broker: BrokerAddress = _DEFAULT_BROKER,
    event_store: EventStoreUrl = _DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Leave one command out for good; those that are held behind it go on."""
    letter = _with_letters(app_path, event_store, broker, lambda each: each.skip(number))
    if as_json:
        typer.echo(json.dumps(_plain(letter)))
    else:
        typer.echo(f"command {letter.command_id} of {letter.aggregate_id} is left out")


def _with_letters(
    app_path: str,
    event_store: str,
    broker: str | None,
    work: "Callable[[CommandLetters], Awaitable[T]]",
) -> T:
    from headrace.app import load_app
    from headrace.cli.logs import configure_logs
    from headrace.settings import Settings
    from headrace.stores.database.schema import check

    # Away from the standard output, which a program may read.
    configure_logs("console", level="critical")
    app = load_app(app_path)

    async def run() -> T:
        # Looking must not create a database.
        await check(event_store)
        settings = Settings(event_store=event_store, broker=broker)
        async with app.command_letters(settings) as found:
            return await work(found)

    return asyncio.run(run())


async def _all(found: "CommandLetters") -> "list[CommandLetter]":
    letters: list[CommandLetter] = []
    while page := await found.read(after=letters[-1].number if letters else 0, limit=_PAGE):
        letters += page
    return letters


def _show(found: "list[CommandLetter]", *, as_json: bool) -> None:
    if as_json:
        for letter in found:
            typer.echo(json.dumps(_plain(letter)))
        return
    if not found:
        typer.echo("no command is parked")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("letter", "aggregate", "command", "state", "since", "parked", "error", box=None)
    for letter in found:
        table.add_row(
            str(letter.number),
            letter.aggregate_id,
            letter.name,
            letter.state.value,
            f"{letter.parked_at:%Y-%m-%d %H:%M:%S}",
            f"{letter.attempts}x",
            f"{letter.error}: {letter.sentence}" if letter.state != "held" else "",
        )
    Console().print(table)


def _plain(letter: "CommandLetter") -> dict[str, object]:
    return {
        "letter": letter.number,
        "aggregate_id": letter.aggregate_id,
        "command_id": letter.command_id,
        "command": letter.name,
        "state": letter.state.value,
        "parked_at": letter.parked_at.isoformat(),
        "attempts": letter.attempts,
        "error": letter.error,
        "sentence": letter.sentence,
    }
