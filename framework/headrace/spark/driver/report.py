"""
The report of a rebuild with Spark, of what its job counted and what became of the result.

Used by `rebuild`. Pure.
"""

from collections.abc import Sequence

from headrace.rebuild.report import RebuildReport
from headrace.rebuild.switch import Means, RebuildOutcome, Shadow
from headrace.spark.archive import archived_in
from headrace.spark.driver.exported import Exported
from headrace.spark.job import Folded
from headrace.transports.base import QueueId
from headrace_mq.message import QueueRef
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["queue_name", "report_of"]


def report_of(
    shadow: Shadow,
    folded: Folded,
    outcome: RebuildOutcome,
    means: Means,
    *,
    slices: Sequence[QueueSlice],
    exported: Exported | None,
    seconds: dict[str, float],
) -> RebuildReport:
    """Returns what a rebuild did, without its table, rows, source and start.

    Args:
        shadow: what was built.
        folded: what the job counted.
        outcome: what became of it.
        means: of catching up, which knows what was passed over.
        slices: what was read, of the store as one.
        exported: files that were read; None: all came from the broker.
        seconds: by phase.
    """
    return RebuildReport(
        projection=shadow.projection.name,
        generation=shadow.generation,
        table="",
        start="zero",
        start_offsets={queue_name(piece.queue): piece.start for piece in slices},
        end_offsets={queue_name(piece.queue): piece.end for piece in slices},
        caught_up_offsets={queue_name(queue): at for queue, at in outcome.offsets.items()},
        exported="" if exported is None else exported.read_as,
        archived=0
        if exported is None
        else sum(archived_in(exported.messages, piece) for piece in slices),
        queues=folded.queues,
        tasks=folded.tasks,
        reused=folded.counts["reused"],
        events=folded.counts["events"],
        caught_up=outcome.caught_up,
        duplicates=folded.counts["duplicates"],
        gaps=folded.counts["gaps"],
        filled=folded.counts["filled"],
        foreign=folded.foreign + means.foreign,
        left_out=means.left_out.sentences,
        compared=outcome.compared,
        mismatches=outcome.mismatches,
        differences=outcome.differences,
        columns=dict(outcome.columns),
        samples=dict(outcome.samples),
        behind=outcome.behind,
        ahead=outcome.ahead,
        switched=outcome.switched,
        reason=outcome.reason,
        seconds=seconds,
        events_per_second=round(folded.counts["events"] / max(seconds["fold"], 0.001), 1),
    )


def queue_name(queue: QueueRef | QueueId) -> str:
    """Returns a queue as reports name it: `topic/queue`."""
    topic, queue_id = queue
    return f"{topic}/{queue_id}"
