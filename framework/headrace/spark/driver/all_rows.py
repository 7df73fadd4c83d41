"""
All rows of a projection: folded into a shadow, brought level with the live ones, and reported.

Used by `rebuild`; uses the job, and a projection's generations. It must not know a subscription.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headrace._runtime.log import get_logger
from headrace.errors import ProjectionError
from headrace.rebuild.level import bring_shadow
from headrace.rebuild.local.rebuild import INCREMENT_MAX, fold_increment_here
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.stored_events import STORE
from headrace.rebuild.switch import Shadow
from headrace.spark.driver.fold import fold_into
from headrace.spark.driver.load import Loading
from headrace.spark.driver.report import report_of
from headrace.spark.driver.resumption import resumed_plan
from headrace.spark.driver.work import RebuildWork, Wishes
from headrace.spark.executor.event_reader import UNDECODABLE
from headrace.spark.executor.plan import FoldPlan
from headrace.transports.base import QueueId

__all__ = ["build"]

# From so many messages on a declared projection is SQL: while Spark compiles it, fewer are folded in Python.
_NATIVE_MESSAGES_MIN: Final = 200_000

_log = get_logger(__name__)


async def build(
    work: RebuildWork, shadow: Shadow, loading: Loading, wishes: Wishes
) -> RebuildReport:
    """Fills a shadow, and makes it live if nothing speaks against it.

    Args:
        work: opened.
        shadow: begun, and this process's.
        loading: into it.
        wishes: what becomes of it.

    Raises:
        ProjectionError: the events cannot be read or folded, or versions are missing.
    """
    begin: dict[QueueId, int] = {}
    if loading.onto:
        work.phases.begin("base")
        begin = await work.building.copy_live(shadow)
    plan = replace(work.plan, slices=tuple(await work.capture(begin)))
    if work.shared is None:
        plan = await resumed_plan(plan, loading, work.held)
    async with work.turn():
        return await _filled(work, plan, shadow, loading, wishes, begin)


async def _filled(
    work: RebuildWork,
    plan: FoldPlan,
    shadow: Shadow,
    loading: Loading,
    wishes: Wishes,
    begin: Mapping[QueueId, int],
) -> RebuildReport:
    slices = plan.slices
    end = {(piece.queue.topic, piece.queue.queue_id): piece.end for piece in slices}
    ahead = sum(piece.records for piece in slices)
    if loading.onto and ahead <= INCREMENT_MAX and not work.plan.archive:
        ranges = {queue: (begin.get(queue, 0), last) for queue, last in end.items()}
        report = await fold_increment_here(
            shadow, work.read_models, work.events, work.serializer, ranges,
            phases=work.phases, wishes=wishes._asdict(),
        )  # fmt: skip
        return replace(report, seconds=work.phases.with_total("session"))
    base = await loading.base() if loading.onto else None
    if work.plan.shares:
        # Each share is of all positions.
        end = {STORE: slices[0].end} if slices else {STORE: 0}
        ahead //= work.plan.shares
    work.phases.begin("fold", ahead)
    why = ""
    if work.exported:
        why = work.exported.unsuited(await work.session(), ahead, _NATIVE_MESSAGES_MIN)
    work = await work.as_messages(why) if why else work
    native = work.query if ahead >= _NATIVE_MESSAGES_MIN else None
    try:
        folded, rows = await fold_into(work, plan, loading, base=base, end=end, native=native)
    except ProjectionError as error:
        if native is None or UNDECODABLE not in str(error):
            raise
        # A query ends at a stream that does not decode; what folds in Python goes around it.
        _log.warning("folding again, in Python", reason=str(error))
        work = await work.as_messages(str(error))
        work.phases.begin("fold", ahead)
        folded, rows = await fold_into(work, plan, loading, base=base, end=end, native=None)
    work.phases.begin("switch")
    outcome = await bring_shadow(
        work.read_models, shadow, work.events.means, work.events.origin, **wishes._asdict()
    )
    await work.building.finish(shadow, outcome)
    work.phases.end()
    start = "offsets" if loading.onto else "zero"
    report = report_of(
        shadow,
        folded,
        outcome,
        work.events.means,
        slices=slices[:1] if work.plan.shares else slices,
        exported=work.exported,
        seconds=work.phases.with_total("session"),
    )
    table, source = work.target(shadow).table.name, "store" if work.plan.shares else "topic"
    return replace(report, table=str(table), start=start, source=source, rows=rows)
