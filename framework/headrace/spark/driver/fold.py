"""
The Spark job of a rebuild, divided among tasks, run, and watched; and its result in the shadow.

Used by rebuilds of all rows and of some; uses the job. It must not know how a shadow goes live.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from headrace._runtime.clock import SystemClock
from headrace.errors import ProjectionError
from headrace.rebuild.stored_events import STORE
from headrace.spark.driver.load import Loading
from headrace.spark.driver.report import queue_name
from headrace.spark.driver.resumption import fold_left, written_plan
from headrace.spark.driver.work import RebuildWork
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.failures import SPARK_ERRORS, reason_of
from headrace.spark.job import Folded, run_fold, run_fold_of
from headrace.spark.native import NativeFold
from headrace.spark.progress.bytes_read import reading_progress, told_meanwhile
from headrace.spark.progress.queues import Finished
from headrace.spark.result.copy import Copying
from headrace.spark.result.disk import Stored
from headrace.spark.result.live_rows import Beginning
from headrace.spark.result.parts import Spool
from headrace.spark.session import run_cancellable
from headrace.spark.tasks import divide_plan
from headrace.transports.base import QueueId
from headrace_mq.errors import MessageQueueError

__all__ = ["fold", "fold_into"]


async def fold_into(
    work: RebuildWork,
    plan: FoldPlan,
    loading: Loading,
    *,
    base: pa.Table | Beginning | Stored | None,
    end: Mapping[QueueId, int],
    native: NativeFold | None,
) -> tuple[Folded, int]:
    """Folds into the shadow; returns what was counted, and how many rows there are.

    Args:
        work: opened.
        plan: what to read.
        loading: into the shadow.
        base: what the shadow has a copy of; None: nothing.
        end: the offsets with which the shadow stands then.
        native: the projection as SQL; None: it is folded in Python.

    Raises:
        ProjectionError: the events cannot be read or folded, or versions are missing.
    """
    owner, written = loading.shadow.owner, None
    if base is None and native is None and work.shared is None:
        plan, written = await written_plan(plan, loading, partial(_divided, work, tag=owner))
    async with loading.prepared(written) as into:
        noted = await loading.noted() if written else {}
        job = partial(fold, work, tag=owner, base=base, native=native)
        folded = await fold_left(job, plan, noted, into)
        _leave_out(work, plan, folded)
        rows = await loading.count(into, folded)
        work.phases.begin("load", rows)
        await loading.load(into, end)
    return folded, rows


async def fold(
    work: RebuildWork,
    plan: FoldPlan,
    *,
    tag: str,
    base: pa.Table | Beginning | Stored | None,
    native: NativeFold | None,
    into: Copying | Spool | None = None,
) -> Folded:
    """Runs the job of a plan, and tells meanwhile how far it is.

    Args:
        work: opened.
        plan: what to read.
        tag: of its Spark jobs.
        base: as for `run_fold`, as are the others.
        native: the projection as SQL.
        into: where tasks copy, or rows are kept.

    Raises:
        ProjectionError: the events cannot be read or folded, or versions are missing.
    """
    session = await work.session()
    counts: Counter[str] = Counter()
    if native is not None and native.files and work.exported:
        plan, counts = work.exported.tail(plan), work.exported.counts
    divide = partial(_divided, work, plan, tag=tag, onto=base is not None or bool(counts))
    divided = await (divide() if work.shared is None else work.shared.once("divided", divide))
    divided = replace(divided, projection=plan.projection)
    readers = max(plan.shares, 1)
    ahead = {queue_name(piece.queue): piece.records // readers for piece in plan.slices}
    pieces = Counter(queue_name(piece.queue) for piece in divided.slices)
    finished = Finished(session, ahead, pieces)
    with reading_progress(session, SystemClock()) as progress:
        progress.expect(sum(piece.records for piece in divided.slices))
        told = replace(divided, progress=progress.place)
        if work.shared is not None and told.slices:
            run = partial(run_fold_of, work.shared.records(session, told), told, into=into)
        else:
            run = partial(
                run_fold,
                session,
                told,
                keyed_by_aggregate=work.projection.keyed_by_aggregate,
                base=base,
                native=native,
                finished=finished,
                into=into,
            )
        async with told_meanwhile(work.phases.passed, finished.news, progress.news):
            job = f"headrace rebuild {work.projection.name}: read and fold"
            folded = await run_cancellable(session, tag, run, description=job)
    folded.counts.update(counts)
    return folded


async def _divided(work: RebuildWork, plan: FoldPlan, *, tag: str, onto: bool = False) -> FoldPlan:
    """Divides what a plan reads of the topic among tasks, unless it is."""
    if plan.shares or plan.groups:
        return plan
    session, name = await work.session(), work.projection.name
    divide = partial(divide_plan, session, plan, onto=onto, task_bytes_min=work.task_bytes_min)
    try:
        job = f"headrace rebuild {name}: look for keys in several queues"
        return await run_cancellable(session, tag, divide, description=job)
    except (MessageQueueError, *SPARK_ERRORS) as error:
        why = str(error) if isinstance(error, MessageQueueError) else reason_of(error)
        raise ProjectionError(f"projection {name}: {why}") from error


def _leave_out(work: RebuildWork, plan: FoldPlan, folded: Folded) -> None:
    """Remembers, for what follows, which aggregates executors have left out.

    Raises:
        ProjectionError: of all executors together they are too many.
    """
    topic = STORE if plan.shares else (work.topic_name, 0)
    for aggregate_id, offset, sentence in folded.left_out:
        if not work.events.means.left_out.note(aggregate_id, topic, offset, sentence):
            raise ProjectionError(f"projection {work.projection.name}: {sentence}")
