"""`headrace broker`: runs a broker until it is told to stop; `show` asks one that runs."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from headrace.cli.amounts import duration_us
from headrace.cli.options import BrokerAddress, LogFormat
from headrace.cli.queue.administration import AsJson, ask, per_second, print_json, print_table, when
from headrace.cli.queue.archive_options import ArchiveBacklog, ArchiveUrl, ArchiveWindow
from headrace.cli.queue.quota import ClientQuota, TopicQuota, default_rates
from headrace.cli.queue.settings import ConfigFile, SetPairs, gather
from headrace.cli.queue.store_options import (
    CompactDirty,
    CompactInterval,
    CompactLag,
    CompactMemory,
    CompactRate,
    CompactSegmentSize,
    DiskDelete,
    DiskLook,
    DiskRefuse,
    FlushInterval,
    FlushMode,
    RetentionInterval,
    SegmentsDeleted,
    SegmentSize,
    TailCache,
    TombstoneAge,
    TransientAge,
    TransientSize,
    UnconsumedAge,
)
from headrace.cli.queue.supervision import (
    CrashReports,
    StuckAfter,
    Supervise,
    SupervisedBy,
    divide_work,
)

__all__ = ["commands"]

# Whose setting an option gives, and how it is called there.
_SETTINGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "broker": {
            "host": "host",
            "port": "port",
            "busy_poll": "busy_poll_us",
            "filter_processes": "filter_processes_max",
        },
        "store": {
            "data": "directory",
            "flush": "flush",
            "flush_interval": "flush_interval_ms",
            "segment_size": "segment_bytes",
            "tail_cache": "tail_cache_bytes",
            "transient_age": "transient_age_ms",
            "transient_size": "transient_bytes_max",
            "unconsumed_age": "unconsumed_ms_max",
            "retention_interval": "retention_interval_ms",
            "segments_deleted_max": "segments_deleted_max",
            "compact_segment_size": "compact_segment_bytes",
            "compact_dirty": "compact_dirty_percent",
            "compact_interval": "compact_interval_ms",
            "compact_lag": "compact_lag_ms",
            "tombstone_age": "tombstone_ms",
            "compact_memory": "compact_memory_bytes",
            "compact_rate": "compact_bytes_per_s",
            "disk_refuse": "disk_refuse_percent",
            "disk_delete": "disk_delete_percent",
            "disk_look": "disk_look_ms",
        },
        "archive": {
            "archive": "url",
            "archive_window": "window_bytes",
            "archive_backlog": "backlog_bytes_max",
        },
    }
)

commands = typer.Typer(invoke_without_command=True)

Host = Annotated[
    str | None,
    typer.Option(envvar="HEADRACE_HOST", show_default="127.0.0.1", help="Address to listen on."),
]
Port = Annotated[
    int | None,
    typer.Option(envvar="HEADRACE_PORT", show_default="9876", help="Port; 0 takes a free one."),
]

BusyPoll = Annotated[
    int | None,
    typer.Option(
        "--busy-poll", parser=duration_us, metavar="TIME", show_default="0",
        help="How long to look for more, instead of sleeping, while messages come that close.",
    ),
]  # fmt: skip

FilterProcesses = Annotated[
    int | None,
    typer.Option(
        "--filter-processes", min=0, show_default="2",
        help="Processes that look through backlogs of which groups want little; 0: none.",
    ),
]  # fmt: skip


@commands.callback()
def broker(
    context: typer.Context,
    *,
    data: Annotated[
        Path | None,
        typer.Option(envvar="HEADRACE_DATA", help="Folder of the broker's files; required."),
    ] = None,
    config: ConfigFile = None,
    set_: SetPairs = None,
    host: Host = None,
    port: Port = None,
    busy_poll: BusyPoll = None,
    filter_processes: FilterProcesses = None,
    flush: FlushMode = None,
    flush_interval: FlushInterval = None,
    segment_size: SegmentSize = None,
    tail_cache: TailCache = None,
    transient_age: TransientAge = None,
    transient_size: TransientSize = None,
    unconsumed_age: UnconsumedAge = None,
    retention_interval: RetentionInterval = None,
    segments_deleted_max: SegmentsDeleted = None,
    compact_segment_size: CompactSegmentSize = None,
    compact_dirty: CompactDirty = None,
    compact_interval: CompactInterval = None,
    compact_lag: CompactLag = None,
    tombstone_age: TombstoneAge = None,
    compact_memory: CompactMemory = None,
    compact_rate: CompactRate = None,
    disk_refuse: DiskRefuse = None,
    disk_delete: DiskDelete = None,
    disk_look: DiskLook = None,
    archive: ArchiveUrl = None,
    archive_window: ArchiveWindow = None,
    archive_backlog: ArchiveBacklog = None,
    log_format: LogFormat = "console",
    supervise: Supervise = False,
    stuck_after: StuckAfter = None,
    crash_reports: CrashReports = None,
    supervised_by: SupervisedBy = None,
    client_quota: ClientQuota = None,
    topic_quota: TopicQuota = None,
) -> None:
    """Run a broker. Prints `headrace broker ready on HOST:PORT` once it listens; stop it with SIGTERM."""
    options = locals()
    if context.invoked_subcommand is not None:
        return
    if data is None:
        raise typer.BadParameter("say where the broker keeps its files", param_hint="--data")
    _prepare(flush, log_format)
    divide_work(data, supervise, stuck_after, crash_reports, supervised_by)
    _serve(options)


def _prepare(flush: str | None, log_format: str) -> None:
    from headrace.cli.logs import configure_logs

    configure_logs(log_format)
    if flush not in {None, "always", "interval"}:
        raise typer.BadParameter("use 'always' or 'interval'", param_hint="--flush")


def _serve(options: Mapping[str, Any]) -> None:
    from headrace_mq.broker.server import run
    from headrace_mq.settings import ArchiveSettings, BrokerSettings, StoreSettings

    kinds: dict[str, Any] = {
        "broker": BrokerSettings,
        "store": StoreSettings,
        "archive": ArchiveSettings,
    }
    read = gather(kinds, file=options["config"], environment=os.environ, pairs=options["set_"])
    for part, names in _SETTINGS.items():
        read[part] |= {
            name: options[option] for option, name in names.items() if options[option] is not None
        }
    read["broker"] |= default_rates(client=options["client_quota"], topic=options["topic_quota"])
    if read["archive"] and "url" not in read["archive"]:
        raise typer.BadParameter("say where the archive is", param_hint="--archive")
    try:
        archive = ArchiveSettings(**read["archive"]) if read["archive"] else None
        store = StoreSettings(**read["store"])
        settings = BrokerSettings(store=store, archive=archive, **read["broker"])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    run(settings, ready=lambda address: print(f"headrace broker ready on {address}", flush=True))


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
    if status.damaged:
        rows.append(("damaged places, left out", status.damaged))
        rows += [("damaged", one) for one in status.damage]
    rows.append(("takes messages", f"no: {status.refuses}" if status.refuses else "yes"))
    print_table(("", ""), ((name, f"{v:,}" if isinstance(v, int) else v) for name, v in rows))
