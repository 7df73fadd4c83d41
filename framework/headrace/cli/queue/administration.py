"""
What the administrative commands share: how they ask a broker, and how they write what it answers.

The commands ask through `AdminClient`. They print tables for people (`tables`), or with
`--json` one JSON value with stable names for programs.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
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
    "quiet",
    "when",
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

    print(msgspec.json.format(msgspec.json.encode(_named(value)), indent=2).decode())


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
