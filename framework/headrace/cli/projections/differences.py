"""
Prints the report of a rebuild or of a comparison.

Used by `headrace projection rebuild` and `verify`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from headrace.rebuild.local.forecast import Forecast
    from headrace.rebuild.report import RebuildReport

__all__ = ["show", "show_comparison", "show_forecast"]


def show(report: "RebuildReport", *, json: bool) -> None:
    """Prints the report of a rebuild."""
    if json:
        typer.echo(report.to_json())
        return
    typer.echo(
        f"projection {report.projection}: {report.events:,} events folded into {report.rows:,} rows"
        f" ({report.events_per_second:,.0f} events/s), {report.caught_up:,} messages caught up"
    )
    if report.exported:
        typer.echo(f"exported files were read as {report.exported}")
    for queue, taken in report.queues.items():
        typer.echo(
            f"  {queue}: {taken['messages']:,} messages, {taken['bytes']:,} bytes; waited"
            f" {taken['read_ms'] / 1_000:,.1f} s, worked {taken['work_ms'] / 1_000:,.1f} s"
        )
    _show_passed_over(report)
    if report.keys is not None:
        differed = "" if report.mended is None else f"; {report.mended:,} of them differed"
        typer.echo(f"refolded {report.keys:,} keys{differed}")
    if report.compared is not None:
        typer.echo(
            f"compared {report.compared:,} rows with the live table: {report.mismatches} differ"
        )
    for line in _details(report):
        typer.echo(line)
    if report.switched:
        typer.echo(f"table {report.table} is live")
        if report.reason:
            typer.echo(report.reason)
    else:
        typer.echo(f"not switched: {report.reason or _as_asked(report)}")


def show_forecast(found: "Forecast", *, json: bool, switch: bool) -> None:
    """Prints what a rebuild would do.

    Args:
        found: the forecast.
        json: as a line of JSON.
        switch: its result would go live.
    """
    if json:
        typer.echo(found.to_json())
        return
    typer.echo(
        f"projection {found.projection}: {sum(found.messages.values()):,} messages to read, about"
        f" {found.bytes:,} bytes; about {found.seconds:,.1f} s of reading and folding in this process,"
        f" and the rows are written besides ({found.sampled:,} messages took"
        f" {found.sampled_seconds:,.2f} s)"
    )
    for queue, count in found.messages.items():
        typer.echo(f"  {queue}: {count:,} messages")
    typer.echo(
        f"live is generation {found.generation} of version {found.version} with {found.rows:,} rows;"
        f" the new rows would be of version {found.code_version},"
        f" {'compared with them' if found.comparable else 'compared with nothing'}, and"
        f" {'put in place' if switch else 'kept next to them'}"
    )
    if found.running:
        typer.echo(f"it would be refused now: {found.running}")


def _show_passed_over(report: "RebuildReport") -> None:
    if report.foreign:
        typer.echo(f"passed over {report.foreign:,} foreign messages; the log names them")
    for sentence in report.left_out:
        typer.echo(f"left out from there on: {' '.join(sentence.split())}")


def show_comparison(report: "RebuildReport", *, json: bool) -> None:
    """Prints the differences between the live rows and the rows that the events make."""
    if json:
        typer.echo(report.to_json())
        return
    _show_passed_over(report)
    if report.compared is None:
        typer.echo(f"projection {report.projection}: not compared: {report.reason}")
        return
    typer.echo(
        f"projection {report.projection}: compared {report.compared:,} rows with"
        f" {report.events:,} refolded events of the {report.source}: {report.mismatches} differ"
    )
    for line in _details(report):
        typer.echo(line)


def _details(report: "RebuildReport") -> Iterator[str]:
    if report.behind:
        yield (
            f"  the live rows lack events of {report.behind:,} aggregates that the event store has:"
            " the projection stands still, is paused, has them parked, or reads another topic"
        )
    if report.ahead:
        yield (
            f"  the live rows have events of {report.ahead:,} aggregates that the event store does not"
            " have: it is another store, or an older copy of it"
        )
    for column, count in sorted(report.columns.items()):
        # What is no column has a space: one side has no row.
        yield f"  {count:,} {'have' if ' ' in column else 'differ in'} {column}"
        for key, live, rebuilt in report.samples.get(column, ()):
            # A row has one line, also where its key has line breaks.
            name = str(key) if str(key).isprintable() else repr(key)
            yield f"    {name}: {_changed(live, rebuilt, of=column)}"


def _changed(live: Any, rebuilt: Any, *, of: str) -> str:
    if " " in of:
        return f"live {live}" if rebuilt is None else f"rebuilt {rebuilt}"
    return f"live {live!r}, rebuilt {rebuilt!r}"


def _as_asked(report: "RebuildReport") -> str:
    return (
        f"as asked; the rebuilt rows are kept in {report.table} until the next rebuild,"
        f" and `headrace projection switch {report.projection}` puts them in place"
    )
