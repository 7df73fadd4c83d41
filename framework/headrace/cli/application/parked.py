"""
Letters on the command line, of projections and of event handlers: listed, retried, skipped.

Sits between: the commands that take arguments, and the letters beside an application's databases.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

if TYPE_CHECKING:  # a database is loaded by the functions that need it
    from headrace.app import App
    from headrace.projections.letters import Letter
    from headrace.projections.tables.read_models import ReadModels
    from headrace.stores.base import EventStore

__all__ = [
    "Aggregate",
    "Aggregates",
    "AsJson",
    "Desk",
    "Parked",
    "Traceback",
    "plain_letter",
    "print_letters",
]

T = TypeVar("T")

Aggregate = Annotated[str, typer.Argument(help="The id of the parked aggregate.")]
Aggregates = Annotated[
    list[str] | None, typer.Argument(help="Ids of parked aggregates; none: all of them.")
]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON per letter.")]
Traceback = Annotated[
    bool, typer.Option("--traceback", help="Where in the code each of them failed, too.")
]

_NOT_ALL = 1


class Parked(Protocol):
    """The letters of one projection, or of one processor of event handlers."""

    async def all(self) -> "list[Letter]":
        """Returns the letters, the oldest first."""
        ...

    async def retry(self, aggregate_id: str) -> "Letter | None":
        """Takes up a letter; returns what is left of it."""
        ...

    async def skip(self, aggregate_id: str) -> "Letter | None":
        """Takes up a letter without what failed; returns what is left of it."""
        ...


class Desk:
    """Works on letters and says what became of them.

    Args:
        kind: what parked them, in sentences: "projection".
        name: its name.
        app_path: the application, as `MODULE:ATTRIBUTE`.
        event_store: URL of its events.
        read_models: URL of the database with the letters.
        find: returns the letters.
        as_json: whether the standard output is for a program.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        app_path: str,
        event_store: str,
        read_models: str,
        find: "Callable[[App, ReadModels, EventStore], Parked]",
        as_json: bool,
    ) -> None:
        self._kind = kind
        self._name = name
        self._app_path = app_path
        self._event_store = event_store
        self._read_models = read_models
        self._find = find
        self._as_json = as_json

    def list_all(self, *, traceback: bool = False) -> None:
        """Prints the letters, with tracebacks where they are wished for."""
        self._show(self._with_letters(lambda parked: parked.all()), traceback=traceback)

    def retry(self, aggregates: list[str] | None) -> None:
        """Takes up letters, all of them where none are named; exits with 1 if something is left."""

        async def run(parked: Parked) -> "tuple[int, list[Letter]]":
            ids = aggregates or [letter.aggregate_id for letter in await parked.all()]
            outcomes = [await parked.retry(aggregate_id) for aggregate_id in ids]
            return len(ids), [letter for letter in outcomes if letter is not None]

        tried, left = self._with_letters(run)
        typer.echo(
            f"{tried - len(left)} of {tried} letters of {self._name} are done", err=self._as_json
        )
        if left:
            self._show(left)
            sys.exit(_NOT_ALL)

    def skip(self, aggregate: str) -> None:
        """Takes up a letter without what failed; exits with 1 if something is left."""
        left = self._with_letters(lambda parked: parked.skip(aggregate))
        if left is not None:
            typer.echo(f"{aggregate} has another one that fails", err=True)
            self._show([left])
            sys.exit(_NOT_ALL)
        typer.echo(f"{aggregate} goes on without it", err=self._as_json)

    def _with_letters(self, work: Callable[[Parked], Awaitable[T]]) -> T:
        from headrace.app import load_app
        from headrace.cli.application.databases import existing_events, existing_read_models
        from headrace.cli.logs import configure_logs

        # Away from the standard output, which a program may read.
        configure_logs("console")
        app = load_app(self._app_path)

        async def run() -> T:
            async with (
                existing_read_models(self._read_models) as models,
                existing_events(self._event_store, app.serializer) as store,
            ):
                return await work(self._find(app, models, store))

        return asyncio.run(run())

    def _show(self, found: "list[Letter]", *, traceback: bool = False) -> None:
        if self._as_json:
            for letter in found:
                typer.echo(json.dumps(plain_letter(letter)))
        elif not found:
            typer.echo(f"{self._kind} {self._name} has parked nothing")
        else:
            print_letters([("", letter) for letter in found], traceback=traceback)


def print_letters(found: "list[tuple[str, Letter]]", *, traceback: bool) -> None:
    """Prints letters as a table, with whose they are where that is not empty; then tracebacks."""
    from rich.console import Console
    from rich.table import Table

    owners = ["process"] if any(owner for owner, _ in found) else []
    table = Table(
        *owners, "aggregate", "done up to", "waiting", "since", "retries", "error", box=None
    )
    for owner, letter in found:
        table.add_row(
            *([owner] if owners else []),
            letter.aggregate_id,
            f"version {letter.version}",
            str(letter.held),
            f"{letter.parked_at:%Y-%m-%d %H:%M:%S}",
            str(letter.retries),
            letter.error,
        )
    Console().print(table)
    for _, letter in found if traceback else ():
        typer.echo(f"\n{letter.aggregate_id}\n{letter.traceback or 'no traceback was kept'}")


def plain_letter(letter: "Letter") -> dict[str, object]:
    """Returns a letter as JSON values."""
    topic, queue_id = letter.queue
    return {
        "aggregate_id": letter.aggregate_id,
        "version": letter.version,
        "topic": topic,
        "queue_id": queue_id,
        "offset": letter.offset,
        "parked_at": letter.parked_at.isoformat(),
        "held": letter.held,
        "retries": letter.retries,
        "error": letter.error,
        "traceback": letter.traceback,
    }
