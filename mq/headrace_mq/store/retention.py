"""
What of a log may be deleted: by age, by size, early when the disk fills, or nothing ever. PURE.

    position ─▶  │ sealed │ sealed │ sealed │ active │
                 └─ expired, consumed ─┘ ▲
                                         the answer: whole segments before it may go

Sits between: the broker's timer, which brings the times and the rules, and the store, which
deletes. Must never know files, the clock or groups: it is told how far a queue was consumed.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple, Protocol

import msgspec

from headrace_mq.message import QueueRef

__all__ = ["JUMPS_MAX", "JUMP_MS_MIN", "Rules", "SegmentFacts", "Timeline", "delete_before"]

# Less than this is slewing, a slow pass or a machine under load, not a clock that was set.
JUMP_MS_MIN = 60_000
# Remembered at a time; behind that, whatever is older counts as written just then.
JUMPS_MAX = 64


class SegmentFacts(Protocol):
    """What the policy asks of a segment; times are those of appending, in ms since 1970."""

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
    def last_ms(self) -> int | None:
        """When its last batch was appended, as the clock said then; None without a batch."""
        ...

    @property
    def sealed(self) -> bool:
        """Whether nothing is written to it any more."""
        ...

    @property
    def next_offsets(self) -> Mapping[QueueRef, int]:
        """For each queue with messages in it, the offset after the last one there."""
        ...


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """When segments of one log may go.

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


class _Stretch(NamedTuple):
    """A time in which nobody set the clock, in ms of the clock, which is `ahead_ms` of the other."""

    first_ms: float
    last_ms: float
    ahead_ms: int


class Timeline:
    """How old a message is, whatever the clock has been doing.

    The clock is compared with one that cannot be set. Where they part by JUMP_MS_MIN the clock was
    set, and a new stretch of time begins. What was written in a stretch ages with the other clock,
    so neither a clock set a year ahead nor one put right a year late makes it a year older; an age
    is less than two such minima too high, however often the clock is set.

    The time between the newest message and the first look at it is nobody's age: a clock that was
    set while the broker was down looks like a long rest, and counting no rest only delays deletion.
    What may be from several stretches is taken to be from the latest: younger, never older.

    Args:
        newest_ms: when the newest message of the log was written, or None.
        now_ms: the clock.
        monotonic_ms: the clock that cannot be set.
    """

    def __init__(self, newest_ms: int | None, *, now_ms: int, monotonic_ms: int) -> None:
        self._monotonic_ms = monotonic_ms
        before_ms = now_ms if newest_ms is None else newest_ms
        self._past = [_Stretch(-inf, before_ms, before_ms - monotonic_ms)]
        self._present = _Stretch(now_ms, inf, now_ms - monotonic_ms)

    def observe(self, now_ms: int, monotonic_ms: int) -> int:
        """Moves on to a new time; returns by how much the clock was set since, 0 if it was not."""
        self._monotonic_ms = monotonic_ms
        # Small steps stay in the sum until they make a jump, so that many of them cannot hide one.
        expected_ms = monotonic_ms + self._present.ahead_ms
        if abs(now_ms - expected_ms) < JUMP_MS_MIN:
            return 0
        self._past.append(self._present._replace(last_ms=expected_ms))
        del self._past[:-JUMPS_MAX]
        self._present = _Stretch(now_ms, inf, now_ms - monotonic_ms)
        return now_ms - expected_ms

    def age_ms(self, written_ms: int) -> int:
        """Returns how long ago the clock's `written_ms` was; never below 0."""
        now_ms = self._monotonic_ms + self._present.ahead_ms
        stretches = [*self._past, self._present._replace(last_ms=now_ms)]
        for first_ms, last_ms, ahead_ms in reversed(stretches):
            if first_ms - JUMP_MS_MIN < written_ms < last_ms + JUMP_MS_MIN:
                return max(0, self._monotonic_ms + ahead_ms - written_ms)
        # A clock nobody remembers: it was written before all that is remembered.
        first_ms, last_ms, ahead_ms = stretches[0]
        return int(self._monotonic_ms + ahead_ms - (last_ms if first_ms == -inf else first_ms))


def delete_before(
    segments: Sequence[SegmentFacts],
    rules: Rules,
    timeline: Timeline,
    consumed: Callable[[QueueRef], int],
) -> int:
    """Returns the log position before which whole segments may be deleted.

    It is the first segment's base where nothing may go, 0 for an empty log.

    Args:
        segments: all of a log, in order.
        rules: of the log.
        timeline: knows the time.
        consumed: the offset that every group has reached in a queue; 0 where no group has.
    """
    if not segments:
        return 0
    # Nothing was written later than what stands behind it: a time ahead of that was wrong. A
    # segment without messages is as old as the next message, or of no age at all.
    last_ms = (inf if s.last_ms is None else s.last_ms for s in reversed(segments))
    written_ms = list(accumulate(last_ms, min))[::-1]
    held_bytes = sum(segment.bytes for segment in segments)
    position = segments[0].base
    for segment, latest_ms in zip(segments[: rules.segments_max], written_ms, strict=False):
        age_ms = 0 if latest_ms == inf else timeline.age_ms(int(latest_ms))
        due = (
            (rules.age_ms is not None and age_ms >= rules.age_ms)
            or (rules.bytes_max is not None and held_bytes > rules.bytes_max)
        )  # fmt: skip
        if not segment.sealed or not (due or rules.early):
            break
        # Early is a courtesy to the disk: it never costs anyone a message.
        protected = age_ms < rules.unconsumed_ms_max or not due
        if protected and any(end > consumed(q) for q, end in segment.next_offsets.items()):
            break
        position = segment.end
        held_bytes -= segment.bytes
    return position
