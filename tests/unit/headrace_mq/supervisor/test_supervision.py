"""The rules of supervision, with times and chance as arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.settings import SuperviseSettings
from headrace_mq.supervisor.supervision import Ending, Phase, Supervision, SupervisorStep

SETTINGS = SuperviseSettings(
    ask_every_ms=10, stuck_after_ms=100, start_ms_max=1_000, stop_ms_max=500, abort_ms_max=50,
    pause_ms_min=20, pause_ms_max=300, well_after_ms=2_000,
)  # fmt: skip


def started(now_ms: int = 0) -> Supervision:
    supervision = Supervision(SETTINGS, now_ms)
    assert supervision.due(now_ms) is SupervisorStep.START
    return supervision


def serving(now_ms: int = 0) -> Supervision:
    supervision = started(now_ms)
    supervision.ready(now_ms)
    assert supervision.phase is Phase.SERVING
    return supervision


def steps_until(supervision: Supervision, end_ms: int) -> list[tuple[int, SupervisorStep]]:
    """What is due, at the times at which it says so."""
    found = []
    while (due_ms := supervision.due_ms) is not None and due_ms <= end_ms:
        step = supervision.due(due_ms)
        assert step is not None
        found.append((due_ms, step))
    return found


def test_a_process_is_started_at_once_and_only_once() -> None:
    supervision = started()
    assert (supervision.due(0), supervision.phase) == (None, Phase.STARTING)


def test_a_process_that_answers_is_asked_again_and_again() -> None:
    supervision = serving()
    for now_ms in range(10, 1_000, 10):
        assert supervision.due(now_ms) is SupervisorStep.ASK
        supervision.answered(now_ms)
    assert supervision.phase is Phase.SERVING


def test_silence_for_too_long_ends_in_an_abort_and_then_in_a_kill() -> None:
    steps = steps_until(serving(), 10_000)
    assert [at for at, step in steps if step is SupervisorStep.ASK] == list(range(10, 110, 10))
    assert steps[-2:] == [(110, SupervisorStep.ABORT), (160, SupervisorStep.KILL)]


def test_an_answer_ends_the_silence() -> None:
    supervision = serving()
    steps_until(supervision, 100)
    supervision.answered(101)
    assert {step for _, step in steps_until(supervision, 200)} == {SupervisorStep.ASK}


def test_a_supervisor_that_stood_still_itself_asks_before_it_ends_anything() -> None:
    supervision = serving()
    assert supervision.due(10) is SupervisorStep.ASK
    assert supervision.due(1_000_000) is SupervisorStep.ASK
    supervision.answered(1_000_001)
    assert supervision.phase is Phase.SERVING


def test_a_start_may_not_take_forever() -> None:
    assert steps_until(started(), 10_000) == [
        (1_000, SupervisorStep.ABORT),
        (1_050, SupervisorStep.KILL),
    ]


def test_a_stuck_process_is_started_again_with_any_exit_status() -> None:
    for status in (0, 2, -6, -9):
        supervision = serving()
        steps_until(supervision, 110)
        assert supervision.ended(status, 111, 0.0) is Ending.STUCK
        assert (supervision.phase, supervision.status) == (Phase.WAITING, None)


@pytest.mark.parametrize("status", [1, -9, -11, 134])
def test_a_crash_is_followed_by_a_start(status: int) -> None:
    supervision = serving()
    assert supervision.ended(status, 5, 0.0) is Ending.CRASHED
    assert steps_until(supervision, 100)[0] == (25, SupervisorStep.START)


def test_a_clean_end_is_the_end() -> None:
    supervision = serving()
    assert supervision.ended(0, 5, 0.0) is Ending.CLEAN
    assert (supervision.phase, supervision.status, supervision.due_ms) == (Phase.OVER, 0, None)


def test_a_refusal_to_start_is_not_tried_again() -> None:
    supervision = started()
    assert supervision.ended(2, 5, 0.0) is Ending.REFUSED
    assert (supervision.phase, supervision.status) == (Phase.OVER, 2)


def test_the_status_of_a_refusal_after_it_served_is_a_crash() -> None:
    supervision = serving()
    assert supervision.ended(2, 5, 0.0) is Ending.CRASHED
    assert supervision.phase is Phase.WAITING


def test_a_stop_is_passed_on_and_the_status_of_the_process_is_the_status() -> None:
    for status, own in ((0, 0), (1, 1), (-9, 137), (-15, 0)):
        supervision = serving()
        assert supervision.stop(5) is SupervisorStep.TERMINATE
        supervision.ended(status, 6, 0.0)
        assert (supervision.phase, supervision.status) == (Phase.OVER, own)


def test_a_stop_that_takes_too_long_ends_in_an_abort_and_is_no_success() -> None:
    supervision = serving()
    supervision.stop(5)
    assert steps_until(supervision, 10_000) == [
        (505, SupervisorStep.ABORT),
        (555, SupervisorStep.KILL),
    ]
    assert supervision.ended(-9, 560, 0.0) is Ending.STUCK
    assert supervision.status == 137


def test_a_stop_while_nothing_runs_is_over_at_once() -> None:
    supervision = serving()
    supervision.ended(1, 5, 0.0)
    assert supervision.stop(6) is None
    assert (supervision.phase, supervision.status) == (Phase.OVER, 0)


def test_a_stop_of_one_that_is_being_aborted_starts_nothing_again() -> None:
    supervision = serving()
    steps_until(supervision, 110)
    assert supervision.stop(111) is None
    supervision.ended(-6, 112, 0.0)
    assert (supervision.phase, supervision.status) == (Phase.OVER, 134)


def pauses(count: int, served_ms: int, chance: float) -> list[int]:
    supervision, now_ms, found = Supervision(SETTINGS, 0), 0, []
    for _ in range(count):
        assert supervision.due(now_ms) is SupervisorStep.START
        supervision.ready(now_ms)
        now_ms += served_ms
        supervision.ended(1, now_ms, chance)
        assert supervision.due_ms is not None
        found.append(supervision.due_ms - now_ms)
        now_ms = supervision.due_ms
    return found


def test_pauses_double_up_to_their_bound() -> None:
    assert pauses(6, served_ms=5, chance=0.0) == [20, 40, 80, 150, 150, 150]


def test_pauses_begin_again_after_a_process_ran_well() -> None:
    assert pauses(4, served_ms=2_000, chance=0.0) == [20, 20, 20, 20]


@given(
    chance=st.floats(0, 1, exclude_max=True),
    count=st.integers(1, 40),
    served_ms=st.integers(0, 3_000),
)
def test_every_pause_is_within_its_bounds(chance: float, count: int, served_ms: int) -> None:
    bounds = range(SETTINGS.pause_ms_min, SETTINGS.pause_ms_max + 1)
    assert all(pause in bounds for pause in pauses(count, served_ms, chance))


happening = st.one_of(
    st.tuples(st.just("wait"), st.integers(0, 700)),
    st.tuples(st.sampled_from(["ready", "answered", "stop"]), st.just(0)),
    st.tuples(st.just("ended"), st.sampled_from([0, 1, 2, -6, -9, -15])),
)


@given(st.lists(happening, max_size=60))
def test_one_process_runs_at_most_and_a_stop_is_final(
    happenings: list[tuple[str, int]],
) -> None:
    supervision, now_ms, alive, told = Supervision(SETTINGS, 0), 0, False, False
    for what, value in happenings:
        if what == "wait":
            now_ms += value
            while (step := supervision.due(now_ms)) is not None:
                assert alive is (step is not SupervisorStep.START)
                assert not (told and step in {SupervisorStep.START, SupervisorStep.ASK})
                alive = True
        elif what == "ended" and alive:
            supervision.ended(value, now_ms, 0.5)
            alive = False
        elif what == "stop":
            told = True
            supervision.stop(now_ms)
        elif what in {"ready", "answered"}:
            getattr(supervision, what)(now_ms)
        over = supervision.phase is Phase.OVER
        assert over is (supervision.status is not None)
        assert not (over and alive)
        assert over or alive or not told
        assert alive or over or supervision.due_ms is not None


@given(st.lists(st.integers(0, 90), max_size=50))
def test_a_process_that_always_answers_in_time_is_never_ended(delays: list[int]) -> None:
    supervision, now_ms = serving(), 0
    for delay_ms in delays:
        asked_ms = supervision.due_ms
        assert asked_ms is not None
        now_ms = asked_ms + delay_ms
        assert {step for _, step in steps_until(supervision, now_ms)} == {SupervisorStep.ASK}
        supervision.answered(now_ms)
