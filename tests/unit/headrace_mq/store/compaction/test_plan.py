"""When a log is compacted, and which of its segments."""

from typing import Any

from headrace_mq.store.compaction.plan import Bounds, CompactionRules, data_bytes, planned
from headrace_mq.store.log.commit_log import SegmentInfo
from headrace_mq.store.segment.segment import Compacted

RULES = CompactionRules(dirty_percent=50, lag_ms=100, tombstone_ms=1_000, segment_bytes=1_000)
NOW = 1_000_000


def segment(base: int, size: int = 400, **values: Any) -> SegmentInfo:
    fields: dict[str, Any] = {
        "name": f"{base}.log", "base": base, "end": base + size, "bytes": size, "first_ms": 1,
        "last_ms": NOW - 500, "sealed": True, "next_offsets": {}, "indexed": True, **values,
    }  # fmt: skip
    return SegmentInfo(**fields)


def clean(
    base: int, size: int = 400, *, cleaned_ms: int = NOW - 5, tombstones: int = 0
) -> SegmentInfo:
    compacted = Compacted(base + size // 2, base + size, cleaned_ms, tombstones, 1)
    return segment(base, size, compacted=compacted)


def test_only_what_is_committed_is_compacted() -> None:
    segments = [segment(0), segment(400), segment(800)]
    plan = planned(segments, RULES, NOW, NOW, Bounds(committed=800))
    assert bases(plan.groups) == [[0], [400]]
    assert planned(segments, RULES, NOW, NOW, Bounds(committed=799)).dirty == 1


def test_a_position_decides_in_a_group_which_tombstones_go_and_not_their_age() -> None:
    old = [clean(0, cleaned_ms=1, tombstones=1), clean(400, cleaned_ms=1, tombstones=1)]
    assert not planned(old, RULES, NOW, NOW, Bounds(tombstones=399)).is_due
    plan = planned(old, RULES, NOW, NOW, Bounds(tombstones=400))
    assert plan.is_due
    assert bases(plan.groups) == [[0], [400]]
    # What others have cleaned is due here, however little it is.
    lagging = [clean(0, 4_000, cleaned_ms=1), segment(4_000)]
    assert not planned(lagging, RULES, NOW, NOW, Bounds(tombstones=4_000)).is_due
    assert planned(lagging, RULES, NOW, NOW, Bounds(tombstones=4_001)).is_due


def bases(groups: list[list[SegmentInfo]]) -> list[list[int]]:
    return [[one.base for one in group] for group in groups]


def test_the_newest_segment_and_what_is_young_are_left_alone() -> None:
    active = segment(1_200, sealed=False)
    young = segment(800, last_ms=NOW - 99)
    plan = planned([segment(0), segment(400), young, active], RULES, NOW, NOW)
    assert bases(plan.groups) == [[0], [400]]
    assert planned([active], RULES, NOW, NOW).groups == []
    assert not planned([active], RULES, NOW, NOW).is_due


def test_nothing_behind_a_segment_that_must_wait_is_touched() -> None:
    for waiting in (segment(400, last_ms=NOW), segment(400, indexed=False)):
        assert bases(planned([segment(0), waiting, segment(800)], RULES, NOW, NOW).groups) == [[0]]


def test_a_compaction_is_due_when_enough_is_dirty() -> None:
    plan = planned([clean(0, 800), segment(800, 400)], RULES, NOW, NOW)
    assert (plan.clean_bytes, plan.dirty_bytes, plan.dirty) == (400, 400, 1)
    assert plan.is_due
    assert not planned([clean(0, 802), segment(802, 400)], RULES, NOW, NOW).is_due


def test_a_compaction_is_due_when_tombstones_can_go() -> None:
    old = clean(0, cleaned_ms=NOW - 1_000, tombstones=1)
    assert planned([old], RULES, NOW, NOW).is_due
    assert not planned([clean(0, cleaned_ms=NOW - 999, tombstones=1)], RULES, NOW, NOW).is_due
    assert not planned([clean(0, cleaned_ms=NOW - 1_000)], RULES, NOW, NOW).is_due
    # By the clock that nobody sets, whatever the other one says.
    assert planned([old], RULES, 0, NOW).is_due
    assert not planned([old], RULES, NOW + (1 << 40), NOW - 1).is_due


def test_small_clean_neighbours_become_one_once_their_tombstones_can_go() -> None:
    old = [clean(base, cleaned_ms=NOW - 1_000) for base in range(0, 2_800, 400)]
    fresh = clean(2_800)
    plan = planned([*old, fresh, segment(3_200)], RULES, NOW, NOW)
    assert bases(plan.groups) == [
        [0, 400, 800, 1_200, 1_600], [2_000, 2_400], [2_800], [3_200],
    ]  # fmt: skip


def test_a_clean_segment_behind_a_dirty_one_counts_as_dirty() -> None:
    plan = planned([segment(0), clean(400)], RULES, NOW, NOW)
    assert (bases(plan.groups), plan.dirty) == ([[0], [400]], 2)


def test_the_bytes_of_a_compacted_segment_are_those_that_are_left() -> None:
    assert data_bytes(clean(0, 400)) == 200
    assert data_bytes(segment(0, 400)) == 400
