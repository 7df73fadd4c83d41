"""
Options of `headrace broker` that are settings: each is a row here, and the settings say the rest.

A row gives the option's name, its setting and its help. The type, the unit and the default come from
the setting, so each is written once. If you leave an option out, the file, the environment or the default
decides.

The options are built when `headrace broker` is called, because the import of the queue would slow down the
help of all other commands.
"""

from collections.abc import Iterator
from functools import lru_cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

import typer
from typer.core import TyperGroup

from headrace.cli.amounts import unit_of

__all__ = ["OPTIONS", "BrokerGroup", "given_settings"]


class OptionRow(NamedTuple):
    """One option.

    Attributes:
        option: what is written on the command line.
        setting: its part and its name there.
        help: what it does, in a sentence for the reader of `--help`.
        variable: of the environment, for the same.
    """

    option: str
    setting: str
    help: str
    variable: str | None = None


OPTIONS: Final = (
    OptionRow("--data", "store.directory", "Folder for the broker's files; required.", "HEADRACE_DATA"),
    OptionRow("--host", "broker.host", "Address to listen on.", "HEADRACE_HOST"),
    OptionRow("--port", "broker.port", "Port to listen on; 0 takes a free one.", "HEADRACE_PORT"),
    OptionRow("--tls-certificate", "broker.tls_certificate",
        "Speak TLS with this certificate and those that lead to its authority (PEM)."),
    OptionRow("--tls-key", "broker.tls_key", "The key of that certificate, which no other user may read (PEM)."),
    OptionRow("--tls-client-ca", "broker.tls_client_ca",
        "Let in only clients with a certificate that one of these authorities signed (PEM)."),
    OptionRow("--login", "broker.login",
        "Serve only users that log in, and only what rules allow them; 'headrace user add --admin' makes the first.",
        "HEADRACE_LOGIN"),
    OptionRow("--insecure", "broker.insecure",
        "Listen to other machines without TLS or a login: those who get there may do everything.",
        "HEADRACE_INSECURE"),
    OptionRow("--metrics", "broker.metrics",
        "HOST:PORT where GET /metrics answers with figures for Prometheus; port 0 takes a free one.", "HEADRACE_METRICS"),
    OptionRow("--busy-poll", "broker.busy_poll_us", "Busy-poll this long after each message (0 = never)."),
    OptionRow("--filter-processes", "broker.filter_processes_max",
        "Worker processes that filter old messages for selective consumers (0 = off)."),
    OptionRow("--flush", "store.flush",
        "'always': acknowledge once the disk has the message. 'interval': once the page cache has it."),
    OptionRow("--flush-interval", "store.flush_interval_ms",
        "With --flush interval: sync this often; a power cut may lose what came since."),
    OptionRow("--segment-size", "store.segment_bytes",
        "Size of a log segment; the broker deletes whole segments."),
    OptionRow("--transient-age", "store.transient_age_ms",
        "Delete messages older than this, unless their topic is kept forever."),
    OptionRow("--transient-size", "store.transient_bytes_max",
        "Delete the oldest of these messages once they take more than this (0 = no limit)."),
    OptionRow("--unconsumed-age", "store.unconsumed_ms_max",
        "Keep unconsumed messages up to this age (0 = normal retention)."),
    OptionRow("--retention-interval", "store.retention_interval_ms",
        "Look for segments to delete this often."),
    OptionRow("--segments-deleted-max", "store.segments_deleted_max",
        "Delete at most this many segments at a time."),
    OptionRow("--compact-segment-size", "store.compact_segment_bytes",
        "Size of a log segment of compacted topics; the newest one is never compacted."),
    OptionRow("--compact-dirty", "store.compact_dirty_percent",
        "Start compaction once this share of the log is uncompacted."),
    OptionRow("--compact-interval", "store.compact_interval_ms",
        "Check this often whether to compact."),
    OptionRow("--compact-lag", "store.compact_lag_ms",
        "Keep every message to a compacted topic for at least this long."),
    OptionRow("--tombstone-age", "store.tombstone_ms",
        "Keep messages without a body, which delete their keys, for this long."),
    OptionRow("--compact-memory", "store.compact_memory_bytes", "Memory for the keys of one compaction."),
    OptionRow("--compact-rate", "store.compact_bytes_per_s",
        "Read at most this much a second while compacting (0 = no limit)."),
    OptionRow("--disk-refuse", "store.disk_refuse_percent",
        "Refuse new messages while the disk is fuller than this (100% = never)."),
    OptionRow("--disk-delete", "store.disk_delete_percent",
        "Delete consumed messages early while the disk is fuller than this (100% = never)."),
    OptionRow("--disk-look", "store.disk_look_ms", "Check this often how full the disk is."),
    OptionRow("--archive", "archive.url",
        "Archive messages in this database, postgresql://…, and read old ones from there.",
        "HEADRACE_ARCHIVE"),
    OptionRow("--archive-window", "archive.window_bytes",
        "Keep this much of each log on the disk after it is archived."),
    OptionRow("--archive-backlog", "archive.backlog_bytes_max",
        "Refuse new messages while more than this waits for the archive."),
    OptionRow("--record", "group.record",
        "Belong to a group of brokers, whose record is here: postgresql://… or etcd://…; the others are replicas.",
        "HEADRACE_RECORD"),
    OptionRow("--group", "group.name", "The name of the group.", "HEADRACE_GROUP"),
    OptionRow("--advertise", "group.advertise",
        "HOST:PORT at which clients and the other brokers of the group reach this one.", "HEADRACE_ADVERTISE"),
    OptionRow("--min-in-sync", "group.min_in_sync",
        "Acknowledge nothing while fewer brokers of the group than this are in sync."),
    OptionRow("--nameservers", "names.servers",
        "Tell these name servers, HOST:PORT,HOST:PORT, where this broker is; with TLS tls://HOST:PORT?ca=FILE.",
        "HEADRACE_NAMESERVERS"),
    OptionRow("--stuck-after", "supervise.stuck_after_ms",
        "With --supervise: restart the broker when it does not answer for this long."),
)  # fmt: skip


class BrokerGroup(TyperGroup):
    """The command with the options of `OPTIONS`, whose values `given_settings` returns."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of settings, those of the command's function, and `--help`."""
        return [*_made(), *super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        """Calls the command's function, which takes no options of settings."""
        ctx.meta[__name__] = {one.name: ctx.params.pop(one.name) for one in _made()}
        return super().invoke(ctx)


def given_settings(context: typer.Context) -> dict[str, dict[str, Any]]:
    """Returns the values of the options that were given, by part and name of the setting."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in context.meta[__name__].items():
        part, _, setting = name.partition("__")
        if value is not None:
            found.setdefault(part, {})[setting] = value
    return found


@lru_cache(maxsize=1)
def _made() -> list[Any]:
    """The options as parameters of a command, named by the part and the name of their setting."""

    def options(**_: Any) -> None: ...

    options.__signature__ = Signature(list(_parameters()))  # type: ignore[attr-defined]  # a function's own
    command = typer.Typer(add_completion=False)
    command.command()(options)
    return typer.main.get_command(command).params


def _parameters() -> Iterator[Parameter]:
    from headrace_mq.settings import (
        ArchiveSettings,
        BrokerSettings,
        GroupSettings,
        NamesSettings,
        StoreSettings,
        SuperviseSettings,
    )

    parts: dict[str, Any] = {
        "broker": BrokerSettings, "store": StoreSettings, "archive": ArchiveSettings,
        "group": GroupSettings, "names": NamesSettings, "supervise": SuperviseSettings,
    }  # fmt: skip
    for row in OPTIONS:
        part, _, name = row.setting.partition(".")
        wanted = get_type_hints(parts[part]).get(name)
        if wanted is not None:
            default = _default(parts[part], name)
            yield _parameter(row, f"{part}__{name}", wanted, default)


def _default(settings: Any, name: str) -> Any:
    """The default of a setting; None where it must be given."""
    import msgspec

    (field,) = (field for field in msgspec.structs.fields(settings) if field.name == name)
    return None if field.default is msgspec.NODEFAULT else field.default


def _parameter(row: OptionRow, name: str, wanted: Any, default: Any) -> Parameter:
    unit = unit_of(name)
    kind = next((one for one in (bool, int, Path) if one in {wanted, *get_args(wanted)}), str)
    shown = default if unit is None else unit.write(default)
    option = typer.Option(
        row.option, envvar=row.variable, help=row.help,
        parser=unit and unit.read, metavar=unit and unit.kind,
        show_default=False if default is None or default is False else str(shown),
    )  # fmt: skip
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]  # known when it runs
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
