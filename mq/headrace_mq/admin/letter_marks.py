"""
Marks of dead letters: which were sent again, which were purged.

A letter is a record of a log and cannot be changed. So marks are kept in a topic of their own, forever:
one record for up to some thousand runs of letters. A mark is never removed, and the same mark twice
means the same as once.

Used by `dead_letters`, which reads and appends the records. Pure.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from headrace_mq.client.retry_headers import dead_letter_topic
from headrace_mq.message import QueueRef, check_topic

__all__ = [
    "RUNS_MAX",
    "Kind",
    "LetterMark",
    "LetterMarks",
    "Run",
    "Runs",
    "decode_mark",
    "encode_marks",
    "marks_queue",
]

# Runs of one record: some 200 KB, far below the limit of a frame.
RUNS_MAX = 10_000

# The first id, and the one behind the last.
Run = tuple[int, int]
Kind = Literal["resent", "purged"]

_PREFIX = "%MARK%"


class LetterMark(msgspec.Struct, frozen=True):
    """One record: what happened to letters, by runs of their ids."""

    kind: Kind
    runs: list[Run]


def marks_queue(group: str) -> QueueRef:
    """Where the marks of a group's letters stand. Raises ValueError for a name it cannot have."""
    dead_letter_topic(group)
    return QueueRef(check_topic(f"{_PREFIX}{group}"), 0)


def encode_marks(kind: Kind, runs: Sequence[Run]) -> list[bytes]:
    """The bodies of the records that say this."""
    return [
        msgspec.json.encode(LetterMark(kind, list(runs[at : at + RUNS_MAX])))
        for at in range(0, len(runs), RUNS_MAX)
    ]


def decode_mark(body: bytes) -> LetterMark | None:
    """What a record says; None where that is nothing of ours."""
    try:
        return msgspec.json.decode(body, type=LetterMark)
    except msgspec.DecodeError:
        return None


class Runs:
    """A set of ids, as runs that neither touch nor overlap."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in runs:
            self.add(first, end)

    def __iter__(self) -> Iterator[Run]:
        return iter(zip(self._firsts, self._ends, strict=True))

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._firsts)

    def __contains__(self, one: int) -> bool:
        return self.behind(one) != one

    def add(self, first: int, end: int) -> None:
        """Takes in the ids from the first one to the one before `end`."""
        if first >= end:
            return
        low, high = bisect_left(self._ends, first), bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high], self._ends[low:high] = [first], [end]

    def behind(self, one: int) -> int:
        """The id itself where it is not among these, else the first one behind its run."""
        at = bisect_right(self._firsts, one) - 1
        return self._ends[at] if at >= 0 and one < self._ends[at] else one

    def within(self, first: int, end: int) -> "Runs":
        """Those from an id to the one before another."""
        return Runs((max(one, first), min(other, end)) for one, other in self)

    def next_from(self, one: int) -> int | None:
        """The first of these at an id or behind it."""
        at = bisect_right(self._ends, one)
        return max(one, self._firsts[at]) if at < len(self._firsts) else None

    def without(self, others: "Runs") -> "Runs":
        """Those that are not among others."""
        left = Runs()
        for first, end in self:
            at = others.behind(first)
            while at < end:
                stop = others.next_from(at)
                left.add(at, end if stop is None else min(stop, end))
                at = end if stop is None else others.behind(stop)
        return left


class LetterMarks:
    """What all marks of one group say.

    Args:
        resent_before: letters below this id were sent again by a version that kept no marks.
    """

    def __init__(self, resent_before: int = 0) -> None:
        self.resent = Runs([(0, resent_before)])
        self.purged = Runs()
        self._times: list[tuple[int, Run]] = [(0, (0, resent_before))]

    def note(self, mark: LetterMark, at_ms: int) -> None:
        """Takes over a record that was stored at that time."""
        kept = self.resent if mark.kind == "resent" else self.purged
        for run in mark.runs:
            kept.add(*run)
            if mark.kind == "resent":
                self._times.append((at_ms, run))

    def next_listed(self, one: int, *, unsent: bool) -> int:
        """The first id from here on that is on the list, and with `unsent` was not sent again."""
        while True:
            found = self.purged.behind(one)
            if unsent:
                found = self.resent.behind(found)
            if found == one:
                return one
            one = found

    def resent_at_ms(self, ids: Iterable[int]) -> dict[int, int]:
        """When letters were last sent again, of those that were; 0 where that is not known."""
        wanted = {one for one in ids if one in self.resent}
        found: dict[int, int] = {}
        if wanted:
            low, high = min(wanted), max(wanted) + 1
            for at_ms, (first, end) in self._times:
                for one in range(max(first, low), min(end, high)):
                    found[one] = at_ms
        return {one: found[one] for one in wanted}
