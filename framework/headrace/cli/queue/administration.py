"""
What the administrative commands share: how they ask a broker, and how they write what it answers.

The commands ask through `AdminClient`. They print tables for people (`tables`), or with
`--json` one JSON value with stable names for programs.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.figures.words import named, time_ms

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace_mq.admin.client import AdminClient

__all__ = [
    "AsJson",
    "ask",
    "milliseconds",
    "print_json",
    "quiet",
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value, for programs.")]

# A broker that has just been started needs a moment to listen. If there is none, you should not wait
# longer than this at a terminal.
_CONNECT_MS = 3_000

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

    print(msgspec.json.format(msgspec.json.encode(named(value)), indent=2).decode())


def milliseconds(time: str, option: str) -> int:
    """Reads a point in time as people and programs write it: ISO 8601, or ms since 1970 UTC."""
    try:
        return time_ms(time)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
