"""
Plans a compaction: whether it is due, which segments it reads, and which become one. PURE.

    │ clean │ clean │ clean │ dirty │ dirty │ young │ active │
    └── become one ─┘       └ noted: keys ──┘ └── never touched
    └─────────── rewritten, in order ───────┘

Of *clean* segments no two records have one key; *dirty* ones are sealed, old enough and not looked at
yet. Used by `compaction`, which passes in segments and the time. This module must never know files.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace_mq.store.log.commit_log import SegmentInfo

__all__ = ["CompactionRules", "Plan", "data_bytes", "expired", "planned"]


class CompactionRules(NamedTuple):
    """When a log is compacted, and what is taken out.

    Attributes:
        dirty_percent: share of dirty bytes in all sealed ones from which on it is due.
        lag_ms: records younger than this are left alone.
        tombstone_ms: how long a record that deletes its key stays after its segment became clean.
        segment_bytes: clean neighbours become one up to this size.
    """

    dirty_percent: int
    lag_ms: int
    tombstone_ms: int
    segment_bytes: int


class Plan(NamedTuple):
    """What one compaction does.

    Attributes:
        groups: neighbours that become one segment, in the order of the log; most are alone.
        dirty: how many of the last groups are dirty, each one segment.
        dirty_bytes, clean_bytes: what they hold.
        is_due: whether it is worth its while.
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
    segments: Sequence[SegmentInfo], rules: CompactionRules, now_ms: int, steady_ms: int
) -> Plan:
    """Plans the next compaction of a log.

    Args:
        segments: all of it, in order.
        rules: when, and what.
        now_ms: the time, as the clock that stamps messages says.
        steady_ms: the time by the clock that stamps segments as clean.
    """
    clean: list[SegmentInfo] = []
    dirty: list[SegmentInfo] = []
    for segment in segments:
        # In order and without a hole: what is clean must be clean of all that stands before it.
        if not segment.sealed or not segment.indexed:
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
        segment.compacted.tombstones and expired(segment, rules, steady_ms)
        for segment in clean
        if segment.compacted is not None
    )
    return Plan(
        groups=[*_groups(clean, rules, steady_ms), *([segment] for segment in dirty)],
        dirty=len(dirty),
        dirty_bytes=dirty_bytes,
        clean_bytes=clean_bytes,
        is_due=bool(dirty and is_dirty) or overdue,
    )


def expired(segment: SegmentInfo, rules: CompactionRules, steady_ms: int) -> bool:
    """Whether records of a segment that delete their key have been seen long enough."""
    compacted = segment.compacted
    return (
        compacted is not None
        and compacted.cleaned_ms > 0
        and compacted.cleaned_ms + rules.tombstone_ms <= steady_ms
    )


def _groups(
    clean: Sequence[SegmentInfo], rules: CompactionRules, steady_ms: int
) -> list[list[SegmentInfo]]:
    """Joins neighbours while they are small; only such whose tombstones go, so that none stays on."""
    groups: list[list[SegmentInfo]] = []
    size = 0
    for segment in clean:
        joins = (
            bool(groups)
            and expired(segment, rules, steady_ms)
            and expired(groups[-1][0], rules, steady_ms)
            and size + data_bytes(segment) <= rules.segment_bytes
        )
        if joins:
            groups[-1].append(segment)
            size += data_bytes(segment)
        else:
            groups.append([segment])
            size = data_bytes(segment)
    return groups
