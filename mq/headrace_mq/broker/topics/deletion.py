"""
Deletes what the retention rules let go; the broker's timer calls it.

Called by a timer; uses the pure policy `store.retention.retention`, the ages of `store.retention.timeline`
and the groups' committed offsets, and tells the store which segments to drop. It never knows files or the
clock.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from headrace_mq._runtime.log import get_logger
from headrace_mq.message import QueueRef
from headrace_mq.settings import StoreSettings
from headrace_mq.store.retention.retention import (
    RetentionRules,
    SegmentFacts,
    delete_before,
    released_before,
)
from headrace_mq.store.retention.timeline import Timeline

__all__ = ["FOREVER", "Deletion", "SegmentStore", "delete_released", "holding", "rules_of"]

_log = get_logger(__name__)

# The log whose messages go by age and size. Those of the other one go only if they were released.
_LOG = "transient"
FOREVER = "forever"
# Topics that an answer names: enough to see what holds a segment.
_NAMED_MAX = 8


class SegmentStore(Protocol):
    """What deletion needs of the store."""

    def segments(self, log: str) -> Sequence[SegmentFacts]:
        """The segments of a log, in order."""
        ...

    def delete_segments(self, log: str, before: int) -> int:
        """Drops whole sealed segments that end at or below a position; returns how many."""
        ...


def rules_of(settings: StoreSettings, *, early: bool) -> RetentionRules:
    """Returns the rules of the transient log; `early` while the disk fills."""
    return RetentionRules(
        age_ms=settings.transient_age_ms,
        bytes_max=settings.transient_bytes_max or None,
        early=early,
        unconsumed_ms_max=settings.unconsumed_ms_max,
        segments_max=settings.segments_deleted_max,
    )


class Deletion:
    """One pass after the other over the transient log.

    Args:
        store: holds the segments.
        settings: the rules.
        timeline: knows how old segments are.
        consumed: the offset that every group has reached in a queue.
        early: whether the disk is so full that consumed messages go before their age.
        spare: given the segments, lowers the position before which they may go.
    """

    def __init__(
        self,
        store: SegmentStore,
        settings: StoreSettings,
        *,
        timeline: Timeline,
        consumed: Callable[[QueueRef], int],
        early: Callable[[], bool],
        spare: Callable[[Sequence[SegmentFacts], int], int],
    ) -> None:
        self._store = store
        self._settings = settings
        self._timeline = timeline
        self._consumed = consumed
        self._early = early
        self._spare = spare

    def run(self) -> int:
        """Deletes what may go now, a bounded number of segments; returns how many went."""
        segments = self._store.segments(_LOG)
        self._timeline.note(_LOG, segments)
        rules = rules_of(self._settings, early=self._early())
        age_ms = partial(self._timeline.age_ms, _LOG)
        before = delete_before(segments, rules, age_ms, self._consumed)
        if not segments or before <= segments[0].base:
            return 0
        before = self._spare(segments, before)
        if before <= segments[0].base:
            return 0
        deleted = self._store.delete_segments(_LOG, before)
        _log.info("segments deleted", log=_LOG, segments=deleted, before=before, early=rules.early)
        return deleted


def delete_released(
    store: SegmentStore, released: Callable[[QueueRef], int], segments_max: int
) -> int:
    """Deletes the oldest segments of the log kept forever in which all is released; returns how many.

    Args:
        store: holds the segments.
        released: returns the offset below which a queue's messages may go.
        segments_max: the most segments to delete at a time.
    """
    segments = store.segments(FOREVER)
    before = released_before(segments, released, segments_max=segments_max)
    if not segments or before <= segments[0].base:
        return 0
    deleted = store.delete_segments(FOREVER, before)
    _log.info("released segments deleted", log=FOREVER, segments=deleted, before=before)
    return deleted


def holding(segments: Sequence[SegmentFacts], released: Callable[[QueueRef], int]) -> list[str]:
    """Returns some of the topics whose messages keep the oldest segment, if that is not the active one."""
    if not segments or not segments[0].sealed:
        return []
    ends = segments[0].next_offsets.items()
    return sorted({queue.topic for queue, end in ends if end > released(queue)})[:_NAMED_MAX]
