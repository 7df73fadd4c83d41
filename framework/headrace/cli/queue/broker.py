"""`headrace broker`: runs a broker until you stop it; `show` describes one that runs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.options import BrokerAddress, LogFormat
from headrace.cli.queue.administration import AsJson, ask, per_second, print_json, print_table, when
from headrace.cli.queue.broker_options import BrokerGroup, given_settings
from headrace.cli.queue.quota import ClientQuota, TopicQuota, default_rates
from headrace.cli.queue.settings import ConfigFile, SetPairs, gather
from headrace.cli.queue.supervision import CrashReports, Supervise, SupervisedBy, divide_work

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace_mq.settings import BrokerSettings

__all__ = ["commands"]

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
    supervise: Supervise = False,
    crash_reports: CrashReports = None,
    supervised_by: SupervisedBy = None,
) -> None:
    """Run a broker. Prints `headrace broker ready on HOST:PORT` once it listens; stop it with SIGTERM."""
    if context.invoked_subcommand is not None:
        return
    given = given_settings(context)
    stuck_after_ms = given.pop("supervise", {}).get("stuck_after_ms")
    given.setdefault("broker", {}).update(default_rates(client=client_quota, topic=topic_quota))
    settings = _settings(config, set_, given)

    from headrace.cli.logs import configure_logs

    configure_logs(log_format)
    divide_work(settings.store.directory, supervise, stuck_after_ms, crash_reports, supervised_by)

    from headrace_mq.broker.server import run

    run(settings, ready=lambda address: print(f"headrace broker ready on {address}", flush=True))


def _settings(
    file: Path | None, pairs: list[str] | None, given: Mapping[str, Mapping[str, Any]]
) -> "BrokerSettings":
    """Returns the settings from the file, the environment and `--set`; what is given is strongest."""
    from headrace_mq.settings import ArchiveSettings, BrokerSettings, StoreSettings

    kinds: dict[str, Any] = {
        "broker": BrokerSettings, "store": StoreSettings, "archive": ArchiveSettings,
    }  # fmt: skip
    read = gather(kinds, file=file, environment=os.environ, pairs=pairs)
    for part, values in given.items():
        read[part] |= values
    if "directory" not in read["store"]:
        raise typer.BadParameter("say where the broker keeps its files", param_hint="--data")
    if read["archive"] and "url" not in read["archive"]:
        raise typer.BadParameter("say where the archive is", param_hint="--archive")
    try:
        archive = ArchiveSettings(**read["archive"]) if read["archive"] else None
        store = StoreSettings(**read["store"])
        return BrokerSettings(store=store, archive=archive, **read["broker"])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


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
