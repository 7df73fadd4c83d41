"""
Plans which ranges of which queues a read covers. Asks the broker for what the options leave open.

Used by the readers, on the driver; runs once for each plan.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from headrace_mq._runtime.log import get_logger
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import Bound, QueueSlice, deleted_before, plan_slices
from headrace_mq.spark.options import Moment, SourceOptions
from headrace_mq.spark.reader import fetch_offsets_at

__all__ = ["SlicePartition", "slices_of", "starts_of"]

_log = get_logger(__name__)


class SlicePartition(InputPartition):
    """One slice; the base class pickles its value."""

    value: QueueSlice


def slices_of(options: SourceOptions, held: Sequence[QueueRange]) -> list[QueueSlice]:
    """Returns the range that a batch reads of each queue, not split yet.

    Raises:
        ValueError: a bound names a queue or an offset that does not exist, or deleted offsets while
        these are an error.
        ConnectionLost: the broker cannot be reached.
    """
    starting = _resolved(options, held, options.starting)
    ending = _resolved(options, held, options.ending)
    if not options.fail_on_data_loss:
        starting = _without_deleted(held, starting, warn=True)
        ending = _without_deleted(held, ending, warn=False)
    return plan_slices(held, starting=starting, ending=ending)


def starts_of(options: SourceOptions, held: Sequence[QueueRange]) -> dict[QueueRef, int]:
    """Returns where a stream without a checkpoint begins, for all queues; raises as `slices_of`."""
    starting = _resolved(options, held, options.starting)
    if not options.fail_on_data_loss:
        starting = _without_deleted(held, starting, warn=True)
    if not isinstance(starting, str):
        plan_slices(held, starting=starting)
    starts: dict[QueueRef, int] = {}
    for one in held:
        queue = QueueRef(one.topic, one.queue_id)
        if isinstance(starting, Mapping):
            starts[queue] = starting.get(queue, one.first)
        else:
            starts[queue] = one.first if starting == "earliest" else one.end
    return starts


def _resolved(options: SourceOptions, held: Sequence[QueueRange], bound: Bound | Moment) -> Bound:
    if isinstance(bound, Moment):
        return fetch_offsets_at(options.broker, held, bound.ms)
    return bound


def _without_deleted(held: Sequence[QueueRange], bound: Bound, *, warn: bool) -> Bound:
    gone = deleted_before(held, bound)
    if not gone or isinstance(bound, str):
        return bound
    for lost in gone:
        if warn:
            _log.warning(
                "records were deleted before they were read",
                topic=lost.queue.topic, queue_id=lost.queue.queue_id,
                first=lost.start, next=lost.end,
            )  # fmt: skip
    return {**bound, **{lost.queue: lost.end for lost in gone}}
