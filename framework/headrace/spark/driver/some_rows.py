"""
Some rows of a projection, folded from their first event on, among live rows that stay as they are.

Used by `rebuild`; uses the job, and what mends live rows. It must not know a shadow.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from headrace.rebuild.local.partial_rebuild import Mending, Refolded, Wanted
from headrace.rebuild.owner import new_owner
from headrace.rebuild.report import RebuildReport
from headrace.spark.archive import check_begins
from headrace.spark.driver.fold import fold
from headrace.spark.driver.work import RebuildWork, Wishes
from headrace.spark.rows import RowCodec
from headrace.transports.base import QueueId
from headrace_mq.message import QueueRef

__all__ = ["mend"]

# Rows that are decoded together.
_ROWS_MAX: Final = 10_000


async def mend(
    work: RebuildWork, wanted: Wanted, wishes: Wishes, *, take_over: bool
) -> RebuildReport:
    """Folds rows again, and puts them in place of the live ones.

    Args:
        work: opened.
        wanted: which rows.
        wishes: what becomes of them.
        take_over: begin even if another rebuild seems to be running.

    Raises:
        ProjectionError: the events cannot be read or folded, or versions are missing.
    """
    assert work.events.topic is not None, "rows of some keys are folded from there"
    mending = Mending(
        projection=work.projection,
        read_models=work.read_models,
        topic=work.events.topic,
        means=work.events.means,
        refold=partial(_refold, work),
        phases=work.phases,
        outside=("session",),
    )
    return await mending.run(wanted, take_over=take_over, **wishes._asdict())


async def _refold(work: RebuildWork, keys: frozenset[str], ends: Mapping[QueueId, int]) -> Refolded:
    """Folds the events of keys from the first one to these offsets, exclusive."""
    codec: RowCodec[Any] = RowCodec(work.projection)
    held = await work.held()
    # The rows of a few keys are folded from the first event on.
    check_begins(work.projection.name, held, {})
    # Of a queue that began behind what was read, nothing was.
    ending = {
        QueueRef(one.topic, one.queue_id): max(one.first, ends.get((one.topic, one.queue_id), 0))
        for one in held
    }
    slices = work.slices(held, ending=ending)
    # Of few rows the events are few: what they take in Python is less than compiling a query.
    plan = replace(work.plan, slices=tuple(slices), only=keys)
    folded = await fold(work, plan, tag=new_owner(), base=None, native=None)
    rows = [codec.row(row) for encoded in folded.row_chunks(_ROWS_MAX) for row in encoded]
    return Refolded(
        rows={work.projection.key_form.text_of(row): row for row in rows},
        versions=folded.versions,
        counts={**folded.counts, "foreign": folded.foreign},
        queues=folded.queues,
        left_out={aggregate_id: sentence for aggregate_id, _, sentence in folded.left_out},
    )
