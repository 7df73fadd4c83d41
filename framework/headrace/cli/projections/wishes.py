"""
Options of `headrace projection rebuild` that say what becomes of its result.

Used by that command.
"""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.cli.queue.administration import milliseconds

if TYPE_CHECKING:
    from headrace.rebuild.local.moment import Moment

__all__ = ["AsOf", "DryRun", "Expect", "check_expected", "moment_of"]

_OFFSETS: Final = re.compile(r"[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*")

Expect = Annotated[
    int | None,
    typer.Option(
        "--expect-differences",
        min=1,
        metavar="MAX",
        help="Switch if at most so many rows differ; otherwise, or if nothing could be compared, leave"
        " the rebuilt table aside. Exit status 1 then.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Tell what would be read and put in place, and about how long that takes; write nothing.",
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME|QUEUE:OFFSET,…",
        help="Build a table to look at, of the events before a time (ISO 8601, or ms since 1970, by the"
        " broker's clock) or before an offset of each queue. It never goes live, and stays until `headrace"
        " projection drop`.",
    ),
]


def check_expected(expect: int | None, *, accept: bool, verify: bool) -> None:
    """Returns if a number of differences goes with the other options.

    Raises:
        typer.BadParameter: it does not.
    """
    if expect is not None and (accept or not verify):
        raise typer.BadParameter(
            "how many rows differ counts only where they are compared and a difference is not accepted;"
            " leave --accept-differences and --no-verify out",
            param_hint="--expect-differences",
        )


def moment_of(as_of: str | None, *, engine: str, start: str, some: bool) -> "Moment | None":
    """Returns the moment that was asked for; None: there was none.

    Args:
        as_of: the option's value.
        engine: which one was asked for.
        start: the value of `--from`.
        some: only some rows are to be rebuilt.

    Raises:
        typer.BadParameter: it is neither a time nor offsets, or does not go with the others.
    """
    from headrace.rebuild.local.moment import Moment

    if as_of is None:
        return None
    if engine not in {"auto", "replay"} or start != "zero" or some:
        raise typer.BadParameter(
            "rows as of a moment are folded from the event topic, from its beginning, in this process;"
            " leave --engine, --from and --only-keys out",
            param_hint="--as-of",
        )
    if _OFFSETS.fullmatch(as_of):
        pairs = (each.split(":") for each in as_of.split(","))
        return Moment(text=as_of, offsets={int(queue): int(offset) for queue, offset in pairs})
    return Moment(text=as_of, at_ms=milliseconds(as_of, "--as-of"))
