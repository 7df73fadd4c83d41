"""
What the administrative commands share: how they ask a broker, and how they print the answer.

The commands ask through `AdminClient`. They print tables for people, or with `--json` one JSON value with
stable names for programs.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.protocol.administration import Traffic

__all__ = [
    "AsJson",
    "ask",
    "milliseconds",
    "per_second",
    "print_json",
    "print_table",
    "quiet",
    "when",
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value, for programs.")]

# A broker that has just been started needs a moment to listen. If there is none, you should not wait
# longer than this at a terminal.
_CONNECT_MS = 3_000
# Characters of a line that is not for a terminal; longer than any row.
_PIPE_WIDTH = 10_000

T = TypeVar("T")


def ask(broker: str, question: "Callable[[AdminClient], Awaitable[T]]") -> T:
    """Connects to a broker, asks, and returns the answer; raises the error that the broker answers with."""
    from headrace_mq.admin.client import AdminClient

    quiet()

    async def talk() -> T:
        async with AdminClient(broker, connect_ms=_CONNECT_MS) as admin:
            return await question(admin)

    return asyncio.run(talk())


def quiet() -> None:
    """Sends log lines to standard error: standard output is the answer's."""
    import structlog

    # Looked up at each line: a program that runs commands in its own process may replace stderr.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def print_json(value: Any) -> None:
    """Prints one JSON value, indented; structs as objects with their field names."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(_named(value)), indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table; numbers are grouped by thousands and stand to the right."""
    from rich.console import Console
    from rich.table import Table

    held = list(rows)
    table = Table(box=None)
    for number, name in enumerate(columns):
        numeric = any(isinstance(row[number], int) for row in held)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in held:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else _one_line(cell) for cell in row))
    # What reads a pipe wants a row in one line.
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(highlight=False, markup=False, width=width).print(table)


def _one_line(cell: object) -> str:
    """A cell in one line: a name with a line feed in it must not look like another row."""
    return str(cell).replace("\r", "\\r").replace("\n", "\\n")


def milliseconds(time: str, option: str) -> int:
    """Reads a point in time as people and programs write it: ISO 8601, or ms since 1970 UTC."""
    if time.isdecimal():
        return int(time)
    try:
        moment = datetime.fromisoformat(time)
    except ValueError as error:
        raise typer.BadParameter(
            f"{time!r} is no time; write 2026-01-31T14:00:00.250Z or milliseconds since 1970",
            param_hint=option,
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def per_second(traffic: "Traffic") -> tuple[int, int]:
    """Returns messages and bytes per second over the last ten, at least 1 where there were any."""
    return -(-traffic.messages_10s // 10), -(-traffic.bytes_10s // 10)


def when(time_ms: int) -> str:
    """Writes a time for people, in UTC; empty for none."""
    if not time_ms:
        return ""
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        # A producer may say what it likes.
        return f"{time_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _named(value: Any) -> Any:
    """Bodies are arrays on the wire; people and programs want names."""
    import msgspec

    if isinstance(value, msgspec.Struct):
        return {name: _named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: _named(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_named(held) for held in value]
    return value
