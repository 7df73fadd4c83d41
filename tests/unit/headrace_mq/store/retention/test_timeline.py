"""What aged, and what time it is, when the clock cannot be trusted."""

from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace_mq.store.retention.timeline import STEP_MS, KeptTimeline, Reading, Timeline

SECOND, HOUR = 1_000, 3_600_000
DAY, YEAR = 24 * HOUR, 365 * 24 * HOUR
NOW = 1_700_000_000_000
LOG = "transient"


class Segment(NamedTuple):
    base: int
    end: int
    sealed: bool = True


def stored(timeline: Timeline) -> KeptTimeline:
    """What a start reads of what was kept."""
    return msgspec.json.decode(msgspec.json.encode(timeline.kept()), type=KeptTimeline)


def test_ages_follow_the_clock_that_cannot_be_set() -> None:
    timeline = Timeline(Reading(NOW, 0, "a"))
    segment = Segment(0, 100)
    timeline.note(LOG, [segment])
    for wall_ms in (NOW + YEAR, NOW - 8 * DAY, 0, NOW):
        timeline.observe(Reading(wall_ms, HOUR, "a"))
        assert timeline.age_ms(LOG, segment) == HOUR


def test_a_segment_is_as_old_as_the_sight_of_its_end() -> None:
    timeline = Timeline(Reading(NOW, 0, "a"))
    timeline.note(LOG, [Segment(0, 100, sealed=False)])
    timeline.observe(Reading(NOW, HOUR, "a"))
    assert timeline.age_ms(LOG, Segment(0, 100)) == HOUR
    assert timeline.age_ms(LOG, Segment(0, 120)) == 0
    timeline.note(LOG, [Segment(0, 120), Segment(120, 130, sealed=False)])
    timeline.observe(Reading(NOW, 3 * HOUR, "a"))
    timeline.note(LOG, [Segment(0, 120), Segment(120, 130)])
    assert [timeline.age_ms(LOG, Segment(*at)) for at in ((0, 120), (120, 130))] == [2 * HOUR] * 2
    assert timeline.age_ms("forever", Segment(0, 120)) == timeline.age_ms(LOG, Segment(7, 120)) == 0


def test_a_restart_within_one_boot_forgets_nothing() -> None:
    timeline = Timeline(Reading(NOW, HOUR, "a"))
    timeline.note(LOG, [Segment(0, 100)])
    kept = stored(timeline)
    again = Timeline(Reading(NOW + 10 * YEAR, 4 * HOUR, "a"), kept)
    again.note(LOG, [Segment(0, 100)])
    assert again.age_ms(LOG, Segment(0, 100)) == 3 * HOUR


@pytest.mark.parametrize("boot", ["b", ""])
def test_time_for_which_the_machine_was_off_makes_nothing_older(boot: str) -> None:
    timeline = Timeline(Reading(NOW, HOUR, boot and "a"))
    timeline.note(LOG, [Segment(0, 100)])
    again = Timeline(Reading(NOW + YEAR, 9 * HOUR, boot), stored(timeline))
    again.observe(Reading(NOW + YEAR, 10 * HOUR, boot))
    assert again.age_ms(LOG, Segment(0, 100)) == HOUR


def test_a_machine_that_goes_on_from_an_older_state_makes_nothing_older() -> None:
    timeline = Timeline(Reading(NOW, 9 * HOUR, "a"))
    timeline.note(LOG, [Segment(0, 100)])
    again = Timeline(Reading(NOW, HOUR, "a"), stored(timeline))
    assert again.age_ms(LOG, Segment(0, 100)) == 0
    again.observe(Reading(NOW, 2 * HOUR, "a"))
    assert again.age_ms(LOG, Segment(0, 100)) == HOUR


def test_the_end_of_the_active_segment_has_no_age_after_a_restart() -> None:
    timeline = Timeline(Reading(NOW, 0, "a"))
    timeline.note(LOG, [Segment(0, 100), Segment(100, 150, sealed=False)])
    timeline.observe(Reading(NOW, HOUR, "a"))
    again = Timeline(Reading(NOW, HOUR, "a"), stored(timeline))
    # The end of the one that was written to may have been lost and reached again.
    again.note(LOG, [Segment(0, 100), Segment(100, 150), Segment(150, 200)])
    ages = [again.age_ms(LOG, Segment(base, end)) for base, end in ((0, 100), (100, 150))]
    assert ages == [HOUR, 0]


def test_a_sealed_segment_that_is_written_to_again_is_young_again() -> None:
    timeline = Timeline(Reading(NOW, 0, "a"))
    timeline.note(LOG, [Segment(0, 100)])
    again = Timeline(Reading(NOW, HOUR, "a"), stored(timeline))
    again.note(LOG, [Segment(0, 100, sealed=False)])
    assert again.age_ms(LOG, Segment(0, 100)) == 0


def test_the_steady_clock_passes_over_jumps_and_goes_along_with_slewing() -> None:
    timeline = Timeline(Reading(NOW, 0, "a"))
    assert timeline.observe(Reading(NOW + HOUR + STEP_MS - 1, HOUR, "a")) == 0
    assert timeline.ahead_ms == 0
    assert timeline.observe(Reading(NOW + 3 * HOUR, HOUR, "a")) == 2 * HOUR
    assert timeline.observe(Reading(NOW + 3 * HOUR, HOUR, "a")) == 0
    assert timeline.ahead_ms == 2 * HOUR
    assert timeline.observe(Reading(NOW + 2 * HOUR, 2 * HOUR, "a")) == -2 * HOUR
    assert timeline.ahead_ms == 0


def test_small_steps_cannot_hide_a_jump() -> None:
    timeline = Timeline(Reading(NOW, 0, "a"))
    told = [timeline.observe(Reading(NOW + 300 * n, 0, "a")) for n in range(1, 11)]
    assert sum(told) == timeline.ahead_ms >= 3_000 - STEP_MS


@pytest.mark.parametrize(
    ("boot", "monotonic_ms", "wall_ms", "steady_ms"),
    [
        ("a", 2 * HOUR, NOW + HOUR, NOW + HOUR),
        ("a", 2 * HOUR, NOW + 5 * HOUR, NOW + HOUR),
        ("a", 2 * HOUR, NOW - DAY, NOW + HOUR),
        # Only the wall clock knows how long it was off.
        ("b", 0, NOW + 3 * DAY, NOW + 3 * DAY),
        ("b", 0, NOW - YEAR, NOW),
        ("a", 0, NOW + 3 * DAY, NOW + 3 * DAY),
    ],
)
def test_the_steady_clock_goes_on_over_a_restart(
    boot: str, monotonic_ms: int, wall_ms: int, steady_ms: int
) -> None:
    kept = stored(Timeline(Reading(NOW, HOUR, "a")))
    again = Timeline(Reading(wall_ms, monotonic_ms, boot), kept)
    assert wall_ms - again.ahead_ms == steady_ms


def test_a_jump_worth_an_alarm_is_kept() -> None:
    timeline = Timeline(Reading(NOW, 0, "a"), jump_ms_min=60_000)
    timeline.observe(Reading(NOW + HOUR + 59_999, HOUR, "a"))
    assert timeline.jump_ms == 0
    timeline.observe(Reading(NOW - DAY, 2 * HOUR, "a"))
    assert timeline.jump_ms == -DAY - 2 * HOUR - 59_999
    again = Timeline(Reading(NOW - DAY, 2 * HOUR, "a"), stored(timeline))
    assert (again.jump_ms, again.jump_at_ms) == (timeline.jump_ms, 2 * HOUR)


times = st.one_of(st.integers(0, 2 * HOUR), st.integers(0, 10 * DAY))
walls = st.one_of(
    st.integers(-10, 10),
    st.integers(-3 * HOUR, 3 * HOUR),
    st.sampled_from([-YEAR, -8 * DAY, 8 * DAY, YEAR, -50 * YEAR, 50 * YEAR]),
)


class AgainstTrueTime(RuleBasedStateMachine):
    """A machine whose clock anybody sets, which boots, and a broker that is killed on it.

    True time is known here alone. Whatever happens, no segment is older than what passed since the last
    message was written to it, and none is younger than what this broker saw pass over it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.true_ms, self.ahead_ms = 0, 0
        self.boots, self.booted_ms = 0, 0
        # Of each segment: base, end, when it was written to last; the last one is not sealed.
        self.segments: list[tuple[int, int, int]] = [(0, 10, 0)]
        self.synced = 10
        self.disk: KeptTimeline | None = None

    @initialize()
    def start(self) -> None:
        self.timeline = Timeline(self.reading(), self.disk)
        self.seen_ms: dict[tuple[int, int], int] = {}
        self.look()

    def reading(self) -> Reading:
        wall_ms = NOW + self.true_ms + self.ahead_ms
        return Reading(wall_ms, self.true_ms - self.booted_ms, f"boot-{self.boots}")

    def facts(self) -> list[Segment]:
        last = len(self.segments) - 1
        return [Segment(base, end, n < last) for n, (base, end, _) in enumerate(self.segments)]

    @rule()
    def look(self) -> None:
        """A retention pass."""
        self.timeline.observe(self.reading())
        self.timeline.note(LOG, self.facts())
        self.looked_ms = self.true_ms
        for base, end, _ in self.segments:
            self.seen_ms.setdefault((base, end), self.true_ms)

    @rule(ms=times)
    def pass_time(self, ms: int) -> None:
        self.true_ms += ms

    @rule(by_ms=walls)
    def set_clock(self, by_ms: int) -> None:
        self.ahead_ms += by_ms
        note(f"clock {by_ms:+} ms")

    @rule()
    def clock_put_right(self) -> None:
        self.ahead_ms = 0

    @rule(size=st.integers(1, 3), seal=st.booleans())
    def write(self, size: int, *, seal: bool) -> None:
        base, end, _ = self.segments[-1]
        if seal and end > base:
            # What is sealed is durable before the next one is begun.
            self.synced = end
            self.segments.append((end, end + size, self.true_ms))
        else:
            self.segments[-1] = (base, end + size, self.true_ms)

    @rule(count=st.integers(1, 3))
    def delete(self, count: int) -> None:
        self.segments = self.segments[min(count, len(self.segments) - 1) :]

    @rule()
    def keep(self) -> None:
        self.disk = stored(self.timeline)

    @rule(lose=st.booleans(), rest_ms=times)
    def restart(self, rest_ms: int, *, lose: bool) -> None:
        """A kill; what was not synced of the last segment may be lost and be written again."""
        base, _, written_ms = self.segments[-1]
        if lose:
            self.segments[-1] = (base, max(base, self.synced), written_ms)
        self.true_ms += rest_ms
        self.start()

    @rule(rest_ms=times, wrong_ms=walls)
    def boot(self, rest_ms: int, wrong_ms: int) -> None:
        self.true_ms += rest_ms
        self.boots, self.booted_ms = self.boots + 1, self.true_ms
        self.ahead_ms += wrong_ms
        self.start()

    @rule()
    def lose_file(self) -> None:
        self.disk = None

    @invariant()
    def nothing_is_older_than_it_is(self) -> None:
        for segment, (base, end, written_ms) in zip(self.facts(), self.segments, strict=True):
            age_ms = self.timeline.age_ms(LOG, segment)
            assert 0 <= age_ms <= self.true_ms - written_ms
            assert age_ms >= self.looked_ms - self.seen_ms.get((base, end), self.looked_ms)


TestAgainstTrueTime = AgainstTrueTime.TestCase
TestAgainstTrueTime.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


@given(st.lists(st.tuples(times, walls), max_size=60))
def test_while_a_broker_runs_ages_are_exact_however_the_clock_is_set(
    steps: list[tuple[int, int]],
) -> None:
    timeline = Timeline(Reading(NOW, 0, "a"))
    true_ms = ahead_ms = 0
    timeline.note(LOG, [Segment(0, 1)])
    for passed_ms, by_ms in steps:
        true_ms += passed_ms
        ahead_ms += by_ms
        timeline.observe(Reading(NOW + true_ms + ahead_ms, true_ms, "a"))
        assert timeline.age_ms(LOG, Segment(0, 1)) == true_ms
        steady_ms = NOW + true_ms + ahead_ms - timeline.ahead_ms
        assert abs(steady_ms - NOW - true_ms) < STEP_MS
