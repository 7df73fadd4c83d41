"""
Measures how much time has passed, even when the wall clock is set forward or back. PURE.

    wall clock  ─┬─▶ dates: people, programs and empty batteries set it
    monotonic   ─┘   cannot be set; restarts with each boot of the machine
         │
         ├─▶ aged     the sum of the monotonic clock, over restarts of the broker within one boot:
         │            the ages of messages. It may be less than the time that passed, never more.
         └─▶ steady   the wall clock without its jumps: delays

The age of a segment counts from the moment when the broker first saw its present end: its last message was
written by then. So no age depends on a date. Time that the broker did not see, such as while the machine was off,
does not count, because the clock may be wrong about it.

Used by the broker's `steady_clock`, which passes in readings and keeps the state, by `retention` and by
the schedule. This module must not know files or the clock.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

__all__ = ["STEP_MS", "AgeMark", "KeptTimeline", "Marked", "Reading", "Timeline"]

# A smaller difference is slewing: the steady clock follows it, so small steps cannot add up.
STEP_MS = 1_000


class Reading(NamedTuple):
    """The machine's clocks at one moment.

    Attributes:
        wall_ms: milliseconds since 1970 UTC.
        monotonic_ms: milliseconds since a fixed moment of this boot.
        boot: the name of this boot of the machine, or empty.
    """

    wall_ms: int
    monotonic_ms: int
    boot: str


class Marked(Protocol):
    """The facts needed about a segment."""

    @property
    def base(self) -> int:
        """Log position of its first byte."""
        ...

    @property
    def end(self) -> int:
        """Log position after its last byte."""
        ...

    @property
    def sealed(self) -> bool:
        """Whether the store writes no more to it."""
        ...


class AgeMark(NamedTuple):
    """When the broker first saw a segment's present end, in aged ms."""

    base: int
    end: int
    at_ms: int


class KeptTimeline(msgspec.Struct, frozen=True):
    """The content of `timeline.json`: one reading, and the times computed from it.

    Attributes:
        aged_ms: the aged time.
        ahead_ms: the sum of all jumps of the wall clock.
        wall_ms, monotonic_ms, boot: the reading.
        marks: the sealed segments of each log.
        jump_ms: the last jump that raised an alarm, or 0.
        jump_at_ms: when it was, in aged ms.
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
    """The times of one broker's directory.

    Args:
        first: the first reading of this start.
        kept: the content of `timeline.json`, if there is one.
        jump_ms_min: a jump of at least this raises the alarm.

    Attributes:
        aged_ms: the aged time.
        ahead_ms: the sum of all jumps of the wall clock; the steady clock is this much behind it.
        jump_ms: the last jump that raised an alarm, or 0.
        jump_at_ms: when it was, in aged ms.
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
            # The same boot: the monotonic clock has counted the time since the last reading.
            self._monotonic_ms = kept.monotonic_ms
            self._offset_ms = kept.wall_ms - kept.monotonic_ms
        else:
            # Another boot: only the wall clock may know how long the machine was off. Delays trust it if it went
            # forward; ages never do.
            self._monotonic_ms = first.monotonic_ms
            self._offset_ms = max(first.wall_ms, kept.wall_ms) - first.monotonic_ms
        self.observe(first)

    def observe(self, reading: Reading) -> int:
        """Takes a new reading; returns by how much the wall clock has jumped since the last one, or 0."""
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
        """Notes all segments of a log; a new segment, or one with a new end, has age 0 now."""
        known, noted = self._marks.get(log, {}), {}
        for segment in segments:
            mark, was_sealed = known.get(segment.base, (None, False))
            # A sealed segment that is active again has lost its end in a crash.
            if mark is None or mark.end != segment.end or (was_sealed and not segment.sealed):
                mark = AgeMark(segment.base, segment.end, self.aged_ms)
            noted[segment.base] = mark, segment.sealed
        self._marks[log] = noted

    def age_ms(self, log: str, segment: Marked) -> int:
        """Returns how long a segment has had its present end, at least; 0 if it was never noted."""
        mark, _ = self._marks.get(log, {}).get(segment.base, (None, False))
        return self.aged_ms - mark.at_ms if mark is not None and mark.end == segment.end else 0

    def kept(self) -> KeptTimeline:
        """Returns the state, as the constructor takes it.

        Leaves out the active segment: after a crash, new messages may end at the same position.
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
