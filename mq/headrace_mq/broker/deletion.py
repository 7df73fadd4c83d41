"""
Deletes what the retention rules let go; the broker's timer calls it.

Sits between: the timer, the pure policy `store.retention`, the groups' committed offsets, and the
store, which drops whole segments. Must never know files.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from headrace_mq._runtime.clock import Clock
from headrace_mq.message import QueueRef
from headrace_mq.settings import StoreSettings
from headrace_mq.store.retention import Rules, SegmentFacts, Timeline, delete_before

__all__ = ["Deletion", "SegmentStore", "rules_of"]

_log = structlog.get_logger(__name__)

# The one log whose messages may go; the other one's promise is that they never do.
_LOG = "transient"


class SegmentStore(Protocol):
    """What deletion needs of the store."""

    def segments(self, log: str) -> Sequence[SegmentFacts]:
        """The segments of a log, in order."""
        ...

    def delete_segments(self, log: str, before: int) -> int:
        """Drops whole sealed segments that end at or below a position; returns how many."""
        ...


def rules_of(settings: StoreSettings, *, early: bool) -> Rules:
    """Returns the rules of the transient log; `early` while the disk fills."""
    return Rules(
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
        clock: the time.
        consumed: the offset that every group has reached in a queue.
        early: whether the disk is so full that consumed messages go before their age.
        spare: given the segments, lowers the position before which they may go.
    """

    def __init__(
        self,
        store: SegmentStore,
        settings: StoreSettings,
        *,
        clock: Clock,
        consumed: Callable[[QueueRef], int],
        early: Callable[[], bool],
        spare: Callable[[Sequence[SegmentFacts], int], int],
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._consumed = consumed
        self._early = early
        self._spare = spare
        self._timeline: Timeline | None = None

    def start(self) -> None:
        """Takes note of the time, once, before the first message of this run is taken."""
        times = [s.last_ms for s in self._store.segments(_LOG) if s.last_ms is not None]
        newest_ms = max(times, default=None)
        self._timeline = Timeline(
            newest_ms, now_ms=self._clock.now_ms(), monotonic_ms=self._clock.monotonic_ms()
        )

    def run(self) -> int:
        """Deletes what may go now, a bounded number of segments; returns how many went."""
        if self._timeline is None:
            self.start()
        assert self._timeline is not None
        jumped_ms = self._timeline.observe(self._clock.now_ms(), self._clock.monotonic_ms())
        if jumped_ms:
            _log.warning("the clock was set; no message becomes older by that", by_ms=jumped_ms)
        segments = self._store.segments(_LOG)
        rules = rules_of(self._settings, early=self._early())
        before = delete_before(segments, rules, self._timeline, self._consumed)
        if not segments or before <= segments[0].base:
            return 0
        before = self._spare(segments, before)
        if before <= segments[0].base:
            return 0
        deleted = self._store.delete_segments(_LOG, before)
        _log.info("segments deleted", log=_LOG, segments=deleted, before=before, early=rules.early)
        return deleted
