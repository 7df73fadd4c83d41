"""`headrace run`: runs an application's command service, projections and process managers."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.options import (
    EventStoreUrl,
    LogFormat,
    LogLevel,
    QueueAddress,
    ReadModelsUrl,
    queue_address,
)
from headrace.cli.settings import (
    ConfigFile,
    SetPairs,
    SettingsFile,
    gather,
    parts_given,
    settings_file,
)
from headrace.cli.sources import layers_of, told_settings
from headrace.errors import HeadraceError

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for databases
    from headrace.app import App, RunningApp
    from headrace.gateway.readiness import Check
    from headrace.gateway.server import Serving
    from headrace.gateway.settings import GatewaySettings
    from headrace.settings import Settings

__all__ = ["LISTENS", "listening", "run", "variables"]

# Commands leave little cyclic garbage; measured with 1,000 in flight, Python's own (700, 10, 10)
# cost a third of the throughput.
_GC_THRESHOLDS = (50_000, 20, 50)
_PORT_MAX = 65_535
# The variable that says where HTTP is served: of host and port at once.
LISTENS: Final = "HEADRACE_HTTP"

HttpAddress = Annotated[
    str,
    typer.Option(
        envvar=LISTENS,
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

Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="HEADRACE_INSECURE",
        help="Serve HTTP and metrics to other machines without TLS or without tokens, behind a proxy that has both.",
    ),
]
AfterParked = Annotated[
    str,
    typer.Option(
        envvar="HEADRACE_AFTER_PARKED",
        help="An aggregate's commands after a parked one: 'go on', or 'hold' until it is dealt with.",
    ),
]
MetricsAddress = Annotated[
    str | None,
    typer.Option(
        envvar="HEADRACE_METRICS",
        metavar="HOST:PORT",
        help="Answer GET /metrics there with figures for Prometheus; port 0 takes a free one.",
    ),
]
HttpTokens = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        envvar="HEADRACE_GATEWAY_TOKENS_FILE",
        metavar="FILE",
        help="Each client of HTTP needs a token, of which this file has a hash: see `headrace token make`.",
    ),
]

WithSpans = Annotated[
    bool,
    typer.Option(
        envvar="HEADRACE_TRACING",
        help="Make spans with the OpenTelemetry provider of this process.",
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


# Options that are settings: the parameter's name, the part and the setting.
_SETTINGS: Final = (
    ("broker", "run", "broker"),
    ("event_store", "run", "event_store"),
    ("read_models", "run", "read_models"),
    ("name", "run", "name"),
    ("after_parked", "run", "after_parked"),
    ("commands", "run", "command_topics"),
    ("metrics", "run", "metrics"),
    ("http_hosts", "http", "hosts"),
    ("http_origins", "http", "origins"),
    ("insecure", "http", "insecure"),
    ("tokens", "http", "tokens"),
)
_LISTS: Final = frozenset({"command_topics", "hosts", "origins"})


def run(
    context: typer.Context,
    app_path: Annotated[
        str, typer.Argument(metavar="APP", help="Application as MODULE:ATTRIBUTE.")
    ],
    *,
    broker: QueueAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    http: HttpAddress = "",
    http_hosts: HttpHosts = "",
    http_origins: HttpOrigins = "",
    insecure: Insecure = False,
    tokens: HttpTokens = None,
    metrics: MetricsAddress = None,
    after_parked: AfterParked = "go on",
    commands: Annotated[
        str,
        typer.Option(
            envvar="HEADRACE_COMMANDS",
            metavar="TOPIC,…",
            help="Handle only the commands of these topics; 'main' is the one that commands share.",
        ),
    ] = "",
    tracing: WithSpans = False,
    name: ProcessName = "",
    config: ConfigFile = None,
    set_: SetPairs = None,
    log_format: LogFormat = "console",
    log_level: LogLevel = "info",
) -> None:
    """Run an application against a broker. Prints `headrace run ready`; stop it with SIGTERM.

    With --http the line ends with where it listens: `headrace run ready on http://HOST:PORT`.
    """
    from headrace.cli.logs import configure_logs
    from headrace_mq._runtime import event_loop

    configure_logs(log_format, log_level)
    options = {
        "broker": broker,
        "event_store": event_store,
        "read_models": read_models,
        "name": name,
        "after_parked": after_parked,
        "commands": commands,
        "http_hosts": http_hosts,
        "http_origins": http_origins,
        "insecure": insecure,
        "metrics": metrics,
        "tokens": tokens,
    }
    file = settings_file(config)
    settings, gateway = _settings(context, options, http, file=file, pairs=set_)
    _require_near(settings, insecure=insecure or (gateway is not None and gateway.insecure))
    told = _told(context, settings, gateway, file=file, pairs=set_)
    event_loop.run(_serve(_application(app_path, tracing=tracing), settings, gateway, told))


def _settings(
    context: typer.Context,
    options: Mapping[str, Any],
    http: str,
    *,
    file: SettingsFile | None,
    pairs: list[str] | None,
) -> "tuple[Settings, GatewaySettings | None]":
    """Returns the settings, and those of HTTP, None without it.

    Args:
        context: says which options are no defaults; these are strongest.
        options: those that are settings, with their values or defaults.
        http: where to listen; empty: as the other settings say.
        file: in TOML, weaker than the environment.
        pairs: of `--set`, stronger than the environment.
    """
    from pydantic import ValidationError

    from headrace.settings import Settings

    kinds: dict[str, Any] = {"run": Settings}
    if http or "http" in parts_given(file=file, environment=os.environ, pairs=pairs):
        from headrace.gateway.settings import GatewaySettings

        kinds["http"] = GatewaySettings
    read = gather(kinds, file=file, environment=os.environ, pairs=pairs)
    if isinstance(address := read["run"].get("broker"), str):
        read["run"]["broker"] = queue_address(context, address)
    for option, part, setting in _SETTINGS:
        value = options[option]
        if part in read and (setting not in read[part] or _is_given(context, option)):
            read[part][setting] = _names(value) if setting in _LISTS else value
    if http:
        read["http"] |= listening(http)
    try:
        made = [kind(**read[part]) for part, kind in kinds.items()]
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(map(str, wrong["loc"]))
        raise typer.BadParameter(f"{name}: {wrong['msg']}".removeprefix(": ")) from error
    return made[0], made[1] if len(made) > 1 else None


def _told(
    context: typer.Context,
    settings: "Settings",
    gateway: "GatewaySettings | None",
    *,
    file: SettingsFile | None,
    pairs: list[str] | None,
) -> bytes:
    """Returns the settings and what gave each as JSON, for those who ask; arguments as `_settings`."""
    import msgspec

    parts: dict[str, Any] = {"run": settings, **({} if gateway is None else {"http": gateway})}
    kinds = {part: type(each) for part, each in parts.items()}
    layers = layers_of(kinds, file=file, environment=os.environ, pairs=pairs)
    named = {setting: variable for variable, setting in variables().items()}
    options = {}
    for option, part, setting in (*_SETTINGS, ("http", "http", "host"), ("http", "http", "port")):
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            options[f"{part}.{setting}"] = f"--{option.replace('_', '-')}"
        elif source is not None and source.name == "ENVIRONMENT":
            options[f"{part}.{setting}"] = named.get(f"{part}.{setting}", LISTENS)
    return msgspec.json.encode(told_settings(parts, layers, options))


def _require_near(settings: "Settings", *, insecure: bool) -> None:
    """Refuses metrics for other machines, and an address that is none."""
    from headrace_mq._runtime.checks import require_near

    if settings.metrics is not None:
        try:
            require_near(settings.metrics, insecure=insecure)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--metrics") from error


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name in {"COMMANDLINE", "ENVIRONMENT"}


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


async def _serve(
    app: "App", settings: "Settings", gateway: "GatewaySettings | None", told: bytes
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # Windows: Ctrl-C ends it
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    if gateway is not None:
        from headrace.gateway.server import require_safe

        # Before the application joins its groups, or waits for a broker.
        require_safe(gateway)
    async with (
        app.run(settings) as running,
        _http(app, running, settings, gateway) as serving,
        _metrics(running, settings, gateway, serving, told),
    ):
        if running.read_only is not None and serving is None:
            raise HeadraceError(
                f"{running.read_only}: nothing can run; correct that, or answer queries with --http"
            )
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.collect()
        gc.freeze()
        where = f" on {serving.scheme}://{serving.address}" if serving else ""
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


def variables() -> dict[str, str]:
    """Returns the variables of the environment that are settings, each with the setting's `part.name`."""
    parameters = signature(run).parameters
    return {
        parameters[option].annotation.__metadata__[0].envvar: f"{part}.{setting}"
        for option, part, setting in _SETTINGS
    }


def listening(http: str) -> dict[str, Any]:
    """Returns the settings `host` and `port` of HOST:PORT.

    Raises:
        typer.BadParameter: it is none.
    """
    host, colon, port = http.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise typer.BadParameter(
            f"write HOST:PORT, as in 127.0.0.1:8080, not {http!r}", param_hint="--http"
        )
    return {"host": host.removeprefix("[").removesuffix("]"), "port": int(port)}


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


@asynccontextmanager
async def _metrics(
    running: "RunningApp",
    settings: "Settings",
    gateway: "GatewaySettings | None",
    serving: "Serving | None",
    told: bytes,
) -> AsyncIterator[None]:
    """Serves metrics, and what the process was given, until the block ends, if they are asked for."""
    if settings.metrics is None:
        yield
        return
    from headrace.metrics.collector import AppMetrics
    from headrace_mq._net.expiry import expiry_of
    from headrace_mq.metrics.listener import MetricsListener

    file = None if gateway is None else gateway.tls_certificate

    def expires_s() -> float | None:
        try:
            return None if file is None else expiry_of(file.read_bytes())
        except OSError:
            return None

    collected = AppMetrics(running, serving.gateway if serving else None, expires_s)
    listener = MetricsListener(settings.metrics, collected.text, told)
    await listener.start()
    try:
        yield
    finally:
        await listener.aclose()


def _checks(settings: "Settings", check_ms: int) -> Mapping[str, "Check"]:
    """What only the command line knows how to look at."""
    from headrace.stores.database.schema import check as check_schema
    from headrace.stores.open import is_kept_in_memory

    async def broker() -> None:
        from headrace.transports.open import require_broker

        await require_broker(settings.broker or "", within_ms=check_ms)

    async def event_store() -> None:
        await check_schema(settings.event_store)

    checks = {"broker": broker}
    if not is_kept_in_memory(settings.event_store):
        checks["event_store"] = event_store
    return checks
