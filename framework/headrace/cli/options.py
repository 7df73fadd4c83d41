"""Options that several subcommands share, each with its environment variable and its help."""

from typing import Annotated

import typer

from headrace.cli.tls_options import secured

__all__ = [
    "WHOLE_MAX",
    "AppPath",
    "BrokerAddress",
    "EventStoreUrl",
    "LogFormat",
    "LogLevel",
    "NoBroker",
    "QueueAddress",
    "ReadModelsUrl",
    "SourceAddress",
    "SparkMaster",
    "SparkRemote",
    "SparkSettings",
    "TargetAddress",
    "Unsealed",
    "queue_address",
    "spark_settings",
    "vouching_store",
]

# What a column of a database holds.
WHOLE_MAX = (1 << 63) - 1


def _address(context: typer.Context, text: str) -> str:
    # The help text must not wait for the queue.
    from headrace.transports.kafka.address import is_kafka

    if is_kafka(text):
        raise typer.BadParameter(
            "this command is for the built-in queue, HOST:PORT; use Kafka's own tools for a cluster"
        )
    try:
        return secured(context, text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def queue_address(context: typer.Context, text: str) -> str:
    """Returns the address of a queue with the files and the user that options or the environment name.

    Raises:
        typer.BadParameter: it is none.
    """
    from headrace.transports.kafka.address import KafkaAddress, is_kafka

    if not is_kafka(text):
        return _address(context, text)
    try:
        KafkaAddress.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return text


def _log_format(text: str) -> str:
    if text not in {"console", "json"}:
        raise typer.BadParameter(f"use 'console' or 'json', not {text!r}")
    return text


def _log_level(text: str) -> str:
    if text not in {"debug", "info", "warning", "error"}:
        raise typer.BadParameter(f"use 'debug', 'info', 'warning' or 'error', not {text!r}")
    return text


AppPath = Annotated[
    str, typer.Option("--app", envvar="HEADRACE_APP", help="Application as MODULE:ATTRIBUTE.")
]
BrokerAddress = Annotated[
    str,
    typer.Option(
        "--broker",
        envvar="HEADRACE_BROKER",
        callback=_address,
        help="HOST:PORT of the broker, or tls://HOST:PORT; several with commas between, for a group; or"
        " nameserver://HOST:PORT/CLUSTER.",
    ),
]
QueueAddress = Annotated[
    str,
    typer.Option(
        "--broker",
        envvar="HEADRACE_BROKER",
        callback=queue_address,
        help="HOST:PORT of the broker, several with commas between; with TLS tls://HOST:PORT; or"
        " nameserver://HOST:PORT/CLUSTER; or kafka://HOST:PORT,… for a cluster.",
    ),
]
SourceAddress = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        callback=queue_address,
        help="HOST:PORT, tls://HOST:PORT or kafka://HOST:PORT,…: where the topics are.",
    ),
]
TargetAddress = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", callback=queue_address, help="The same: where they are copied to."
    ),
]
NoBroker = Annotated[
    bool,
    typer.Option(
        "--no-broker",
        help="The event store alone: the projection then reads the event topic from its beginning.",
    ),
]
EventStoreUrl = Annotated[
    str,
    typer.Option(
        "--event-store",
        envvar="HEADRACE_EVENT_STORE",
        help="sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
    ),
]
Unsealed = Annotated[
    bool,
    typer.Option(
        "--unsealed",
        help="Trust every message of the topic, without checking it against an event store.",
    ),
]
ReadModelsUrl = Annotated[
    str,
    typer.Option(
        "--read-models",
        envvar="HEADRACE_READ_MODELS",
        help="Where projections keep their tables; same forms.",
    ),
]
LogFormat = Annotated[
    str,
    typer.Option(
        "--log-format",
        envvar="HEADRACE_LOG_FORMAT",
        callback=_log_format,
        help="'console' or 'json'.",
    ),
]
LogLevel = Annotated[
    str,
    typer.Option(
        "--log-level",
        envvar="HEADRACE_LOG_LEVEL",
        callback=_log_level,
        help="The least that is logged: 'debug', 'info', 'warning' or 'error'.",
    ),
]
SparkMaster = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="HEADRACE_SPARK_MASTER",
        help="A Spark cluster, such as spark://HOST:PORT.",
    ),
]
SparkRemote = Annotated[
    str,
    typer.Option(
        "--remote", envvar="HEADRACE_SPARK_REMOTE", help="A Spark Connect server, sc://HOST:PORT."
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's own; repeatable."),
]


def spark_settings(pairs: list[str] | None) -> dict[str, str]:
    """Returns what `--conf` was given; raises BadParameter where there is no KEY=VALUE."""
    settings = dict(pair.partition("=")[::2] for pair in pairs or ())
    for key, value in settings.items():
        if not key.startswith("spark.") or not value:
            raise typer.BadParameter(
                f"use spark.KEY=VALUE, not {key!r} with {value!r}", param_hint="--conf"
            )
    files = settings.get("spark.submit.pyFiles", "").split(",")
    for file in files:
        if file.endswith(".whl"):
            raise typer.BadParameter(
                f"workers import from .zip, .egg and .py alone; copy {file} to a name with .zip",
                param_hint="--conf",
            )
    return settings


def vouching_store(event_store: str, *, unsealed: bool) -> str | None:
    """Returns the URL of the event store that vouches for a topic's events; None: none is to.

    Raises:
        typer.BadParameter: there is none, and it was not said that none is needed.
    """
    if unsealed:
        return None
    if event_store == "memory://":
        raise typer.BadParameter(
            "what another process has in memory vouches for no event; name the event store's"
            " database, or believe all that stands in the topic with --unsealed",
            param_hint="--event-store",
        )
    return event_store
