"""
Plans a compaction: whether it is due, which segments it reads, and which it joins. PURE.

    │ clean │ clean │ clean │ dirty │ dirty │ young │ active │
    └── become one ─┘       └ noted: keys ──┘ └── never touched
    └─────────── rewritten, in order ───────┘

In *clean* segments each key has one record. *Dirty* segments are sealed, old enough and not compacted yet.
Used by `compaction`, which passes in segments and the time. This module must not know files.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace_mq.store.log.commit_log import SegmentInfo

__all__ = ["WHOLE", "Bounds", "CompactionRules", "Plan", "data_bytes", "expired", "planned"]


class CompactionRules(NamedTuple):
    """When a log is compacted, and which records are removed.

    Attributes:
        dirty_percent: a compaction is due at this share of dirty bytes in all sealed bytes.
        lag_ms: records younger than this are not compacted.
        tombstone_ms: how long a tombstone stays after its segment became clean.
        segment_bytes: clean neighbours are joined up to this size.
    """

    dirty_percent: int
    lag_ms: int
    tombstone_ms: int
    segment_bytes: int


class Bounds(NamedTuple):
    """How far a log may be compacted, if its owner must agree with others that have the same log.

    Attributes:
        committed: log position; a segment that ends above it is left alone.
        tombstones: log position; tombstones below it are removed, and others stay. Segments below it are compacted soon.
            None: their age alone decides.
    """

    committed: int = 1 << 63
    tombstones: int | None = None


# A log that no other broker has.
WHOLE = Bounds()


class Plan(NamedTuple):
    """The work of one compaction.

    Attributes:
        groups: neighbours to join into one segment, in log order; most groups are one segment.
        dirty: the last groups are dirty, this many; each is one segment.
        dirty_bytes, clean_bytes: the bytes of dirty and of clean segments.
        is_due: whether enough bytes are dirty.
    """

    groups: list[list[SegmentInfo]]
    dirty: int
    dirty_bytes: int
    clean_bytes: int
    is_due: bool


def data_bytes(segment: SegmentInfo) -> int:
    """Returns how many bytes of batches and marks a segment holds."""
    end = segment.end if segment.compacted is None else segment.compacted.end
    return end - segment.base


def planned(
    segments: Sequence[SegmentInfo],
    rules: CompactionRules,
    now_ms: int,
    steady_ms: int,
    bounds: Bounds = WHOLE,
) -> Plan:
    """Plans the next compaction of a log.

    Args:
        segments: of the whole log, in order.
        rules: of the log.
        now_ms: the time of the clock that sets append times.
        steady_ms: the time of the clock that says when a segment became clean.
        bounds: of the log.
    """
    clean: list[SegmentInfo] = []
    dirty: list[SegmentInfo] = []
    for segment in segments:
        # In order and without a hole: a segment is clean only together with all segments before it.
        if not segment.sealed or not segment.indexed or segment.end > bounds.committed:
            break
        if not dirty and segment.compacted is not None and segment.compacted.cleaned_ms:
            clean.append(segment)
        elif segment.last_ms is None or segment.last_ms + rules.lag_ms <= now_ms:
            dirty.append(segment)
        else:
            break
    dirty_bytes, clean_bytes = sum(map(data_bytes, dirty)), sum(map(data_bytes, clean))
    is_dirty = dirty_bytes * 100 >= rules.dirty_percent * (dirty_bytes + clean_bytes)
    overdue = any(
        segment.compacted.tombstones and expired(segment, rules, steady_ms, bounds)
        for segment in clean
        if segment.compacted is not None
    )
    others_are_clean = bool(dirty) and dirty[0].base < (bounds.tombstones or 0)
    return Plan(
        groups=[*_groups(clean, rules, steady_ms, bounds), *([segment] for segment in dirty)],
        dirty=len(dirty),
        dirty_bytes=dirty_bytes,
        clean_bytes=clean_bytes,
        is_due=bool(dirty and is_dirty) or overdue or others_are_clean,
    )


def expired(
    segment: SegmentInfo, rules: CompactionRules, steady_ms: int, bounds: Bounds = WHOLE
) -> bool:
    """Whether the tombstones of a segment are to be removed."""
    compacted = segment.compacted
    if compacted is None or not compacted.cleaned_ms:
        return False
    if bounds.tombstones is not None:
        return segment.end <= bounds.tombstones
    return compacted.cleaned_ms + rules.tombstone_ms <= steady_ms


def _groups(
    clean: Sequence[SegmentInfo], rules: CompactionRules, steady_ms: int, bounds: Bounds
) -> list[list[SegmentInfo]]:
    """Joins small neighbours. Joins only segments whose tombstones go: a join would keep them longer."""
    groups: list[list[SegmentInfo]] = []
    size = 0
    for segment in clean:
        joins = (
            bool(groups)
            and expired(segment, rules, steady_ms, bounds)
            and expired(groups[-1][0], rules, steady_ms, bounds)
            and size + data_bytes(segment) <= rules.segment_bytes
        )
        if joins:
            groups[-1].append(segment)
            size += data_bytes(segment)
        else:
            groups.append([segment])
            size = data_bytes(segment)
    return groups
