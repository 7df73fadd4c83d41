"""`headrace broker`: runs a broker until it is told to stop."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.keeping import (
    DiskDelete,
    DiskLook,
    DiskRefuse,
    FlushInterval,
    RetentionInterval,
    SegmentsDeleted,
    SegmentSize,
    TailCache,
    TransientAge,
    TransientSize,
    UnconsumedAge,
)
from headrace.cli.options import LogFormat

__all__ = ["broker"]


def broker(
    *,
    data: Annotated[
        Path, typer.Option(envvar="HEADRACE_DATA", help="Folder of the broker's files.")
    ],
    host: Annotated[
        str, typer.Option(envvar="HEADRACE_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="HEADRACE_PORT", help="Port; 0 takes a free one.")
    ] = 9876,
    flush: Annotated[
        str,
        typer.Option(
            help="'always': an ack means the disk has it. 'interval': the page cache has it."
        ),
    ] = "always",
    flush_interval: FlushInterval = None,
    segment_size: SegmentSize = None,
    tail_cache: TailCache = None,
    transient_age: TransientAge = None,
    transient_size: TransientSize = None,
    unconsumed_age: UnconsumedAge = None,
    retention_interval: RetentionInterval = None,
    segments_deleted_max: SegmentsDeleted = None,
    disk_refuse: DiskRefuse = None,
    disk_delete: DiskDelete = None,
    disk_look: DiskLook = None,
    log_format: LogFormat = "console",
) -> None:
    """Run a broker. Prints `headrace broker ready on HOST:PORT` once it listens; stop it with SIGTERM."""
    from headrace.cli.logs import configure_logs
    from headrace_mq.broker.server import run
    from headrace_mq.settings import BrokerSettings, StoreSettings

    configure_logs(log_format)
    if flush not in {"always", "interval"}:
        raise typer.BadParameter("use 'always' or 'interval'", param_hint="--flush")
    given = {
        "flush_interval_ms": flush_interval,
        "segment_bytes": segment_size,
        "tail_cache_bytes": tail_cache,
        "transient_age_ms": transient_age,
        "transient_bytes_max": transient_size,
        "unconsumed_ms_max": unconsumed_age,
        "retention_interval_ms": retention_interval,
        "segments_deleted_max": segments_deleted_max,
        "disk_refuse_percent": disk_refuse,
        "disk_delete_percent": disk_delete,
        "disk_look_ms": disk_look,
    }
    try:
        store = StoreSettings(
            directory=data,
            flush="interval" if flush == "interval" else "always",
            **{name: value for name, value in given.items() if value is not None},
        )
        settings = BrokerSettings(store=store, host=host, port=port)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    run(settings, ready=lambda address: print(f"headrace broker ready on {address}", flush=True))
