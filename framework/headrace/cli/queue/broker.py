"""
`headrace broker`: runs a broker until you stop it; `show` describes one that runs.

With `--supervise` it runs the same command line again in a child process, watches it, and starts it again.
"""

import asyncio
import ctypes
import os
import platform
import signal
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import BrokerAddress, LogFormat, LogLevel
from headrace.cli.queue.administration import AsJson, ask, print_json
from headrace.cli.queue.broker_options import OPTIONS, BrokerGroup, given_settings
from headrace.cli.queue.quota import ClientQuota, TopicQuota, default_rates
from headrace.cli.settings import ConfigFile, SetPairs, SettingsFile, gather, settings_file
from headrace.cli.sources import layers_of, source_in
from headrace.cli.tables import print_table
from headrace.errors import HeadraceError
from headrace.figures.cluster import failover_loss
from headrace.figures.words import per_second, when

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace_mq.settings import BrokerSettings

__all__ = ["child_command", "commands", "end_with_parent"]

_READY = "headrace broker ready on "
# From Linux's prctl.h: the signal that this process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
# Settings of a group that a broker has for its name servers, if it has no group.
_SHARED = ("cluster", "name", "advertise")

Supervise = Annotated[
    bool,
    typer.Option(
        "--supervise",
        help="Run it in a process of its own and start that again when it dies or is stuck.",
    ),
]
CrashReports = Annotated[
    Path | None,
    typer.Option(
        "--crash-reports", metavar="FOLDER", show_default="DATA.crashes, next to the data",
        help="With --supervise: where reports of unwanted ends are kept.",
    ),
]  # fmt: skip
SupervisedBy = Annotated[int | None, typer.Option("--supervised-by", hidden=True)]

commands = typer.Typer(cls=BrokerGroup, invoke_without_command=True)


@commands.callback()
def broker(
    context: typer.Context,
    *,
    config: ConfigFile = None,
    set_: SetPairs = None,
    client_quota: ClientQuota = None,
    topic_quota: TopicQuota = None,
    log_format: LogFormat = "console",
    log_level: LogLevel = "info",
    supervise: Supervise = False,
    crash_reports: CrashReports = None,
    supervised_by: SupervisedBy = None,
) -> None:
    """Run a broker. Prints `headrace broker ready on HOST:PORT` once it listens; stop it with SIGTERM."""
    if context.invoked_subcommand is not None:
        return
    from headrace_mq._runtime.system_calls import control_module

    if control_module() is None:
        raise HeadraceError(
            "a broker needs Linux or macOS; here clients work, and App.run_local() needs no broker"
        )
    given = given_settings(context)
    stuck_after_ms = given.pop("supervise", {}).get("stuck_after_ms")
    given.setdefault("broker", {}).update(default_rates(client=client_quota, topic=topic_quota))
    file = settings_file(config)
    settings = _settings(file, set_, given)
    sources = _sources(context, file, set_, given)

    from headrace.cli.logs import configure_logs

    configure_logs(log_format, log_level)
    _divide_work(settings, supervise, stuck_after_ms, crash_reports, supervised_by)

    from headrace_mq.broker.process import run

    run(settings, ready=lambda address: print(f"{_READY}{address}", flush=True), sources=sources)


def _kinds() -> dict[str, Any]:
    """The settings of each part of a broker."""
    from headrace_mq.settings import (
        ArchiveSettings,
        BrokerSettings,
        GroupSettings,
        NamesSettings,
        StoreSettings,
    )

    return {
        "broker": BrokerSettings, "store": StoreSettings, "archive": ArchiveSettings, "group": GroupSettings,
        "names": NamesSettings,
    }  # fmt: skip


def _sources(
    context: typer.Context,
    file: SettingsFile | None,
    pairs: list[str] | None,
    given: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
    """Returns what gave each setting that is no default, by its name; what is given by an option is strongest."""
    layers = layers_of(_kinds(), file=file, environment=os.environ, pairs=pairs)
    found = {
        f"{part}.{name}": source_in(layers, part, name)[0]
        for layer in layers.values()
        for part, values in layer.items()
        for name in values
    }
    options = {row.setting: row for row in OPTIONS}
    for part, values in given.items():
        for name in values:
            row = options.get(f"{part}.{name}")
            asked = context.get_parameter_source(f"{part}__{name}")
            if row is None:
                source = f"--{name.partition('_')[0]}-quota"
            elif row.variable and asked is not None and asked.name == "ENVIRONMENT":
                source = row.variable
            else:
                source = row.option
            found[f"{part}.{name}"] = source
    shared = {
        f"names.{name}": found[f"group.{name}"] for name in _SHARED if f"group.{name}" in found
    }
    return {name.removeprefix("broker."): source for name, source in {**shared, **found}.items()}


def _settings(
    file: SettingsFile | None, pairs: list[str] | None, given: Mapping[str, Mapping[str, Any]]
) -> "BrokerSettings":
    """Returns the settings from the file, the environment and `--set`; what is given is strongest."""
    from headrace_mq.settings import (
        ArchiveSettings,
        BrokerSettings,
        GroupSettings,
        NamesSettings,
        StoreSettings,
    )

    read = gather(_kinds(), file=file, environment=os.environ, pairs=pairs)
    for part, values in given.items():
        read[part] |= values
    if "directory" not in read["store"]:
        raise typer.BadParameter("say where the broker keeps its files", param_hint="--data")
    if read["archive"] and "url" not in read["archive"]:
        raise typer.BadParameter("say where the archive is", param_hint="--archive")
    if (
        read["names"] and "record" not in read["group"]
    ):  # a broker that runs alone has these names, too
        read["names"] = {
            name: read["group"].pop(name) for name in _SHARED if name in read["group"]
        } | read["names"]
    if read["names"] and "servers" not in read["names"]:
        raise typer.BadParameter("say where the name servers are", param_hint="--nameservers")
    if read["group"] and "record" not in read["group"]:
        raise typer.BadParameter("say where the group's record is", param_hint="--record")
    try:
        archive = ArchiveSettings(**read["archive"]) if read["archive"] else None
        group = GroupSettings(**read["group"]) if read["group"] else None
        names = NamesSettings(**read["names"]) if read["names"] else None
        store = StoreSettings(**read["store"])
        return BrokerSettings(
            store=store, archive=archive, group=group, names=names, **read["broker"]
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _divide_work(
    settings: "BrokerSettings",
    supervise: bool,
    stuck_after_ms: int | None,
    reports: Path | None,
    supervised_by: int | None,
) -> None:
    """Returns in the process that is to be the broker; a supervisor does its work in here.

    Args:
        settings: of the broker. Reports are kept next to its folder, because that holds the broker's files
            alone: what else is in there would be taken for what is left of a damaged one.
        supervise: whether a supervisor is wanted.
        stuck_after_ms: None leaves it to the settings.
        reports: their folder, None for the one next to the data.
        supervised_by: the supervisor's process, in the process that it started.

    Raises:
        typer.Exit: the supervisor is done.
        typer.BadParameter: what a supervisor is to do is said, and none is wanted.
    """
    if supervised_by is not None:
        end_with_parent(supervised_by)
    elif supervise:
        raise typer.Exit(_supervise(settings, stuck_after_ms, reports))
    elif stuck_after_ms is not None:
        raise typer.BadParameter("only --supervise asks; add it", param_hint="--stuck-after")
    elif reports is not None:
        raise typer.BadParameter(
            "only --supervise writes any; add it", param_hint="--crash-reports"
        )


def _supervise(broker: "BrokerSettings", stuck_after_ms: int | None, reports: Path | None) -> int:
    from headrace_mq.settings import SuperviseSettings
    from headrace_mq.supervisor.supervisor import Supervised, supervise

    try:
        settings = SuperviseSettings()
        if stuck_after_ms is not None:
            settings = SuperviseSettings(
                stuck_after_ms=stuck_after_ms,
                ask_every_ms=min(settings.ask_every_ms, stuck_after_ms),
            )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--stuck-after") from error
    folder = broker.store.directory.resolve()
    supervised = Supervised(
        command=child_command,
        ready=_READY,
        reports=reports or folder.with_name(f"{folder.name}.crashes"),
        versions=_versions(),
        renews=broker.tls_certificate is not None,
    )
    return asyncio.run(supervise(supervised, settings, said=lambda line: print(line, flush=True)))


def child_command(port: int | None) -> tuple[str, ...]:
    """The command line of the broker's own process: this one's, with the last word on its port."""
    fixed = () if port is None else ("--port", str(port))
    # The interpreter writes every thread's stack when a signal ends it, also in the midst of C.
    interpreter = (sys.executable, "-X", "faulthandler", "-m", "headrace")
    return (*interpreter, *sys.argv[1:], "--supervised-by", str(os.getpid()), *fixed)


def end_with_parent(parent: int) -> None:
    """Has this process stop in order when its supervisor is gone, where the system can.

    Without it, the next supervisor would find the directory in use by a broker without a supervisor.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the system was told
            raise typer.Exit(1)


def _versions() -> dict[str, str]:
    try:
        own = version("headrace")
    except PackageNotFoundError:  # run from its sources
        own = "unknown"
    return {"headrace": own, "python": sys.version.split()[0], "system": platform.platform()}


@commands.command()
def show(*, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """Show a running broker: what it holds, what goes through it, whether it takes messages."""

    async def question(admin: Any) -> tuple[Any, Any]:
        return await admin.describe(), await admin.status()

    described, status = ask(broker, question)
    if as_json:
        print_json({"broker": described, "status": status})
        return
    rows: list[tuple[str, object]] = [
        ("address", described.broker),
        ("started (UTC)", when(described.started_at_ms)),
        ("starts so far", described.epoch),
        ("connections", status.connections),
        ("topics", status.topics),
        ("queues", status.queues),
        ("groups", status.groups),
    ]
    for way, traffic in (("in", status.produced), ("out", status.fetched)):
        messages, size = per_second(traffic)
        rows.append((way, f"{messages:,} messages/s, {size:,} bytes/s"))
    rows += [
        (f"log {log.log}", f"{log.segments:,} segments, {log.bytes:,} bytes on the disk")
        for log in status.logs
    ]
    rows += _process_rows(status)
    rows.append(("held up by quotas", f"{status.throttled:,} requests, {status.held:,} wait now"))
    for archive in status.archive:
        rows += [
            ("archive", archive.database),
            ("archived since the start", archive.messages),
            (
                "waits for the archive",
                f"{archive.waiting_bytes:,} bytes, {archive.waiting_ms:,} ms",
            ),
            ("archive's alarm", archive.alarm or "none"),
        ]
    compaction = status.compaction
    if compaction.clean_bytes or compaction.dirty_bytes:
        rows += [
            ("compacted", f"{compaction.clean_bytes:,} bytes, {compaction.dirty_bytes:,} to do"),
            ("last compaction (UTC)", when(compaction.last_run_ms)),
            ("messages of it", f"{compaction.kept:,} kept, {compaction.removed:,} removed"),
        ]
    if compaction.trouble:
        rows.append(("compaction hindered", compaction.trouble))
    if status.alarms:
        rows.append(("backlog alarms", " ".join(status.alarms)))
    if status.clock_alarm:
        rows.append(("clock alarm", status.clock_alarm))
    if status.paused:
        more = status.paused - len(status.paused_groups)
        named = [*status.paused_groups, *([f"and {more:,} more"] if more > 0 else [])]
        rows.append(("groups paused by an operator", " ".join(named)))
    rows += _damage_rows(status) + _leader_rows(status)
    no = status.refuses or status.shortage
    rows.append(("takes messages", f"no: {no}" if no else "yes"))
    print_table(("", ""), ((name, f"{v:,}" if isinstance(v, int) else v) for name, v in rows))


def _damage_rows(status: Any) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    if status.damaged:
        rows.append(("damaged places, left out", status.damaged))
        rows += [("damaged", one) for one in status.damage]
    if status.repaired:
        rows.append(("damaged places, repaired", status.repaired))
    if status.unrepaired:
        rows.append(("damaged places, not repaired", status.unrepaired))
    return rows


def _leader_rows(status: Any) -> list[tuple[str, object]]:
    """What a leader tells of its group of brokers."""
    rows: list[tuple[str, object]] = []
    for leads in status.leads:
        for one in leads.replicas:
            place = "in sync" if one.in_sync else "not in sync"
            said = f"{place}, {one.lag_bytes:,} bytes behind, had everything {one.lag_ms:,} ms ago"
            rows.append((f"replica {one.name}", said))
        rows.append(("a failover may lose", failover_loss(leads)))
        if leads.lost:
            rows.append(
                ("cut from its own log", f"{leads.lost:,} messages; see `headrace store lost`")
            )
    return rows


def _process_rows(status: Any) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for one in status.process:
        rows += [
            ("software", one.software),
            ("processor time", f"{one.cpu_ms / 1_000:,.1f} s"),
            ("memory", f"{one.memory_bytes:,} bytes"),
            ("disk", f"{one.disk_free_bytes:,} of {one.disk_bytes:,} bytes free"),
        ]
    return rows


@commands.command()
def connections(*, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """List who is connected: its user, its address, what it does, and the groups it is a member of."""
    found = ask(broker, lambda admin: admin.connections())
    if as_json:
        print_json(found)
        return
    print_table(
        ("client", "user", "address", "software", "connected (UTC)", "is", "groups", "bytes in", "bytes out"),
        (
            (
                one.client_id, one.user, one.address, one.software, when(one.since_ms),
                " ".join(one.roles), " ".join(one.groups), one.received_bytes, one.sent_bytes,
            )
            for one in found
        ),
    )  # fmt: skip
