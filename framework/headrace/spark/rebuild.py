"""
Rebuilding a projection: events from the topic through Spark into a shadow, then the switch.

    begin a shadow ─▶ capture where the topic ends ─▶ read and fold in Spark ─▶ rows, versions and
    offsets in one transaction ─▶ catch up ─▶ compare with the live rows ─▶ switch

Until the switch it does not touch the live table: a rebuild that is killed at any moment
leaves an unused table, which the next one drops. Used by the command line; uses the other modules
of this package. It must not know a subscription.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pyspark.sql import SparkSession

from headrace._runtime.clock import Clock, SystemClock
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.rebuild.owner import Kind
from headrace.rebuild.phases import Phases, Progress
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.source import Source, open_events
from headrace.spark.driver.all_rows import build
from headrace.spark.driver.exported import finding
from headrace.spark.driver.load import Loading
from headrace.spark.driver.some_rows import mend
from headrace.spark.driver.work import Wishes, open_work, read_topic
from headrace.spark.result.connection import CONNECTIONS_MAX
from headrace.spark.result.disk import shared_folder
from headrace.spark.session import SessionOnDemand
from headrace.spark.tasks import TASK_BYTES_MIN

__all__ = ["rebuild"]

# How long a live generation that is behind may take to catch up before comparing is given up.
_LIVE_WAIT_MS: Final = 60_000
# Messages applied per transaction while catching up; the live runner's own default.
_CATCH_UP_MESSAGES: Final = 1_000


async def rebuild(  # noqa: PLR0913 - one argument per choice of the command line
    app: str,
    projection_name: str,
    *,
    broker: str | None,
    read_models_url: str,
    event_store_url: str | None = None,
    spark: SparkSession | SessionOnDemand | None = None,
    source: Source = "topic",
    start: Literal["zero", "offsets"] = "zero",
    wanted: Wanted | None = None,
    export: str | Path | None = None,
    verify: bool = True,
    switch: bool = True,
    accept: int = False,
    take_over: bool = False,
    live_wait_ms: int = _LIVE_WAIT_MS,
    connections_max: int = CONNECTIONS_MAX,
    task_bytes_min: int = TASK_BYTES_MIN,
    report: Progress | None = None,
    clock: Clock | None = None,
) -> RebuildReport:
    """Rebuilds a projection next to the live one, compares the two, and switches to the new one.

    Args:
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        projection_name: which of its projections.
        broker: `host:port`, as this process and every executor reach it; None: as for `Choices`.
        read_models_url: where the projection's tables are; with PostgreSQL, every executor must reach
            this address.
        event_store_url: fills gaps of the event topic, and recognises foreign messages; every executor
            must reach it. Without it a gap is an error, and every message of the topic is trusted.
        source: folds the event "topic", or the event "store", which every executor then reads.
        spark: a session of any kind, or one that starts when everything else is known to be there; None
            starts a local session for this rebuild.
        start: "zero" folds the whole topic; "offsets" folds only newer events onto a copy of the
            live rows, as they are.
        wanted: fold only these rows, from zero; the other live rows stay as they are.
        export: a folder of exported events; its events are read from there, the rest from the
            broker. Executors must see it under the same path.
        verify: compare row for row with the live generation, at equal offsets, before switching.
        switch: make the result live if there is no reason against it.
        accept: how many rows may differ; True: any number.
        take_over: begin even if another rebuild seems to be running; its result is lost, except the
            rows that its tasks have copied.
        live_wait_ms: how long to wait for a live generation that is behind, or stands still.
        connections_max: to PostgreSQL, of all executors together; a task holds one from its first
            rows to its last.
        task_bytes_min: bytes of messages per task, at least; there are never more tasks than cores.
        report: called at the start of each phase.
        clock: measures the phases.

    Returns:
        What was done. If it did not switch though asked to, `reason` says why, and the rebuilt table
        is kept until the next rebuild.

    Raises:
        RebuildRunning: another rebuild of the projection is under way.
        ProjectionError: the events cannot be read or folded, or versions are missing; nothing was
            changed.
        ExtraMissing: a local session is wanted and Java is missing.
    """
    phases = Phases(clock or SystemClock(), report)
    wishes = Wishes(verify=verify, switch=switch, accept=accept)
    events = partial(
        open_events,
        source=source,
        urls=(broker, event_store_url),
        switch=switch,
        live_wait_ms=live_wait_ms,
        messages_max=_CATCH_UP_MESSAGES,
        read=read_topic,
    )
    opened = open_work(
        app,
        projection_name,
        read_models_url,
        spark=spark,
        phases=phases,
        events=events,
        find=finding(export, some_rows=wanted is not None, start=start),
    )
    async with opened as begun:
        work = replace(begun, task_bytes_min=task_bytes_min)
        if wanted is not None:
            return await mend(work, wanted, wishes, take_over=take_over)
        phases.begin("begin")
        kind: Kind = "store" if source == "store" else "copy" if start == "offsets" else "topic"
        async with work.begun(kind, take_over=take_over, keep_finished=not switch) as shadow:
            session = await work.session()
            with shared_folder(session) as folder:
                loading = Loading(
                    read_models=work.read_models,
                    shadow=shadow,
                    onto=kind == "copy",
                    connections_max=connections_max,
                    folder=folder,
                )
                return await build(work, shadow, loading, wishes)
