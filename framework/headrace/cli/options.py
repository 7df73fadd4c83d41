"""Options that several subcommands share, each with its environment variable and its help."""

from typing import Annotated

import typer

__all__ = ["AppPath", "BrokerAddress", "EventStoreUrl", "LogFormat", "ReadModelsUrl"]

AppPath = Annotated[
    str, typer.Option("--app", envvar="HEADRACE_APP", help="Application as MODULE:ATTRIBUTE.")
]
BrokerAddress = Annotated[
    str, typer.Option("--broker", envvar="HEADRACE_BROKER", help="HOST:PORT of the broker.")
]
EventStoreUrl = Annotated[
    str,
    typer.Option(
        "--event-store",
        envvar="HEADRACE_EVENT_STORE",
        help="sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
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
    str, typer.Option("--log-format", envvar="HEADRACE_LOG_FORMAT", help="'console' or 'json'.")
]
