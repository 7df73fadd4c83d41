"""
Which segments may go because the archive holds what stands in them. PURE.

    │ sealed │ sealed │ sealed │ sealed │ active │
    └─ archived, and more than the window ─┘ ▲ the answer

Sits between: the broker's timer, which deletes, and the settings. Must never know files.
"""

from collections.abc import Sequence

from headrace_mq.store.retention.retention import SegmentFacts

__all__ = ["beyond_window"]


def beyond_window(
    segments: Sequence[SegmentFacts], archived: int, *, window_bytes: int, segments_max: int
) -> int:
    """Returns the log position before which whole segments may go; the first one's base if none.

    Args:
        segments: all of a log, in order.
        archived: the position below which everything is in the archive.
        window_bytes: what the log keeps all the same, so that readers near its end need no database.
        segments_max: at most so many at a time.
    """
    if not segments:
        return 0
    held = sum(segment.bytes for segment in segments)
    position = segments[0].base
    for segment in segments[:segments_max]:
        if not segment.sealed or segment.end > archived or held <= window_bytes:
            break
        position = segment.end
        held -= segment.bytes
    return position
