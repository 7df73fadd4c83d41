"""
Decides which segments of a log may be deleted. PURE.

    position ─▶  │ sealed │ sealed │ sealed │ active │
                 └─ may be deleted ────┘ ▲
                                         the result: whole segments below it

`delete_before` decides by age, by size, or early when the disk fills. `beyond_window` decides for a
log with an archive, `released_before` for one that is kept until its messages are released. The broker's timer passes in the ages, the rules and the consumed offsets; the
store deletes. This module must not know files, the clock or groups.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from headrace_mq.message import QueueRef

__all__ = ["RetentionRules", "SegmentFacts", "beyond_window", "delete_before", "released_before"]


class SegmentFacts(Protocol):
    """The facts that the rules need about a segment."""

    @property
    def base(self) -> int:
        """Log position of its first byte."""
        ...

    @property
    def end(self) -> int:
        """Log position after its last byte."""
        ...

    @property
    def bytes(self) -> int:
        """The size of its file on the disk."""
        ...

    @property
    def sealed(self) -> bool:
        """Whether the store writes no more to it."""
        ...

    @property
    def next_offsets(self) -> Mapping[QueueRef, int]:
        """For each queue with messages in it, the offset after the last one there."""
        ...


class RetentionRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for deleting segments of one log.

    Attributes:
        age_ms: delete segments whose last message is older; None: never by age.
        bytes_max: delete the oldest while the log is larger; None: never by size.
        early: delete consumed segments before their age.
        unconsumed_ms_max: keep a message that a group has not consumed up to this age; 0: treat it like
            any other.
        segments_max: the most segments to delete at a time.
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

    This is the first segment's base if no segment may be deleted, and 0 for an empty log.

    Args:
        segments: all of a log, in order.
        rules: of the log.
        age_ms: returns how long a segment has had its present end.
        consumed: returns the offset that every group has reached in a queue; 0 if no group has read it.
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
        # Early deletion only frees the disk: no group loses a message by it.
        protected = old_ms < rules.unconsumed_ms_max or not due
        if protected and any(end > consumed(q) for q, end in segment.next_offsets.items()):
            break
        position = segment.end
        held_bytes -= segment.bytes
    return position


def beyond_window(
    segments: Sequence[SegmentFacts], archived: int, *, window_bytes: int, segments_max: int
) -> int:
    """Returns the log position before which whole segments may be deleted, because they are archived.

    This is the first segment's base if no segment may be deleted, and 0 for an empty log.

    Args:
        segments: all of a log, in order.
        archived: the position below which everything is in the archive.
        window_bytes: the log keeps this much, so that readers near its end need no database.
        segments_max: the most segments to delete at a time.
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


def released_before(
    segments: Sequence[SegmentFacts], released: Callable[[QueueRef], int], *, segments_max: int
) -> int:
    """Returns the log position before which whole segments may be deleted, because all in them is released.

    This is the first segment's base if no segment may be deleted, and 0 for an empty log.

    Args:
        segments: all of a log, in order.
        released: returns the offset below which a queue's messages may go.
        segments_max: the most segments to delete at a time.
    """
    if not segments:
        return 0
    position = segments[0].base
    for segment in segments[:segments_max]:
        kept = any(end > released(queue) for queue, end in segment.next_offsets.items())
        if not segment.sealed or kept:
            break
        position = segment.end
    return position
