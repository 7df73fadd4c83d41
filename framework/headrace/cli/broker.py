"""`headrace broker`: runs a broker until it is told to stop."""

from pathlib import Path
from typing import Annotated

import typer

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
    segment_mib: Annotated[int, typer.Option(help="Size of a log segment in MiB.")] = 1024,
    log_format: LogFormat = "console",
) -> None:
    """Run a broker. Prints `headrace broker ready on HOST:PORT` once it listens; stop it with SIGTERM."""
    from headrace.cli.logs import configure_logs
    from headrace_mq.broker.server import run
    from headrace_mq.settings import MIB, BrokerSettings, StoreSettings

    configure_logs(log_format)
    if flush not in {"always", "interval"}:
        raise typer.BadParameter("use 'always' or 'interval'", param_hint="--flush")
    try:
        settings = BrokerSettings(
            store=StoreSettings(
                directory=data,
                flush="interval" if flush == "interval" else "always",
                segment_bytes=segment_mib * MIB,
            ),
            host=host,
            port=port,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    run(settings, ready=lambda address: print(f"headrace broker ready on {address}", flush=True))
