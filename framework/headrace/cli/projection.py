"""`headrace projection`: read models, their rebuilds and their way back."""

import asyncio
import sys
from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import typer

from headrace.cli import following, letters, pausing, status
from headrace.cli.options import (
    AppPath,
    BrokerAddress,
    EventStoreUrl,
    LogFormat,
    ReadModelsUrl,
    SparkMaster,
    SparkRemote,
    SparkSettings,
    spark_settings,
)

if TYPE_CHECKING:  # engines are loaded by the functions that need them
    from headrace._projecting.generations import ProjectionState
    from headrace.rebuilding.report import RebuildReport

    _Outcomes = Mapping[str, RebuildReport | Exception]

    class _Run(Protocol):
        """Rebuilds projections; quiet: without a line per phase."""

        def __call__(self, names: list[str], *, quiet: bool) -> _Outcomes: ...


__all__ = ["commands"]

commands = typer.Typer(help="Projections (read models).", no_args_is_help=True)
commands.command()(following.follow)
commands.command()(letters.letters)
commands.command()(letters.retry)
commands.command()(letters.skip)
commands.command()(status.status)
commands.command()(pausing.pause)
commands.command()(pausing.resume)
commands.command()(pausing.reset)

Name = Annotated[str, typer.Argument(help="The projection's name.")]
Names = Annotated[list[str], typer.Argument(help="The projections' names.")]
Engine = Annotated[
    str, typer.Option(help="'replay': in this process. 'spark': on every core, or a cluster.")
]
Start = Annotated[
    str,
    typer.Option(
        "--from", help="'zero': every event. 'offsets': on top of the live table (with Spark)."
    ),
]
Verify = Annotated[bool, typer.Option(help="Compare with the live table before switching.")]
Switch = Annotated[bool, typer.Option(help="Put the rebuilt table in place.")]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Begin even if another rebuild seems to be running.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print a report per projection, a line of JSON each.")
]
Page = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write the reports as a page of HTML."),
]
FromExport = Annotated[
    Path | None,
    typer.Option(
        "--from-export",
        metavar="DIR",
        help="Read what `headrace events export` wrote from there, the rest from the broker.",
    ),
]


@commands.command("list")
def list_projections(
    *,
    app_path: AppPath,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    json: Annotated[bool, typer.Option("--json", help="A line of JSON per projection.")] = False,
) -> None:
    """List an application's projections: live generation, rows, and aggregates parked."""
    from rich.console import Console
    from rich.table import Table

    from headrace._projecting.read_models import ReadModels
    from headrace.app import load_app

    app = load_app(app_path)

    async def ask() -> list[dict[str, Any]]:
        models = ReadModels(read_models)
        try:
            rows = []
            for name, projection in sorted(app.projections.items()):
                await models.ensure(projection)
                state = await models.state(name)
                rows.append(
                    {
                        "projection": name,
                        "generation": state.generation,
                        "rows": await models.reader(projection).count(),
                        "parked": await models.parked(name),
                        "state": _state_of(state),
                    }
                )
            return rows
        finally:
            await models.aclose()

    found = asyncio.run(ask())
    if json:
        for row in found:
            typer.echo(dumps(row))
        return
    table = Table("projection", "generation", "rows", "parked", "state", box=None)
    for row in found:
        table.add_row(*(f"{each:,}" if isinstance(each, int) else each for each in row.values()))
    Console().print(table)


def _state_of(state: "ProjectionState") -> str:
    if state.paused_at is not None:
        return "paused"
    return "live" if state.rebuild_generation is None else "live, being rebuilt"


@commands.command()
def rebuild(
    names: Names,
    *,
    app_path: AppPath,
    broker: BrokerAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    engine: Engine = "replay",
    start: Start = "zero",
    verify: Verify = True,
    switch: Switch = True,
    take_over: TakeOver = False,
    json: AsJson = False,
    page: Page = None,
    from_export: FromExport = None,
    master: SparkMaster = "",
    remote: SparkRemote = "",
    conf: SparkSettings = None,
    log_format: LogFormat = "console",
) -> None:
    """Rebuild projections from the event topic, several in one pass. Exit status 1 on a mismatch."""
    from headrace.app import load_app
    from headrace.cli.logs import configure_logs
    from headrace.rebuilding.page import to_page

    configure_logs(log_format)
    _check_choices(engine, start, from_export)
    session = _session_choices(engine, master, remote, conf)
    app = load_app(app_path)
    for name in names:
        app.projection(name)
    choices: dict[str, Any] = {
        "broker": broker,
        "read_models_url": read_models,
        "event_store_url": event_store,
        "verify": verify,
        "switch": switch,
        "take_over": take_over,
    }
    if engine == "spark":
        run = _with_spark(app_path, start, choices | {"export": from_export}, session)
    else:
        run = _here(app_path, choices)
    outcomes = run(names, quiet=json)
    reports = [outcome for outcome in outcomes.values() if not isinstance(outcome, Exception)]
    for report in reports:
        _show(report, json=json)
    if page is not None:
        page.write_text(to_page(reports), encoding="utf-8")
    failures = {name: each for name, each in outcomes.items() if isinstance(each, Exception)}
    _tell_failures(failures, alone=len(outcomes) == 1)
    unwished = [r for r in reports if r.mismatches or r.switched != switch]
    sys.exit(1 if unwished else 0)


def _check_choices(engine: str, start: str, from_export: Path | None) -> None:
    _check_engine(engine)
    if start not in {"zero", "offsets"}:
        raise typer.BadParameter("use 'zero' or 'offsets'", param_hint="--from")
    if start == "offsets" and engine != "spark":
        raise typer.BadParameter("'offsets' needs --engine spark", param_hint="--from")
    if from_export is not None and engine != "spark":
        raise typer.BadParameter("exported files need --engine spark", param_hint="--from-export")


@commands.command()
def verify(
    names: Names,
    *,
    app_path: AppPath,
    broker: BrokerAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    engine: Engine = "replay",
    json: AsJson = False,
    log_format: LogFormat = "console",
) -> None:
    """Compare live tables, row for row, with what the events make. Exit status 1 on a mismatch.

    Builds them anew beside the live ones, all in one pass, compares each at the same offsets, and
    drops it again; nothing that anybody reads is touched.
    """
    from headrace.app import load_app
    from headrace.cli.logs import configure_logs
    from headrace.rebuilding.checking import drop_built

    configure_logs(log_format)
    _check_engine(engine)
    app = load_app(app_path)
    for name in names:
        app.projection(name)
    choices: dict[str, Any] = {
        "broker": broker,
        "read_models_url": read_models,
        "event_store_url": event_store,
        "switch": False,
    }
    run = _with_spark(app_path, "zero", choices) if engine == "spark" else _here(app_path, choices)
    built = run(names, quiet=json)
    outcomes = asyncio.run(drop_built(app_path, built, read_models_url=read_models))
    reports = [outcome for outcome in outcomes.values() if not isinstance(outcome, Exception)]
    for report in reports:
        _show_comparison(report, json=json)
    failures = {name: each for name, each in outcomes.items() if isinstance(each, Exception)}
    _tell_failures(failures, alone=len(outcomes) == 1, what="verified")
    sys.exit(1 if any(each.mismatches or each.compared is None for each in reports) else 0)


def _show_comparison(report: "RebuildReport", *, json: bool) -> None:
    if json:
        typer.echo(report.to_json())
        return
    if report.compared is None:
        typer.echo(f"projection {report.projection}: not compared: {report.reason}")
        return
    typer.echo(
        f"projection {report.projection}: {report.compared:,} rows compared with"
        f" {report.events:,} events folded anew: {report.mismatches} differ"
    )
    for key, live, rebuilt in report.differences:
        typer.echo(f"  {key}: live {live}, rebuilt {rebuilt}")


def _session_choices(
    engine: str, master: str, remote: str, conf: list[str] | None
) -> dict[str, Any]:
    if (master or remote or conf) and engine != "spark":
        raise typer.BadParameter("a cluster needs --engine spark", param_hint="--engine")
    if master and remote:
        raise typer.BadParameter("use --master or --remote, not both", param_hint="--remote")
    return {"master": master, "remote": remote, "settings": spark_settings(conf)}


def _check_engine(engine: str) -> None:
    if engine not in {"replay", "spark"}:
        raise typer.BadParameter("use 'replay' or 'spark'", param_hint="--engine")


def _here(app_path: str, choices: dict[str, Any]) -> "_Run":
    from headrace.rebuilding.replay import rebuild_together

    def run(names: list[str], *, quiet: bool) -> "_Outcomes":
        several = len(set(names)) > 1

        def announce(name: str, phase: str, ahead: int) -> None:
            _announce(f"{name}: {phase}" if several else phase, ahead)

        told = None if quiet else announce
        return asyncio.run(rebuild_together(app_path, names, report=told, **choices))

    return run


def _with_spark(
    app_path: str,
    start: str,
    choices: dict[str, Any],
    session: Mapping[str, Any] | None = None,
) -> "_Run":
    from headrace.spark.rebuild import rebuild as rebuild_with_spark
    from headrace.spark.session import open_session

    begin: Literal["zero", "offsets"] = "offsets" if start == "offsets" else "zero"

    def run(names: list[str], *, quiet: bool) -> "_Outcomes":
        told = None if quiet else _announce
        outcomes: dict[str, RebuildReport | Exception] = {}
        spark = open_session(**(session or {}))
        try:
            for name in dict.fromkeys(names):
                rebuilding = rebuild_with_spark(
                    app_path, name, spark=spark, start=begin, report=told, **choices
                )
                try:
                    outcomes[name] = asyncio.run(rebuilding)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                    outcomes[name] = error
        finally:
            spark.stop()
        return outcomes

    return run


def _tell_failures(
    failures: Mapping[str, Exception], *, alone: bool, what: str = "rebuilt"
) -> None:
    """Ends the command if there are any: one by itself as the mistake or the defect that it is."""
    from headrace.errors import HeadraceError

    for name, error in failures.items():
        if alone or not isinstance(error, HeadraceError):
            raise error
        typer.echo(f"projection {name}: not {what}: {error}", err=True)
    if failures:
        sys.exit(2)


def _announce(phase: str, ahead: int) -> None:
    typer.echo(f"{phase}: {ahead:,} ahead" if ahead else f"{phase} …", err=True)


def _show(report: "RebuildReport", *, json: bool) -> None:
    if json:
        typer.echo(report.to_json())
        return
    typer.echo(
        f"projection {report.projection}: {report.events:,} events folded into {report.rows:,} rows"
        f" ({report.events_per_second:,.0f} events/s), {report.caught_up:,} messages caught up"
    )
    if report.compared is not None:
        typer.echo(
            f"compared {report.compared:,} rows with the live table: {report.mismatches} differ"
        )
    for key, live, rebuilt in report.differences:
        typer.echo(f"  {key}: live {live}, rebuilt {rebuilt}")
    typer.echo(
        f"table {report.table} is live" if report.switched else f"not switched: {report.reason}"
    )


@commands.command()
def rollback(
    name: Name, *, app_path: AppPath, read_models: ReadModelsUrl = "sqlite:///var/read.db"
) -> None:
    """Put the table from before the last switch back in place."""
    from headrace._projecting.read_models import ReadModels
    from headrace.app import load_app

    projection = load_app(app_path).projection(name)

    async def ask() -> int:
        models = ReadModels(read_models)
        try:
            await models.rollback(projection)
            return await models.generation(name)
        finally:
            await models.aclose()

    typer.echo(f"projection {name} is back at generation {asyncio.run(ask())}")
