"""`headrace console`: a web console of a broker."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.alarms.alarms_file import MaybeAlarmsFile, read_alarms_file
from headrace.cli.options import BrokerAddress, EventStoreUrl, LogFormat, LogLevel, ReadModelsUrl
from headrace.cli.queue.cluster import Cluster, Group
from headrace.figures.cluster import RecordPlace

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for the server
    from headrace.console.settings import ConsoleSettings
    from headrace.console.verbs.alarm import AlarmVerbs
    from headrace.console.verbs.application import ApplicationVerbs
    from headrace.console.verbs.cluster import ClusterVerbs

__all__ = ["console"]

_PORT = 9_879

Hosts = Annotated[
    str,
    typer.Option(
        "--hosts",
        envvar="HEADRACE_CONSOLE_HOSTS",
        metavar="NAME,…",
        help="Names by which browsers may address it besides localhost, --host and plain IP addresses.",
    ),
]

AppPath = Annotated[
    str,
    typer.Option(
        "--app",
        envvar="HEADRACE_APP",
        help="Show this application's aggregates, projections, processes and what it has parked, too:"
        " MODULE:ATTRIBUTE.",
    ),
]
Record = Annotated[
    str,
    typer.Option(
        "--record",
        envvar="HEADRACE_RECORD",
        help="Show the group of brokers, too: where its record is, postgresql://… or etcd://….",
    ),
]


def console(
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
    host: Annotated[
        str, typer.Option(envvar="HEADRACE_CONSOLE_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            envvar="HEADRACE_CONSOLE_PORT", min=0, max=65_535, help="Port; 0 takes a free one."
        ),
    ] = _PORT,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Speak HTTPS with this certificate (PEM)."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The key of that certificate (PEM).")
    ] = None,
    hosts: Hosts = "",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Listen to other machines without TLS or a login, behind a proxy that has both.",
        ),
    ] = False,
    app_path: AppPath = "",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    record: Record = "",
    cluster: Cluster = "default",
    group: Group = "g1",
    alarms: MaybeAlarmsFile = None,
    log_format: LogFormat = "console",
    log_level: LogLevel = "info",
) -> None:
    """Serve a web console of a broker. Prints `headrace console ready on http://HOST:PORT`; stop it with SIGTERM.

    Where the broker has a login, each person signs in with its name and password there.
    """
    from pydantic import ValidationError

    from headrace.cli.logs import configure_logs
    from headrace.console.settings import ConsoleSettings

    configure_logs(log_format, log_level)
    names = tuple(each.strip() for each in hosts.split(",") if each.strip())
    try:
        settings = ConsoleSettings(
            host=host, port=port, certificate=certificate, key=key, hosts=names, insecure=insecure
        )
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"]) from error
    application = _application(app_path, event_store, read_models) if app_path else None
    brokers = _brokers(RecordPlace(record, cluster, group)) if record else None
    databases = {"HEADRACE_EVENT_STORE": event_store, "HEADRACE_READ_MODELS": read_models}
    known = {"HEADRACE_APP": app_path, **(databases if app_path else {}), "HEADRACE_RECORD": record}
    own = _environment(known | {"HEADRACE_ALARMS": "" if alarms is None else str(alarms)})
    options = ("--cluster", cluster, "--group", group)
    asyncio.run(_serve(broker, settings, application, brokers, _alarms(alarms), own, options))


def _environment(known: Mapping[str, str]) -> dict[str, str]:
    """The variables of this process, with what its options named."""
    return os.environ | {name: value for name, value in known.items() if value}


def _application(path: str, event_store: str, read_models: str) -> "ApplicationVerbs":
    from headrace.app import load_app
    from headrace.console.verbs.application import ApplicationVerbs

    return ApplicationVerbs(
        load_app(path),
        event_store=event_store,
        read_models=read_models,
        environment=os.environ | {"HEADRACE_APP": path},
    )


def _brokers(place: RecordPlace) -> "ClusterVerbs":
    from headrace.console.verbs.cluster import ClusterVerbs

    return ClusterVerbs(place)


def _alarms(file: Path | None) -> "AlarmVerbs | None":
    from headrace.console.verbs.alarm import AlarmVerbs

    return None if file is None else AlarmVerbs(read_alarms_file(file))


async def _serve(
    broker: str,
    settings: "ConsoleSettings",
    application: "ApplicationVerbs | None",
    brokers: "ClusterVerbs | None",
    alarms: "AlarmVerbs | None",
    environment: Mapping[str, str],
    options: Sequence[str],
) -> None:
    from headrace.console.server import serving_console
    from headrace.console.verbs.command import DiagnosticsBundle

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # Windows: Ctrl-C ends it
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    bundle = DiagnosticsBundle(environment, options)
    async with serving_console(broker, settings, application, brokers, alarms, bundle) as served:
        print(f"headrace console ready on {served.scheme}://{served.address}", flush=True)
        asked = asyncio.create_task(stop.wait(), name="signal")
        failure = asyncio.create_task(served.failed(), name="http failure")
        done, pending = await asyncio.wait({asked, failure}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if failure in done:
            failure.result()
