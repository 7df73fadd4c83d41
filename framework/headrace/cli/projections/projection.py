"""`headrace projection`: rebuilds and verifies read models, and gathers the other commands."""

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from headrace.cli.options import (
    AppPath,
    EventStoreUrl,
    LogFormat,
    NoBroker,
    QueueAddress,
    ReadModelsUrl,
    SparkMaster,
    SparkRemote,
    SparkSettings,
    Unsealed,
    spark_settings,
    vouching_store,
)
from headrace.cli.projections import control, status
from headrace.cli.projections import follow as following
from headrace.cli.projections.differences import show, show_comparison, show_forecast
from headrace.cli.projections.wishes import AsOf, DryRun, Expect, check_expected, moment_of
from headrace.cli.queue.administration import milliseconds

if TYPE_CHECKING:  # engines are loaded by the functions that need them
    from headrace.app import App
    from headrace.rebuild.local.moment import Moment
    from headrace.rebuild.local.partial_rebuild import Wanted
    from headrace.rebuild.report import RebuildReport

    _Outcomes = Mapping[str, RebuildReport | Exception]

    class _Run(Protocol):
        """Rebuilds projections; quiet: without a line per phase."""

        def __call__(self, names: list[str], *, quiet: bool) -> _Outcomes: ...


__all__ = ["commands"]

commands = typer.Typer(help="Projections (read models).", no_args_is_help=True)
commands.command("list")(status.list_projections)
commands.command()(following.follow)
commands.command()(status.status)
commands.command()(control.pause)
commands.command()(control.resume)
commands.command()(control.index)
commands.command()(control.reset)
commands.command()(control.switch)
commands.command()(control.rollback)
commands.command()(control.drop)

Names = Annotated[list[str], typer.Argument(help="The projections' names.")]
Engine = Annotated[
    str,
    typer.Option(
        help="'replay': in this process. 'spark': on every core, or a cluster. 'columns': declared folds"
        " from exported files, without Java. 'auto': the last, where it can; else the first or the second,"
        " by the number of messages."
    ),
]
Start = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="zero|store|offsets|TIME",
        help="'zero': every event of the event topic. 'store': every event of the event store, which"
        " needs no topic. 'offsets': what came since, on top of the live rows. A time (ISO"
        " 8601, or ms since 1970): the rows that events stored since then touch, from zero; the"
        " others stay.",
    ),
]
OnlyKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--only-keys",
        metavar="KEY|@FILE",
        help="Rebuild only these rows, from the first event on; the others stay. A key, or a file"
        " with one key per line; repeat it for more.",
    ),
]
Verify = Annotated[bool, typer.Option(help="Compare with the live table before switching.")]
Switch = Annotated[bool, typer.Option(help="Make the rebuilt table live.")]
Accept = Annotated[
    bool,
    typer.Option(
        "--accept-differences",
        help="Switch even if rows differ, and report which ones; use it after a change of code.",
    ),
]
Against = Annotated[
    str,
    typer.Option(
        metavar="store|topic",
        help="'store': what the event store makes of them, up to the versions that they have."
        " 'topic': the event topic, up to their offsets.",
    ),
]
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


@commands.command()
def rebuild(
    names: Names,
    *,
    app_path: AppPath,
    broker: QueueAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    unsealed: Unsealed = False,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    engine: Engine = "auto",
    start: Start = "zero",
    only_keys: OnlyKeys = None,
    verify: Verify = True,
    switch: Switch = True,
    accept: Accept = False,
    expect: Expect = None,
    as_of: AsOf = None,
    dry_run: DryRun = False,
    no_broker: NoBroker = False,
    take_over: TakeOver = False,
    json: AsJson = False,
    page: Page = None,
    from_export: FromExport = None,
    master: SparkMaster = "",
    remote: SparkRemote = "",
    conf: SparkSettings = None,
    log_format: LogFormat = "console",
) -> None:
    """Rebuild projections from the event topic or store, several in one pass. Exit status 1 on a mismatch."""
    from headrace.cli.logs import configure_logs

    configure_logs(log_format)
    _check_choices(engine, from_export, start, no_broker=no_broker)
    check_expected(expect, accept=accept, verify=verify)
    moment = moment_of(as_of, engine=engine, start=start, some=bool(only_keys))
    switch = switch and moment is None
    wanted = _wanted(start, only_keys)
    session = _session_choices(engine, master, remote, conf)
    app = _application(app_path, names)
    choices: dict[str, Any] = {
        "broker": None if no_broker else broker,
        "read_models_url": read_models,
        "event_store_url": vouching_store(event_store, unsealed=unsealed),
        "source": "store" if start == "store" else "topic",
        "start": "offsets" if start == "offsets" else "zero",
        "verify": verify,
        "switch": switch,
        "accept": accept or expect or False,
        "take_over": take_over,
    }
    if dry_run:
        return _foretell(app, names, choices, moment, json=json)
    asked = _Asked(
        engine, quiet=json, session=session, wanted=wanted, export=from_export, moment=moment
    )
    run = _run_by(asked, app_path, names, choices)
    outcomes = run(names, quiet=json)
    reports = _tell(outcomes, json=json, page=page)
    most = math.inf if accept else expect or 0
    sys.exit(0 if all(_as_wished(each, switch=switch, most=most) for each in reports) else 1)


def _application(app_path: str, names: list[str]) -> "App":
    """Returns the application; an error if it has no projection of a name."""
    from headrace.app import load_app

    app = load_app(app_path)
    for name in names:
        app.projection(name)
    return app


def _as_wished(report: "RebuildReport", *, switch: bool, most: float) -> bool:
    """Whether the result is live if it was to be, and would be if it was not."""
    return report.switched if switch else not report.switched and report.mismatches <= most


def _foretell(
    app: "App", names: list[str], choices: Mapping[str, Any], moment: "Moment | None", *, json: bool
) -> None:
    """Prints what rebuilds would do."""
    from headrace.cli.application.databases import existing_read_models
    from headrace.rebuild.local.forecast import forecast
    from headrace.rebuild.source import open_events

    urls = (choices["broker"], choices["event_store_url"])
    events = open_events(
        app, choices["source"], urls, switch=False, live_wait_ms=0, messages_max=1_000
    )

    async def ask() -> None:
        async with events as found, existing_read_models(choices["read_models_url"]) as models:
            for name in dict.fromkeys(names):
                onto_live = choices["start"] == "offsets"
                told = await forecast(
                    app, app.projection(name), found, models, onto_live=onto_live, as_of=moment
                )
                show_forecast(told, json=json, switch=choices["switch"])

    asyncio.run(ask())


def _check_choices(engine: str, from_export: Path | None, start: str, *, no_broker: bool) -> None:
    _check_engine(engine, "columns")
    if engine == "columns" and from_export is None:
        raise typer.BadParameter(
            "'columns' folds exported files: use it with --from-export", param_hint="--engine"
        )
    if engine == "columns" and start != "zero":
        raise typer.BadParameter("'columns' folds from zero; leave it out", param_hint="--from")
    if from_export is not None and engine == "replay":
        raise typer.BadParameter(
            "exported files need --engine columns or spark", param_hint="--from-export"
        )
    if from_export is not None and start == "store":
        raise typer.BadParameter(
            "exported files are a part of the event topic; use them without --from store",
            param_hint="--from-export",
        )
    if no_broker and start != "store":
        raise typer.BadParameter(
            "the event topic is the broker's; without one, use --from store",
            param_hint="--no-broker",
        )


def _wanted(start: str, only_keys: list[str] | None) -> "Wanted | None":
    """Returns which rows to rebuild; None: all."""
    from headrace.rebuild.local.partial_rebuild import Wanted

    if only_keys:
        if start != "zero":
            raise typer.BadParameter(
                "rows of some keys are folded from their first event on; leave --from out",
                param_hint="--only-keys",
            )
        return Wanted(keys=frozenset(key for each in only_keys for key in _keys_of(each)))
    if start in {"zero", "store", "offsets"}:
        return None
    try:
        return Wanted(since_ms=milliseconds(start, "--from"))
    except typer.BadParameter as error:
        raise typer.BadParameter(
            "use 'zero', 'store', 'offsets', or a time such as 2026-01-31T14:00:00Z or in milliseconds since"
            f" 1970, not {start!r}",
            param_hint="--from",
        ) from error


def _keys_of(given: str) -> list[str]:
    if not given.startswith("@"):
        return [given]
    try:
        lines = Path(given[1:]).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(
            f"cannot read {given[1:]}: {error}", param_hint="--only-keys"
        ) from error
    keys = [line for line in lines if line]
    if not keys:
        raise typer.BadParameter(f"there is no key in {given[1:]}", param_hint="--only-keys")
    return keys


@commands.command()
def verify(
    names: Names,
    *,
    app_path: AppPath,
    broker: QueueAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    unsealed: Unsealed = False,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    engine: Engine = "auto",
    against: Against = "store",
    json: AsJson = False,
    log_format: LogFormat = "console",
) -> None:
    """Compare live tables, row for row, with what the events make. Exit status 1 on a mismatch.

    Builds each table again under another name, all in one pass, compares it with the live one at the
    same versions of its aggregates, and drops it. The live tables stay as they are.
    """
    from headrace.cli.logs import configure_logs
    from headrace.rebuild.check import drop_built

    configure_logs(log_format)
    _check_engine(engine)
    if against not in {"store", "topic"}:
        raise typer.BadParameter("use 'store' or 'topic'", param_hint="--against")
    _application(app_path, names)
    choices: dict[str, Any] = {
        "broker": broker,
        "read_models_url": read_models,
        "event_store_url": vouching_store(event_store, unsealed=unsealed),
        "source": against,
        "switch": False,
    }
    run = _run_by(_Asked(engine, quiet=json), app_path, names, choices)
    built = run(names, quiet=json)
    outcomes = asyncio.run(drop_built(app_path, built, read_models_url=read_models))
    reports = [outcome for outcome in outcomes.values() if not isinstance(outcome, Exception)]
    for report in reports:
        show_comparison(report, json=json)
    failures = {name: each for name, each in outcomes.items() if isinstance(each, Exception)}
    _tell_failures(failures, alone=len(outcomes) == 1, what="verified")
    sys.exit(0 if all(each.proven for each in reports) else 1)


def _session_choices(
    engine: str, master: str, remote: str, conf: list[str] | None
) -> dict[str, Any]:
    if (master or remote or conf) and engine in {"replay", "columns"}:
        raise typer.BadParameter("a cluster needs --engine spark", param_hint="--engine")
    if master and remote:
        raise typer.BadParameter("use --master or --remote, not both", param_hint="--remote")
    return {"master": master, "remote": remote, "settings": spark_settings(conf)}


def _check_engine(engine: str, *others: str) -> None:
    engines = ["auto", "replay", "spark", *others]
    if engine not in engines:
        named = " or ".join(f"'{each}'" for each in engines)
        raise typer.BadParameter(f"use {named}", param_hint="--engine")


@dataclass(frozen=True, slots=True)
class _Asked:
    """The engine that was named, or `auto`, and what it depends on."""

    engine: str
    quiet: bool = field(kw_only=True)
    session: dict[str, Any] = field(kw_only=True, default_factory=dict)
    wanted: "Wanted | None" = field(kw_only=True, default=None)
    export: Path | None = field(kw_only=True, default=None)
    moment: "Moment | None" = field(kw_only=True, default=None)


def _run_by(asked: _Asked, app_path: str, names: list[str], choices: dict[str, Any]) -> "_Run":
    """Returns what rebuilds with the engine that was named; or, by size, with one that it tells of."""
    engine = asked.engine
    if engine == "auto" and asked.moment is not None:
        engine = "replay"
    if engine == "auto":
        from headrace.app import load_app
        from headrace.cli.projections.engine import chosen

        needed = "a cluster" if any(asked.session.values()) else ""
        few, export = asked.wanted is not None, asked.export
        app = load_app(app_path)
        found = chosen(app, names, choices, needs_spark=needed, few=few, export=export)
        engine = found.engine
        if found.why and not asked.quiet:
            typer.echo(f"engine {engine}: {found.why}", err=True)
    if engine in {"replay", "columns"}:
        return _here(app_path, choices | {"as_of": asked.moment}, asked.wanted, asked.export)
    exported = {"export": asked.export} if asked.export else {}
    return _with_spark(app_path, choices | exported, asked.session, asked.wanted)


def _here(
    app_path: str,
    choices: dict[str, Any],
    wanted: "Wanted | None" = None,
    export: Path | None = None,
) -> "_Run":
    from headrace.rebuild.local.rebuild import rebuild as rebuild_here
    from headrace.rebuild.local.rebuild import rebuild_together

    if wanted is not None and export is not None:
        raise typer.BadParameter("'columns' makes all rows; leave it out", param_hint="--only-keys")
    if wanted is not None:
        return _one_by_one(partial(rebuild_here, app_path, wanted=wanted, **choices))

    if export is not None:
        from headrace.spark.columns.rebuild import rebuild_together as rebuild_from_files

        as_of, others = choices["as_of"], {key: choices[key] for key in choices if key != "as_of"}
        if as_of is not None:
            raise typer.BadParameter("'columns' reads all that was exported", param_hint="--as-of")
        return _together(partial(rebuild_from_files, app_path, export=export, **others))
    return _together(partial(rebuild_together, app_path, **choices))


def _together(rebuilding: "Callable[..., Coroutine[Any, Any, _Outcomes]]") -> "_Run":
    def run(names: list[str], *, quiet: bool) -> "_Outcomes":
        several = len(set(names)) > 1

        def announce(name: str, phase: str, ahead: int) -> None:
            _announce(f"{name}: {phase}" if several else phase, ahead)

        told = None if quiet else announce
        return asyncio.run(rebuilding(names, report=told))

    return run


def _with_spark(
    app_path: str,
    choices: dict[str, Any],
    session: Mapping[str, Any] | None = None,
    wanted: "Wanted | None" = None,
) -> "_Run":
    from headrace.cli.projections.spark_failures import plain_failures, told
    from headrace.spark.rebuild import rebuild_together as rebuild_with_spark
    from headrace.spark.session import SessionOnDemand, open_session

    def run(names: list[str], *, quiet: bool) -> "_Outcomes":
        spark = SessionOnDemand(start=partial(open_session, **(session or {})))
        rebuilding = partial(rebuild_with_spark, app_path, spark=spark, wanted=wanted, **choices)
        with plain_failures():
            try:
                outcomes = _together(rebuilding)(names, quiet=quiet)
            finally:
                spark.stop()
            return {name: told(each) for name, each in outcomes.items()}

    return run


def _one_by_one(rebuilding: "Callable[..., Coroutine[Any, Any, RebuildReport]]") -> "_Run":
    def run(names: list[str], *, quiet: bool) -> "_Outcomes":
        told = None if quiet else _announce
        outcomes: dict[str, RebuildReport | Exception] = {}
        for name in dict.fromkeys(names):
            try:
                outcomes[name] = asyncio.run(rebuilding(name, report=told))
            except Exception as error:  # noqa: BLE001 - the other projections go on
                outcomes[name] = error
        return outcomes

    return run


def _tell(outcomes: "_Outcomes", *, json: bool, page: Path | None) -> "list[RebuildReport]":
    """Prints what rebuilds have done, and returns it; ends the command if one has failed."""
    from headrace.rebuild.page import to_page

    reports = [outcome for outcome in outcomes.values() if not isinstance(outcome, Exception)]
    for report in reports:
        show(report, json=json)
    if page is not None:
        page.write_text(to_page(reports), encoding="utf-8")
    failures = {name: each for name, each in outcomes.items() if isinstance(each, Exception)}
    _tell_failures(failures, alone=len(outcomes) == 1)
    return reports


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
