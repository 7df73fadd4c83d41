"""
Rebuilding a projection: events from the topic through Spark into a shadow, then the switch.

    begin a shadow ─▶ capture where the topic ends ─▶ read and fold in Spark ─▶ rows, versions and
    offsets in one transaction ─▶ catch up ─▶ compare with the live rows ─▶ switch

Several projections are read for in one pass, and go on one by one from there.

Until the switch it does not touch the live table: a rebuild that is killed at any moment
leaves an unused table, which the next one drops. Used by the command line; uses the other modules
of this package. It must not know a subscription.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.sql import SparkSession

from headrace._runtime.clock import Clock, SystemClock
from headrace.app import load_app
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
from headrace.spark.session import SessionOnDemand, session_on_demand
from headrace.spark.several.one_pass import OnePass
from headrace.spark.tasks import TASK_BYTES_MIN

__all__ = ["rebuild", "rebuild_together"]

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
    shared: OnePass | None = None,
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
        shared: where rebuilds meet that read the topic together; None: this one reads by itself.

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
        work = replace(begun, task_bytes_min=task_bytes_min, shared=shared)
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


async def rebuild_together(
    app: str,
    projection_names: Sequence[str],
    *,
    spark: SparkSession | SessionOnDemand | None = None,
    report: Callable[[str, str, int], None] | None = None,
    **choices: Any,
) -> dict[str, RebuildReport | Exception]:
    """Rebuilds several, each as `rebuild` does; those with a row per aggregate read the topic once.

    The others are rebuilt after them, one by one, as are all of them if exported files, the event store, the
    live rows or the rows of some keys are folded.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        projection_names: which of its projections.
        spark: as for `rebuild`.
        report: called with the projection's name at the start of each of its phases.
        choices: as for `rebuild`.

    Returns:
        By name, in the order asked for: what was done, or what `rebuild` would have raised.

    Raises:
        ProjectionNotFound: the application has no projection of a name; nothing was begun.
    """
    names = list(dict.fromkeys(projection_names))
    together = _reading_alike(app, names, choices)
    shared = OnePass(together)
    async with session_on_demand(spark) as sessions:

        async def one(name: str, meeting: OnePass | None) -> RebuildReport | Exception:
            told = None if report is None else partial(report, name)
            try:
                return await rebuild(
                    app, name, spark=sessions, report=told, shared=meeting, **choices
                )
            except Exception as error:  # noqa: BLE001 - the other projections go on
                return error
            finally:
                if meeting is not None:
                    meeting.leave(name)

        try:
            made = await asyncio.gather(*(one(name, shared) for name in together))
        finally:
            await asyncio.shield(asyncio.to_thread(shared.close))
        outcomes = dict(zip(together, made, strict=True))
        for name in names:
            if name not in outcomes:
                outcomes[name] = await one(name, None)
    return {name: outcomes[name] for name in names}


def _reading_alike(app: str, names: Sequence[str], choices: Mapping[str, Any]) -> Collection[str]:
    """Returns which projections are folded from one reading; none: each reads by itself."""
    application = load_app(app)
    projections = [application.projection(name) for name in names]
    # Events for rows of other keys would have to be kept on disk on their way: that takes what it saves.
    alike = [each.name for each in projections if each.keyed_by_aggregate]
    others = choices.get("source", "topic") != "topic" or choices.get("start", "zero") != "zero"
    others = others or choices.get("wanted") is not None or choices.get("export") is not None
    return alike if len(alike) > 1 and not others else []
