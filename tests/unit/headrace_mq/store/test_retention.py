"""Which segments may go, and how old a message is when the clock cannot be trusted."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.store.retention import (
    JUMP_MS_MIN,
    JUMPS_MAX,
    Rules,
    Timeline,
    delete_before,
)

HOUR = 3_600_000
DAY, YEAR = 24 * HOUR, 365 * 24 * HOUR
AGE, LONGEST = 72 * HOUR, 168 * HOUR
START = 1_700_000_000_000
QUEUE = QueueRef("orders", 0)
RULES = Rules(age_ms=AGE, bytes_max=None, early=False, unconsumed_ms_max=LONGEST, segments_max=10)


class Stretch(NamedTuple):
    """A segment as the policy sees it."""

    base: int
    end: int
    bytes: int
    last_ms: int | None
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


def running(now_ms: int) -> Timeline:
    """A timeline of a broker that has run since long before, with no jump."""
    timeline = Timeline(None, now_ms=START, monotonic_ms=0)
    assert timeline.observe(now_ms, now_ms - START) == 0
    return timeline


def everything(_queue: QueueRef) -> int:
    return 1 << 60


def nothing(_queue: QueueRef) -> int:
    return 0


# --- the rules -----------------------------------------------------------------------------------


def test_segments_go_when_their_last_message_reaches_the_age() -> None:
    log = log_of(START, START + HOUR, START + 2 * HOUR)
    for now, before in [(AGE - 1, 0), (AGE, 100), (AGE + HOUR, 200), (AGE + DAY, 300)]:
        assert delete_before(log, RULES, running(START + now), everything) == before


def test_the_segment_that_is_written_to_never_goes() -> None:
    rules = Rules(age_ms=1, bytes_max=1, early=True, unconsumed_ms_max=0, segments_max=10)
    assert delete_before(log_of(), rules, running(START + YEAR), everything) == 0
    assert delete_before(log_of(START), rules, running(START + YEAR), everything) == 100


def test_an_empty_log_has_nothing_to_delete() -> None:
    assert delete_before([], RULES, running(START + YEAR), everything) == 0


def test_a_log_without_limits_is_kept_for_ever() -> None:
    forever = Rules(age_ms=None, bytes_max=None, early=False, unconsumed_ms_max=0, segments_max=10)
    assert delete_before(log_of(START), forever, running(START + 100 * YEAR), everything) == 0


def test_a_pass_is_bounded() -> None:
    log = log_of(*[START] * 25)
    assert delete_before(log, RULES, running(START + YEAR), everything) == 10 * 100


def test_by_size_the_oldest_go_until_the_log_fits() -> None:
    log = log_of(START, START, START)
    for bytes_max, before in [(400, 0), (399, 100), (250, 200), (1, 300)]:
        rules = Rules(
            age_ms=AGE, bytes_max=bytes_max, early=False, unconsumed_ms_max=0, segments_max=10
        )
        assert delete_before(log, rules, running(START), nothing) == before


@pytest.mark.parametrize(("consumed", "before"), [(0, 0), (9, 0), (10, 100), (29, 200)])
def test_what_a_group_has_not_consumed_outlives_its_age(consumed: int, before: int) -> None:
    log = log_of(START, START, START)
    assert delete_before(log, RULES, running(START + AGE), lambda _: consumed) == before


def test_a_forgotten_group_does_not_keep_the_log_for_ever() -> None:
    log = log_of(START, START + HOUR)
    assert delete_before(log, RULES, running(START + LONGEST - 1), nothing) == 0
    assert delete_before(log, RULES, running(START + LONGEST), nothing) == 100


def test_protection_can_be_switched_off() -> None:
    rules = Rules(age_ms=AGE, bytes_max=None, early=False, unconsumed_ms_max=0, segments_max=10)
    assert delete_before(log_of(START), rules, running(START + AGE), nothing) == 100


def test_one_queue_that_lags_holds_its_segment_and_all_behind() -> None:
    other = QueueRef("orders", 1)
    log = log_of(START, START, START)
    log[1] = log[1]._replace(next_offsets={QUEUE: 20, other: 4})
    reached = {QUEUE: 1_000, other: 3}
    assert delete_before(log, RULES, running(START + AGE), reached.__getitem__) == 100
    reached[other] = 4
    assert delete_before(log, RULES, running(START + AGE), reached.__getitem__) == 300


@pytest.mark.parametrize("unconsumed_ms_max", [0, LONGEST])
def test_early_only_consumed_messages_go(unconsumed_ms_max: int) -> None:
    rules = Rules(
        age_ms=AGE, bytes_max=None, early=True, unconsumed_ms_max=unconsumed_ms_max,
        segments_max=10,
    )  # fmt: skip
    log = log_of(START, START, START)
    assert delete_before(log, rules, running(START), lambda _: 20) == 200
    assert delete_before(log, rules, running(START), nothing) == 0


def test_a_segment_without_messages_goes_with_the_message_behind_it() -> None:
    log = log_of(START, START, START + HOUR)
    log[1] = log[1]._replace(last_ms=None, next_offsets={})
    assert delete_before(log, RULES, running(START + AGE), everything) == 100
    assert delete_before(log, RULES, running(START + AGE + HOUR), everything) == 300
    empty = [one._replace(last_ms=None, next_offsets={}) for one in log]
    assert delete_before(empty, RULES, running(START + YEAR), everything) == 0


# --- the clock -----------------------------------------------------------------------------------


def test_a_clock_set_ahead_deletes_nothing() -> None:
    log = log_of(START, START + HOUR)
    timeline = running(START + 2 * HOUR)
    assert timeline.observe(START + YEAR, 2 * HOUR + 10_000) == YEAR - 2 * HOUR - 10_000
    assert delete_before(log, RULES, timeline, everything) == 0
    # From then on everything becomes older at the pace of the clock that cannot be set.
    timeline.observe(START + YEAR + AGE, 2 * HOUR + 10_000 + AGE)
    assert timeline.age_ms(START) == AGE + 2 * HOUR + 10_000
    assert delete_before(log, RULES, timeline, everything) == 200


def test_a_clock_that_is_put_right_again_leaves_true_ages() -> None:
    timeline = running(START + HOUR)
    timeline.observe(START + YEAR, HOUR)
    timeline.observe(START + HOUR, HOUR)
    timeline.observe(START + 3 * HOUR, 3 * HOUR)
    assert timeline.age_ms(START) == 3 * HOUR
    assert timeline.age_ms(START + 2 * HOUR) == HOUR


def test_a_time_in_the_future_is_corrected_by_what_stands_behind_it() -> None:
    log = log_of(START, START + YEAR, START + HOUR)
    assert delete_before(log, RULES, running(START + AGE + HOUR), everything) == 300


def test_time_in_which_the_broker_was_down_makes_nothing_older() -> None:
    log = log_of(START, START + HOUR)
    timeline = Timeline(START + HOUR, now_ms=START + YEAR, monotonic_ms=0)
    assert timeline.age_ms(START) < 2 * HOUR
    assert delete_before(log, RULES, timeline, everything) == 0
    timeline.observe(START + YEAR + AGE, AGE)
    assert delete_before(log, RULES, timeline, everything) == 200


def test_slewing_is_no_jump() -> None:
    timeline = Timeline(None, now_ms=START, monotonic_ms=0)
    assert timeline.observe(START + HOUR + JUMP_MS_MIN - 1, HOUR) == 0
    assert timeline.age_ms(START) == HOUR


def test_a_time_that_no_remembered_clock_showed_is_from_before_them() -> None:
    timeline = Timeline(START, now_ms=START, monotonic_ms=0)
    timeline.observe(START + HOUR, HOUR)
    assert timeline.age_ms(START + YEAR) == HOUR
    for hop in range(1, JUMPS_MAX + 2):
        timeline.observe(START + hop * YEAR, HOUR)
    assert timeline.age_ms(START - YEAR) == 0


steps = st.lists(
    st.tuples(st.integers(0, 10 * DAY), st.one_of(st.just(0), st.integers(-YEAR, YEAR))),
    max_size=JUMPS_MAX + 20,
)


@given(steps, st.integers(0, 10 * DAY))
def test_however_the_clock_is_set_nothing_seems_older_than_it_is(
    steps: list[tuple[int, int]], rest: int
) -> None:
    now, monotonic = START, 0
    timeline = Timeline(None, now_ms=now, monotonic_ms=monotonic)
    written = [(now, monotonic)]
    for elapsed, jump in [*steps, (rest, 0)]:
        monotonic += elapsed
        now += elapsed + jump
        timeline.observe(now, monotonic)
        for at, when in written:
            assert timeline.age_ms(at) < monotonic - when + 2 * JUMP_MS_MIN
        written.append((now, monotonic))


@given(
    st.lists(st.tuples(st.integers(0, YEAR), st.integers(0, 30)), min_size=1, max_size=30),
    st.integers(0, YEAR), st.integers(0, 400), st.integers(1, 12), st.booleans(),
    st.integers(0, 4_000),
)  # fmt: skip
def test_whatever_the_rules_a_bounded_row_of_whole_sealed_segments_goes(
    times: list[tuple[int, int]], now: int, reached: int, most: int, early: bool, size: int
) -> None:
    log = log_of(*[START + at for at, _ in times])
    rules = Rules(
        age_ms=AGE, bytes_max=size or None, early=early, unconsumed_ms_max=YEAR * 2,
        segments_max=most,
    )  # fmt: skip
    before = delete_before(log, rules, running(START + now), lambda _: reached)
    gone = [segment for segment in log if segment.end <= before]
    assert before in {0, *(segment.end for segment in gone)}
    assert len(gone) <= most
    assert all(segment.sealed for segment in gone)
    assert all(segment.next_offsets[QUEUE] <= reached for segment in gone)
