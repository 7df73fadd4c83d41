"""
Measures how much time has passed, even when the wall clock is set forward or back. PURE.

    wall clock  ─┬─▶ dates: people, programs and empty batteries set it
    monotonic   ─┘   cannot be set; begins again with each boot of the machine
         │
         ├─▶ aged     what the monotonic clock counted, over restarts of the broker within one boot:
         │            the ages of messages. It may be less than what passed, never more.
         └─▶ steady   the wall clock without its jumps: delays

The age of a segment counts from when the broker first saw it end at its present end: its last message was
written by then. So no age depends on a date. Time that the broker did not see, such as while a machine was
off, makes nothing older: the clock may be wrong about it.

Used by the broker's `steady_clock`, which passes in readings and keeps the state, by `retention` and by
the schedule. This module must never know files or the clock.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

__all__ = ["STEP_MS", "AgeMark", "KeptTimeline", "Marked", "Reading", "Timeline"]

# Less than this is slewing: the steady clock goes along, and no sum of it gets larger unseen.
STEP_MS = 1_000


class Reading(NamedTuple):
    """What the machine's clocks say at a moment.

    Attributes:
        wall_ms: milliseconds since 1970 UTC.
        monotonic_ms: milliseconds since some moment of this boot.
        boot: names this boot of the machine; empty where it has no name.
    """

    wall_ms: int
    monotonic_ms: int
    boot: str


class Marked(Protocol):
    """What is asked of a segment."""

    @property
    def base(self) -> int:
        """Log position of its first byte."""
        ...

    @property
    def end(self) -> int:
        """Log position behind its last byte."""
        ...

    @property
    def sealed(self) -> bool:
        """Whether nothing is written to it any more."""
        ...


class AgeMark(NamedTuple):
    """When a segment was first seen to end where it ends, in aged ms."""

    base: int
    end: int
    at_ms: int


class KeptTimeline(msgspec.Struct, frozen=True):
    """The content of `timeline.json`: what one reading led to.

    Attributes:
        aged_ms: time that was seen to pass.
        ahead_ms: by how much the wall clock was set, in all.
        wall_ms, monotonic_ms, boot: the reading.
        marks: of each log, its sealed segments.
        jump_ms: the last jump worth an alarm, and 0 before there was one.
        jump_at_ms: when that was, in aged ms.
    """

    aged_ms: int
    ahead_ms: int
    wall_ms: int
    monotonic_ms: int
    boot: str
    marks: dict[str, list[AgeMark]] = {}
    jump_ms: int = 0
    jump_at_ms: int = 0


class Timeline:
    """The time of one broker's directory.

    Args:
        first: the first reading of this start.
        kept: what an earlier start kept, if it did.
        jump_ms_min: a jump of so much is noted for the alarm.

    Attributes:
        aged_ms: time that was seen to pass.
        ahead_ms: by how much the wall clock was set, in all: the steady clock is so much behind it.
        jump_ms: by how much it jumped last, where that is worth an alarm; 0 before.
        jump_at_ms: when that was, in aged ms.
    """

    def __init__(
        self, first: Reading, kept: KeptTimeline | None = None, *, jump_ms_min: int = 60_000
    ) -> None:
        if kept is None:
            kept = KeptTimeline(0, 0, *first)
        self._jump_ms_min = jump_ms_min
        self._boot = first.boot
        self.aged_ms, self.ahead_ms = kept.aged_ms, kept.ahead_ms
        self.jump_ms, self.jump_at_ms = kept.jump_ms, kept.jump_at_ms
        self._marks = {
            log: {mark.base: (mark, True) for mark in marks} for log, marks in kept.marks.items()
        }
        if first.boot and first.boot == kept.boot and first.monotonic_ms >= kept.monotonic_ms:
            # The same clock that cannot be set has gone on: it knows how long the broker did not look.
            self._monotonic_ms = kept.monotonic_ms
            self._offset_ms = kept.wall_ms - kept.monotonic_ms
        else:
            # How long the machine was off only the wall clock may know: it is believed for delays as
            # far as it went forth, and for ages not at all.
            self._monotonic_ms = first.monotonic_ms
            self._offset_ms = max(first.wall_ms, kept.wall_ms) - first.monotonic_ms
        self.observe(first)

    def observe(self, reading: Reading) -> int:
        """Moves on to a new reading; returns by how much the clock was set since, 0 if it was not."""
        self.aged_ms += max(0, reading.monotonic_ms - self._monotonic_ms)
        self._monotonic_ms = max(self._monotonic_ms, reading.monotonic_ms)
        drift_ms = reading.wall_ms - (self._monotonic_ms + self._offset_ms)
        if abs(drift_ms) < STEP_MS:
            return 0
        self._offset_ms += drift_ms
        self.ahead_ms += drift_ms
        if abs(drift_ms) >= self._jump_ms_min:
            self.jump_ms, self.jump_at_ms = drift_ms, self.aged_ms
        return drift_ms

    def note(self, log: str, segments: Iterable[Marked]) -> None:
        """Looks at all segments of a log; what is new of them has age 0 now."""
        known, noted = self._marks.get(log, {}), {}
        for segment in segments:
            mark, was_sealed = known.get(segment.base, (None, False))
            # A sealed one that is written to again lost its end in a crash.
            if mark is None or mark.end != segment.end or (was_sealed and not segment.sealed):
                mark = AgeMark(segment.base, segment.end, self.aged_ms)
            noted[segment.base] = mark, segment.sealed
        self._marks[log] = noted

    def age_ms(self, log: str, segment: Marked) -> int:
        """Returns for how long a segment has been as it is, at least; 0 for one never noted."""
        mark, _ = self._marks.get(log, {}).get(segment.base, (None, False))
        return self.aged_ms - mark.at_ms if mark is not None and mark.end == segment.end else 0

    def kept(self) -> KeptTimeline:
        """Everything, as the constructor takes it.

        The segment that is written to is left out: what a crash takes of it may be written again.
        """
        return KeptTimeline(
            self.aged_ms,
            self.ahead_ms,
            self._monotonic_ms + self._offset_ms,
            self._monotonic_ms,
            self._boot,
            {
                log: [mark for mark, sealed in marks.values() if sealed]
                for log, marks in self._marks.items()
            },
            self.jump_ms,
            self.jump_at_ms,
        )
