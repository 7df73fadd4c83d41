"""
`headrace doctor`: checks a deployment, and says for each finding what to do.

One line for each check: its state, its name, what was found, what to do. Nothing is changed. The exit status is 0
if all is well, 1 for warnings, 2 if something does not work. With `--bundle` it also writes a file for those who help.
"""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.amounts import duration_ms
from headrace.cli.options import EventStoreUrl, QueueAddress, ReadModelsUrl, queue_address
from headrace.cli.queue.administration import AsJson, print_json
from headrace.cli.queue.cluster import Cluster, Group
from headrace.cli.settings import ConfigFile, SetPairs
from headrace.cli.tables import print_table, table_lines

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace.cli.doctor.bundle import Deployment
    from headrace.cli.doctor.findings import Finding

__all__ = ["doctor"]

_COLUMNS: Final = ("state", "check", "finding", "what to do")
# Of a line of the report in a bundle; longer than any finding.
_WIDTH: Final = 10_000
# Options that are settings, with the command that has them and their names.
_SETTINGS: Final = {
    "broker": ("run", "broker"),
    "event_store": ("run", "event_store"),
    "read_models": ("run", "read_models"),
    "data": ("broker", "store.directory"),
}

AppArgument = Annotated[
    str,
    typer.Argument(
        metavar="[APP]",
        envvar="HEADRACE_APP",
        help="Application as MODULE:ATTRIBUTE; without one, the broker and the settings are checked.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", envvar="HEADRACE_DATA", help="The broker's folder, if it is on this machine."),
]  # fmt: skip
MaybeRecord = Annotated[
    str,
    typer.Option(
        "--record",
        envvar="HEADRACE_RECORD",
        help="Where the record of a group of brokers is: postgresql://… or etcd://….",
    ),
]
ClockMax = Annotated[
    str,
    typer.Option("--clock-max", metavar="TIME", help="Warn if the broker's clock is as far from this machine's."),
]  # fmt: skip
DiskDays = Annotated[
    int, typer.Option("--disk-days", min=0, help="Warn if a disk is full in fewer days.")
]
CertificateDays = Annotated[
    int,
    typer.Option("--certificate-days", min=0, help="Warn if a certificate ends in fewer days."),
]
Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle", metavar="FILE",
        help="Also write a new file, .tar.gz, for those who help you: findings, settings and figures, without secrets.",
    ),
]  # fmt: skip
BundleAlarms = Annotated[
    Path | None,
    typer.Option(
        "--alarms", envvar="HEADRACE_ALARMS", metavar="FILE",
        help="Settings of alarms in TOML: the bundle says which alarms fire.",
    ),
]  # fmt: skip


def doctor(
    context: typer.Context,
    app_path: AppArgument = "",
    *,
    broker: QueueAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    data: Data = None,
    record: MaybeRecord = "",
    cluster: Cluster = "default",
    group: Group = "g1",
    config: ConfigFile = None,
    set_: SetPairs = None,
    clock_max: ClockMax = "1s",
    disk_days: DiskDays = 14,
    certificate_days: CertificateDays = 21,
    bundle: Bundle = None,
    alarms: BundleAlarms = None,
    as_json: AsJson = False,
) -> None:
    """Check a deployment, and say for each finding what to do; nothing is changed.

    Exit status 0: all is well; 1: warnings; 2: something does not work.
    """
    from headrace.cli.doctor.bundle import Deployment, require_new
    from headrace.cli.doctor.examination import ExaminedGroup, Limits, examine
    from headrace.cli.doctor.findings import EXIT_STATUS, worst
    from headrace.cli.doctor.given import read_settings
    from headrace.cli.logs import configure_logs

    configure_logs("console", "error")
    if bundle is not None:
        require_new(bundle)
    options = {
        "broker": broker, "event_store": event_store, "read_models": read_models, "data": data,
    }  # fmt: skip
    given = {name for name in options if _is_given(context, name)}
    settings = read_settings(
        file=config,
        environment=os.environ,
        pairs=set_ or (),
        options=options,
        given=given,
        secured=lambda address: queue_address(context, address),
    )
    of_settings = settings.settings.part("group")
    if not record and of_settings is not None:
        record, cluster, group = of_settings.record, of_settings.cluster, of_settings.name
    examined = ExaminedGroup(record, cluster, group) if record else None
    findings = asyncio.run(
        examine(
            settings, app_path=app_path, databases=given & {"event_store", "read_models"}, group=examined,
            limits=Limits(duration_ms(clock_max), disk_days, certificate_days),
        )
    )  # fmt: skip
    _show(findings, app_path, as_json=as_json)
    if bundle is not None:
        chosen = {
            _SETTINGS[name]: str(options[name]) for name in given if _is_option(context, name)
        }
        _write(bundle, findings, Deployment(
            settings.run.broker or "", examined, alarms, config, tuple(set_ or ()), chosen
        ))  # fmt: skip
    raise typer.Exit(EXIT_STATUS[worst(findings)])


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name in {"COMMANDLINE", "ENVIRONMENT"}


def _is_option(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _write(file: Path, findings: "list[Finding]", deployment: "Deployment") -> None:
    from headrace.cli.doctor.bundle import Secrets, collect, write_bundle

    report = {
        "report.txt": "\n".join(table_lines(_COLUMNS, findings, _WIDTH)) + "\n",
        "report.json": _report(findings),
    }
    more = asyncio.run(collect(deployment, os.environ))
    write_bundle(file, report | more, Secrets.of(deployment, os.environ))
    typer.echo(f"{file} is written; look through it before you pass it on", err=True)


def _report(findings: "list[Finding]") -> dict[str, Any]:
    from headrace.cli.doctor.findings import worst

    return {"state": worst(findings), "checks": [each._asdict() for each in findings]}


def _show(findings: "list[Finding]", app_path: str, *, as_json: bool) -> None:
    if as_json:
        print_json(_report(findings))
        return
    print_table(_COLUMNS, findings)
    counts = {
        state: sum(each.state == state for each in findings)
        for state in ("ok", "warning", "failed")
    }
    more = (
        "" if app_path else "; name an application to check its topics, databases and projections"
    )
    typer.echo(", ".join(f"{count} {state}" for state, count in counts.items()) + more)
