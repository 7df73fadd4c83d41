"""`headrace projection follow`: keeps a projection live with a structured-streaming job."""

import asyncio
import signal
from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import (
    AppPath,
    EventStoreUrl,
    LogFormat,
    QueueAddress,
    ReadModelsUrl,
    SparkMaster,
    SparkSettings,
    Unsealed,
    vouching_store,
)

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for Spark
    from pyspark.sql import SparkSession

    from headrace.spark.stream.continuous import Followed
    from headrace.spark.stream.sink import AppliedBatch

__all__ = ["follow"]


def follow(
    name: Annotated[str, typer.Argument(help="The projection's name.")],
    *,
    app_path: AppPath,
    broker: QueueAddress = "127.0.0.1:9876",
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    unsealed: Unsealed = False,
    read_models: ReadModelsUrl = "sqlite:///var/read.db",
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End where the topic ends now; for cron.")
    ] = False,
    batch_max: Annotated[
        int, typer.Option(min=1, help="Messages of a micro-batch, at most.")
    ] = 100_000,
    master: SparkMaster = "",
    conf: SparkSettings = None,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON per batch.")] = False,
    log_format: LogFormat = "console",
) -> None:
    """Keep a live projection up to date with Spark, in place of the live runner.

    Prints `headrace follow ready`, then a line per micro-batch; stop it with SIGTERM.
    """
    from headrace.app import load_app
    from headrace.cli.logs import configure_logs
    from headrace.cli.options import spark_settings
    from headrace.cli.projections.spark_failures import run_plainly
    from headrace.spark.session import SessionOnDemand, open_session
    from headrace.spark.stream.continuous import follow as follow_with_spark

    configure_logs(log_format)
    load_app(app_path).projection(name)
    settings, store = spark_settings(conf), vouching_store(event_store, unsealed=unsealed)

    def report(taken: "AppliedBatch") -> None:
        typer.echo(dumps(_told(taken)) if json else _line(name, taken))

    def start() -> "SparkSession":
        session = open_session(master=master, settings=settings)
        typer.echo("headrace follow ready", err=True)
        return session

    async def run(spark: SessionOnDemand) -> "Followed":
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await follow_with_spark(
            app_path,
            name,
            broker=broker,
            read_models_url=read_models,
            event_store_url=store,
            spark=spark,
            available_now=available_now,
            batch_max=batch_max,
            stop=stop,
            report=report,
        )

    spark = SessionOnDemand(start=start)
    done = run_plainly(partial(run, spark), spark)
    if not json:
        _show(name, done)


def _show(name: str, done: "Followed") -> None:
    typer.echo(
        f"projection {name}: {done.messages:,} messages in {done.batches:,} batches,"
        f" {done.rows:,} rows"
    )
    if done.parked:
        typer.echo(
            f"projection {name}: {done.parked:,} aggregates are parked; name them with"
            f" `headrace parked list --processor projection:{name}`"
        )


def _told(taken: "AppliedBatch") -> dict[str, object]:
    offsets = {f"{topic}/{number}": at for (topic, number), at in taken.offsets.items()}
    return {
        "messages": taken.messages,
        "rows": taken.rows,
        "folded": "here" if taken.here else "executors",
        "parked": taken.parked,
        "offsets": offsets,
    }


def _line(name: str, taken: "AppliedBatch") -> str:
    where = "" if taken.here else ", folded on executors"
    offsets = " ".join(f"{number}:{at:,}" for (_, number), at in sorted(taken.offsets.items()))
    return (
        f"projection {name}: {taken.messages:,} messages, {taken.rows:,} rows{where}; at {offsets}"
    )
