"""`headrace run`: runs an application's command service, projections and process managers."""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import BrokerAddress, EventStoreUrl, LogFormat, ReadModelsUrl
from headrace.errors import HeadraceError

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for databases
    from headrace.app import App, RunningApp
    from headrace.gateway.readiness import Check
    from headrace.gateway.server import Serving
    from headrace.gateway.settings import GatewaySettings
    from headrace.settings import Settings

__all__ = ["run"]

# Commands leave little cyclic garbage; measured with 1,000 in flight, Python's own (700, 10, 10)
# cost a third of the throughput.
_GC_THRESHOLDS = (50_000, 20, 50)
_PORT_MAX = 65_535

HttpAddress = Annotated[
    str,
    typer.Option(
        envvar="HEADRACE_HTTP",
        metavar="HOST:PORT",
        help="Serve HTTP there too, in this process; port 0 takes a free one.",
    ),
]
HttpHosts = Annotated[
    str,
    typer.Option(
        envvar="HEADRACE_HTTP_HOSTS",
        metavar="NAME,…",
        help="Names by which HTTP requests may address it besides localhost, the host of --http and"
        " plain IP addresses; '*.example.com' is all below it, '*' any.",
    ),
]
HttpOrigins = Annotated[
    str,
    typer.Option(
        envvar="HEADRACE_HTTP_ORIGINS",
        metavar="ORIGIN,…",
        help="Origins whose pages may call it from a browser, such as https://shop.example; '*' is any.",
    ),
]


def _name(text: str) -> str:
    from headrace_mq.settings import ConsumerSettings  # the help text must not wait for the queue

    try:
        ConsumerSettings(name=text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return text


ProcessName = Annotated[
    str,
    typer.Option(
        envvar="HEADRACE_NAME",
        callback=_name,
        help="What this process is called at the broker; no two have the same. Restarted within 30 s it"
        " gets its queues back.",
    ),
]


def run(
    app_path: Annotated[
        str, typer.Argument(metavar="APP", help="Application as MODULE:ATTRIBUTE.")
    ],
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    http: HttpAddress = "",
    http_hosts: HttpHosts = "",
    http_origins: HttpOrigins = "",
    after_parked: Annotated[
        str,
        typer.Option(
            envvar="HEADRACE_AFTER_PARKED",
            help="An aggregate's commands after a parked one: 'go on', or 'hold' until it is dealt"
            " with.",
        ),
    ] = "go on",
    commands: Annotated[
        str,
        typer.Option(
            envvar="HEADRACE_COMMANDS",
            metavar="TOPIC,…",
            help="Handle only the commands of these topics; 'main' is the one that commands share.",
        ),
    ] = "",
    tracing: Annotated[
        bool,
        typer.Option(
            envvar="HEADRACE_TRACING",
            help="Make spans with the OpenTelemetry provider of this process.",
        ),
    ] = False,
    name: ProcessName = "",
    log_format: LogFormat = "console",
) -> None:
    """Run an application against a broker. Prints `headrace run ready`; stop it with SIGTERM.

    With --http the line ends with where it listens: `headrace run ready on http://HOST:PORT`.
    """
    import uvloop

    from headrace.cli.logs import configure_logs
    from headrace.settings import Settings

    configure_logs(log_format)
    if after_parked not in {"go on", "hold"}:
        raise typer.BadParameter("use 'go on' or 'hold'", param_hint="--after-parked")
    settings = Settings(
        broker=broker,
        name=name,
        event_store=event_store,
        read_models=read_models,
        after_parked="hold" if after_parked == "hold" else "go on",
        command_topics=_names(commands),
    )
    gateway = _gateway_settings(http, http_hosts, http_origins) if http else None
    uvloop.run(_serve(_application(app_path, tracing=tracing), settings, gateway))


def _application(path: str, *, tracing: bool) -> "App":
    from headrace.app import load_app

    app = load_app(path)
    if not tracing:
        return app
    try:
        from headrace.tracing.traced_parts import Tracing
    except ModuleNotFoundError as error:
        raise typer.BadParameter(
            "OpenTelemetry is not installed: pip install 'headrace[tracing]'",
            param_hint="--tracing",
        ) from error
    app.trace_with(Tracing())
    return app


async def _serve(app: "App", settings: "Settings", gateway: "GatewaySettings | None") -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with app.run(settings) as running, _http(app, running, settings, gateway) as serving:
        if running.read_only is not None and serving is None:
            raise HeadraceError(
                f"{running.read_only}: nothing can run; correct that, or answer queries with --http"
            )
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.collect()
        gc.freeze()
        where = f" on http://{serving.address}" if serving else ""
        print(f"headrace run ready{where}", flush=True)
        asked = asyncio.create_task(stop.wait(), name="signal")
        failures = {asyncio.create_task(running.failed(), name="failure")}
        if serving:
            failures.add(asyncio.create_task(serving.failed(), name="http failure"))
        done, pending = await asyncio.wait({asked, *failures}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        for failure in done & failures:
            failure.result()


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _gateway_settings(http: str, hosts: str, origins: str) -> "GatewaySettings":
    from headrace.gateway.settings import GatewaySettings

    host, colon, port = http.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise typer.BadParameter(
            f"write HOST:PORT, as in 127.0.0.1:8080, not {http!r}", param_hint="--http"
        )
    bound = host.removeprefix("[").removesuffix("]")
    return GatewaySettings(host=bound, port=int(port), hosts=_names(hosts), origins=_names(origins))


@asynccontextmanager
async def _http(
    app: "App", running: "RunningApp", settings: "Settings", gateway: "GatewaySettings | None"
) -> AsyncIterator["Serving | None"]:
    if gateway is None:
        yield None
        return
    from headrace.gateway.server import serving

    checks = _checks(settings, gateway.check_ms)
    async with serving(app, running, gateway, checks) as listening:
        yield listening


def _checks(settings: "Settings", check_ms: int) -> Mapping[str, "Check"]:
    """What only the command line knows how to look at."""
    from headrace.stores.database.engines import database_url, is_in_memory
    from headrace.stores.database.schema import check as check_schema

    async def broker() -> None:
        from headrace_mq.admin.client import AdminClient

        async with AdminClient(settings.broker or "", timeout_ms=check_ms) as admin:
            await admin.topics()

    async def event_store() -> None:
        await check_schema(settings.event_store)

    checks = {"broker": broker}
    if settings.event_store != "memory://" and not is_in_memory(database_url(settings.event_store)):
        checks["event_store"] = event_store
    return checks
