"""
Decides which segments of a log may be deleted. PURE.

    position ─▶  │ sealed │ sealed │ sealed │ active │
                 └─ may be deleted ────┘ ▲
                                         the answer: whole segments before it

`delete_before` decides by age, by size, or early when the disk fills. `beyond_window` decides for a
log with an archive. The broker's timer passes in the ages, the rules and the consumed offsets; the
store deletes. This module must never know files, the clock or groups.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from headrace_mq.message import QueueRef

__all__ = ["RetentionRules", "SegmentFacts", "beyond_window", "delete_before"]


class SegmentFacts(Protocol):
    """What the rules need to know about a segment."""

    @property
    def base(self) -> int:
        """Log position of its first byte."""
        ...

    @property
    def end(self) -> int:
        """Log position behind its last byte."""
        ...

    @property
    def bytes(self) -> int:
        """What its file takes on the disk."""
        ...

    @property
    def sealed(self) -> bool:
        """Whether nothing is written to it any more."""
        ...

    @property
    def next_offsets(self) -> Mapping[QueueRef, int]:
        """For each queue with messages in it, the offset after the last one there."""
        ...


class RetentionRules(msgspec.Struct, frozen=True, kw_only=True):
    """When segments of one log may be deleted.

    Attributes:
        age_ms: segments whose last message is older may go; None: never by age.
        bytes_max: the oldest may go while the log is larger; None: never by size.
        early: consumed segments may go before their age.
        unconsumed_ms_max: up to this age a message that some group has not consumed stays; 0 lets
            it go like any other.
        segments_max: at most so many at a time.
    """

    age_ms: int | None
    bytes_max: int | None
    early: bool
    unconsumed_ms_max: int
    segments_max: int


S = TypeVar("S", bound=SegmentFacts)


def delete_before(
    segments: Sequence[S],
    rules: RetentionRules,
    age_ms: Callable[[S], int],
    consumed: Callable[[QueueRef], int],
) -> int:
    """Returns the log position before which whole segments may be deleted.

    It is the first segment's base where nothing may go, 0 for an empty log.

    Args:
        segments: all of a log, in order.
        rules: of the log.
        age_ms: for how long a segment has been as it is.
        consumed: the offset that every group has reached in a queue; 0 where no group has.
    """
    if not segments:
        return 0
    held_bytes = sum(segment.bytes for segment in segments)
    position = segments[0].base
    for segment in segments[: rules.segments_max]:
        old_ms = age_ms(segment)
        due = (
            (rules.age_ms is not None and old_ms >= rules.age_ms)
            or (rules.bytes_max is not None and held_bytes > rules.bytes_max)
        )  # fmt: skip
        if not segment.sealed or not (due or rules.early):
            break
        # Early is a courtesy to the disk: it never costs anyone a message.
        protected = old_ms < rules.unconsumed_ms_max or not due
        if protected and any(end > consumed(q) for q, end in segment.next_offsets.items()):
            break
        position = segment.end
        held_bytes -= segment.bytes
    return position


def beyond_window(
    segments: Sequence[SegmentFacts], archived: int, *, window_bytes: int, segments_max: int
) -> int:
    """Returns the log position before which whole segments may go because the archive has them.

    It is the first segment's base where nothing may go, 0 for an empty log.

    Args:
        segments: all of a log, in order.
        archived: the position below which everything is in the archive.
        window_bytes: what the log keeps all the same, so that readers near its end need no database.
        segments_max: at most so many at a time.
    """
    if not segments:
        return 0
    held_bytes = sum(segment.bytes for segment in segments)
    position = segments[0].base
    for segment in segments[:segments_max]:
        if not segment.sealed or segment.end > archived or held_bytes <= window_bytes:
            break
        position = segment.end
        held_bytes -= segment.bytes
    return position
