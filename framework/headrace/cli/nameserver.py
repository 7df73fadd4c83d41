"""`headrace nameserver`: runs a name server until you stop it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import LogFormat, LogLevel
from headrace.cli.settings import ConfigFile, SetPairs, gather

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from headrace_mq.name_settings import NameServerSettings

__all__ = ["nameserver"]

_READY = "headrace nameserver ready on "
_File = Path | None
Host = Annotated[
    str | None, typer.Option("--host", help="Address to listen on.", show_default="127.0.0.1")
]
Port = Annotated[
    int | None,
    typer.Option("--port", help="Port to listen on; 0 takes a free one.", show_default="9875"),
]
Certificate = Annotated[
    _File,
    typer.Option(
        "--tls-certificate",
        help="Speak TLS with this certificate and those that lead to its authority (PEM).",
    ),
]
Key = Annotated[
    _File,
    typer.Option(
        "--tls-key", help="The key of that certificate, which no other user may read (PEM)."
    ),
]
ClientCa = Annotated[
    _File,
    typer.Option(
        "--tls-client-ca",
        help="Let in only brokers and clients with a certificate that one of these authorities signed (PEM).",
    ),
]
Login = Annotated[
    bool | None,
    typer.Option(
        "--login",
        help="Answer only users that log in; a broker is one that may administer the cluster.",
    ),
]
Data = Annotated[
    _File,
    typer.Option(
        "--data", metavar="FOLDER",
        help="With --login: the folder with the users, as 'headrace user add --data' makes it.",
    ),
]  # fmt: skip
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure", envvar="HEADRACE_INSECURE",
        help="Listen to other machines without TLS or a login: those who get there may mislead clients.",
    ),
]  # fmt: skip
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics", help="HOST:PORT where GET /metrics answers with figures for Prometheus."
    ),
]


def nameserver(
    *,
    host: Host = None,
    port: Port = None,
    tls_certificate: Certificate = None,
    tls_key: Key = None,
    tls_client_ca: ClientCa = None,
    login: Login = None,
    data: Data = None,
    insecure: Insecure = None,
    metrics: Metrics = None,
    config: ConfigFile = None,
    set_: SetPairs = None,
    log_format: LogFormat = "console",
    log_level: LogLevel = "info",
) -> None:
    """Run a name server, which tells clients where brokers are. Prints `headrace nameserver ready on HOST:PORT`; stop it with SIGTERM."""
    given = {
        "host": host, "port": port, "tls_certificate": tls_certificate, "tls_key": tls_key,
        "tls_client_ca": tls_client_ca, "login": login, "data": data, "insecure": insecure, "metrics": metrics,
    }  # fmt: skip
    settings = _settings(config, set_, given)

    from headrace.cli.logs import configure_logs

    configure_logs(log_format, log_level)

    from headrace_mq.nameserver.process import run

    run(settings, ready=lambda address: print(f"{_READY}{address}", flush=True))


def _settings(
    file: Path | None, pairs: list[str] | None, given: dict[str, Any]
) -> "NameServerSettings":
    """Returns the settings from the file, the environment and `--set`; options are strongest."""
    from headrace_mq.name_settings import NameServerSettings

    kinds: dict[str, Any] = {"nameserver": NameServerSettings}
    read = gather(kinds, file=file, environment=os.environ, pairs=pairs)["nameserver"]
    read |= {name: value for name, value in given.items() if value is not None}
    try:
        return NameServerSettings(**read)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
