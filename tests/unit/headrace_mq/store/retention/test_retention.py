"""Which segments may go, given their ages."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.store.retention.retention import (
    RetentionRules,
    beyond_window,
    delete_before,
    released_before,
)

HOUR = 3_600_000
DAY, YEAR = 24 * HOUR, 365 * 24 * HOUR
AGE, LONGEST = 72 * HOUR, 168 * HOUR
START = 1_700_000_000_000
QUEUE = QueueRef("orders", 0)
RULES = RetentionRules(
    age_ms=AGE, bytes_max=None, early=False, unconsumed_ms_max=LONGEST, segments_max=10
)


class Stretch(NamedTuple):
    """A segment as the policy sees it."""

    base: int
    end: int
    bytes: int
    written_ms: int
    sealed: bool
    next_offsets: dict[QueueRef, int]


def log_of(*last_ms: int) -> list[Stretch]:
    """A log of one queue: a sealed segment of 100 bytes and 10 messages per time, one active."""
    sealed = [
        Stretch(100 * n, 100 * n + 100, 100, at, True, {QUEUE: 10 * n + 10})
        for n, at in enumerate(last_ms)
    ]
    end, newest = 100 * len(last_ms), max(last_ms, default=START)
    return [*sealed, Stretch(end, end + 50, 100, newest, False, {QUEUE: 10 * len(last_ms) + 5})]


def at(now_ms: int) -> Callable[[Stretch], int]:
    """How old segments are at a time."""
    return lambda segment: now_ms - segment.written_ms


def everything(_queue: QueueRef) -> int:
    return 1 << 60


def nothing(_queue: QueueRef) -> int:
    return 0


# --- the rules -----------------------------------------------------------------------------------


def test_segments_go_when_their_last_message_reaches_the_age() -> None:
    log = log_of(START, START + HOUR, START + 2 * HOUR)
    for now, before in [(AGE - 1, 0), (AGE, 100), (AGE + HOUR, 200), (AGE + DAY, 300)]:
        assert delete_before(log, RULES, at(START + now), everything) == before


def test_the_segment_that_is_written_to_never_goes() -> None:
    rules = RetentionRules(age_ms=1, bytes_max=1, early=True, unconsumed_ms_max=0, segments_max=10)
    assert delete_before(log_of(), rules, at(START + YEAR), everything) == 0
    assert delete_before(log_of(START), rules, at(START + YEAR), everything) == 100


def test_an_empty_log_has_nothing_to_delete() -> None:
    assert delete_before([], RULES, at(START + YEAR), everything) == 0


def test_a_log_without_limits_is_kept_for_ever() -> None:
    forever = RetentionRules(
        age_ms=None, bytes_max=None, early=False, unconsumed_ms_max=0, segments_max=10
    )
    assert delete_before(log_of(START), forever, at(START + 100 * YEAR), everything) == 0


def test_a_pass_is_bounded() -> None:
    log = log_of(*[START] * 25)
    assert delete_before(log, RULES, at(START + YEAR), everything) == 10 * 100


def test_by_size_the_oldest_go_until_the_log_fits() -> None:
    log = log_of(START, START, START)
    for bytes_max, before in [(400, 0), (399, 100), (250, 200), (1, 300)]:
        rules = RetentionRules(
            age_ms=AGE, bytes_max=bytes_max, early=False, unconsumed_ms_max=0, segments_max=10
        )
        assert delete_before(log, rules, at(START), nothing) == before


@pytest.mark.parametrize(("consumed", "before"), [(0, 0), (9, 0), (10, 100), (29, 200)])
def test_messages_that_a_group_has_not_consumed_outlive_their_age(
    consumed: int, before: int
) -> None:
    log = log_of(START, START, START)
    assert delete_before(log, RULES, at(START + AGE), lambda _: consumed) == before


def test_a_forgotten_group_does_not_keep_the_log_for_ever() -> None:
    log = log_of(START, START + HOUR)
    assert delete_before(log, RULES, at(START + LONGEST - 1), nothing) == 0
    assert delete_before(log, RULES, at(START + LONGEST), nothing) == 100


def test_protection_can_be_switched_off() -> None:
    rules = RetentionRules(
        age_ms=AGE, bytes_max=None, early=False, unconsumed_ms_max=0, segments_max=10
    )
    assert delete_before(log_of(START), rules, at(START + AGE), nothing) == 100


def test_one_queue_that_lags_holds_its_segment_and_all_behind() -> None:
    other = QueueRef("orders", 1)
    log = log_of(START, START, START)
    log[1] = log[1]._replace(next_offsets={QUEUE: 20, other: 4})
    reached = {QUEUE: 1_000, other: 3}
    assert delete_before(log, RULES, at(START + AGE), reached.__getitem__) == 100
    reached[other] = 4
    assert delete_before(log, RULES, at(START + AGE), reached.__getitem__) == 300


@pytest.mark.parametrize("unconsumed_ms_max", [0, LONGEST])
def test_early_only_consumed_messages_go(unconsumed_ms_max: int) -> None:
    rules = RetentionRules(
        age_ms=AGE, bytes_max=None, early=True, unconsumed_ms_max=unconsumed_ms_max,
        segments_max=10,
    )  # fmt: skip
    log = log_of(START, START, START)
    assert delete_before(log, rules, at(START), lambda _: 20) == 200
    assert delete_before(log, rules, at(START), nothing) == 0


def test_a_segment_without_messages_goes_by_its_age_like_any_other() -> None:
    log = log_of(START, START, START + HOUR)
    log[1] = log[1]._replace(next_offsets={})
    assert delete_before(log, RULES, at(START + AGE), everything) == 200
    assert delete_before(log, RULES, at(START + AGE + HOUR), everything) == 300


def test_an_old_segment_behind_a_young_one_stays() -> None:
    log = log_of(START + HOUR, START, START)
    assert delete_before(log, RULES, at(START + AGE), everything) == 0


@given(
    st.lists(st.tuples(st.integers(0, YEAR), st.integers(0, 30)), min_size=1, max_size=30),
    st.integers(0, YEAR), st.integers(0, 400), st.integers(1, 12), st.booleans(),
    st.integers(0, 4_000),
)  # fmt: skip
def test_any_rules_delete_a_bounded_run_of_whole_sealed_segments(
    times: list[tuple[int, int]], now: int, reached: int, most: int, early: bool, size: int
) -> None:
    log = log_of(*[START + at for at, _ in times])
    rules = RetentionRules(
        age_ms=AGE, bytes_max=size or None, early=early, unconsumed_ms_max=YEAR * 2,
        segments_max=most,
    )  # fmt: skip
    before = delete_before(log, rules, at(START + now), lambda _: reached)
    gone = [segment for segment in log if segment.end <= before]
    assert before in {0, *(segment.end for segment in gone)}
    assert len(gone) <= most
    assert all(segment.sealed for segment in gone)
    assert all(segment.next_offsets[QUEUE] <= reached for segment in gone)


# --- with an archive ---------------------------------------------------------------------------


def tens(count: int) -> list[Stretch]:
    """A log of segments of ten bytes; the last one is active."""
    return [Stretch(n * 10, n * 10 + 10, 10, 0, n < count - 1, {}) for n in range(count)]


def kept_from(count: int, archived: int, window_bytes: int = 0, segments_max: int = 99) -> int:
    return beyond_window(
        tens(count), archived, window_bytes=window_bytes, segments_max=segments_max
    )


def test_only_segments_that_are_archived_as_a_whole_go() -> None:
    assert kept_from(5, archived=29) == 20
    assert kept_from(5, archived=30) == 30


def test_an_archived_segment_that_is_written_to_stays() -> None:
    assert kept_from(3, archived=30) == 20
    assert kept_from(1, archived=10) == 0


def test_the_window_stays_although_it_is_archived() -> None:
    assert kept_from(5, archived=50, window_bytes=30) == 20
    assert kept_from(5, archived=50, window_bytes=29) == 30


def test_few_archived_segments_go_at_a_time() -> None:
    assert kept_from(9, archived=90, segments_max=2) == 20


def test_an_empty_log_has_no_archived_segment_to_delete() -> None:
    assert beyond_window([], 5, window_bytes=0, segments_max=1) == 0


@given(
    count=st.integers(1, 9), archived=st.integers(0, 99), window=st.integers(0, 99),
    most=st.integers(1, 9),
)  # fmt: skip
def test_no_segment_goes_that_is_not_archived(
    count: int, archived: int, window: int, most: int
) -> None:
    found = kept_from(count, archived, window, most)
    assert 0 <= found <= max(archived, 0)
    assert found % 10 == 0
    assert found // 10 <= most


# --- released messages ---------------------------------------------------------------------------

OTHER = QueueRef("letters", 0)


@given(
    st.lists(st.dictionaries(st.sampled_from([QUEUE, OTHER]), st.integers(0, 9)), max_size=6),
    st.dictionaries(st.sampled_from([QUEUE, OTHER]), st.integers(0, 9)),
    st.integers(1, 4),
)
def test_segments_go_from_the_oldest_as_long_as_all_in_them_is_released(
    held: list[dict[QueueRef, int]], marks: dict[QueueRef, int], segments_max: int
) -> None:
    last = len(held) - 1
    log = [Stretch(100 * n, 100 * n + 100, 100, 0, n < last, ends) for n, ends in enumerate(held)]
    before = released_before(log, lambda queue: marks.get(queue, 0), segments_max=segments_max)
    gone = [segment for segment in log if segment.end <= before]
    assert len(gone) <= segments_max
    assert all(segment.sealed for segment in gone)
    assert all(
        end <= marks.get(queue, 0)
        for segment in gone
        for queue, end in segment.next_offsets.items()
    )
    # And no one too few.
    if len(gone) < min(segments_max, last):
        following = log[len(gone)].next_offsets.items()
        assert any(end > marks.get(queue, 0) for queue, end in following)


def test_nothing_goes_that_was_not_released() -> None:
    assert released_before([], everything, segments_max=9) == 0
    assert released_before(log_of(START, START), nothing, segments_max=9) == 0
    assert released_before(log_of(START, START), everything, segments_max=9) == 200
