"""The phases of a rebuild: measured one after the other, and announced."""

from types import SimpleNamespace
from typing import Any

from headrace._runtime.clock import SystemClock
from headrace.rebuild.phases import Phases


def test_each_phase_is_announced_and_measured_until_the_next_one_begins() -> None:
    now: Any = SimpleNamespace(ms=0)
    clock: Any = SimpleNamespace(monotonic_ms=lambda: now.ms)
    announced: list[tuple[str, int]] = []
    phases = Phases(clock, lambda name, ahead: announced.append((name, ahead)))
    phases.begin("fold", 7)
    now.ms = 1_500
    phases.begin("switch")
    now.ms = 2_000
    phases.end()
    now.ms = 9_000
    phases.end()
    assert announced == [("fold", 7), ("switch", 0)]
    assert phases.seconds == {"fold": 1.5, "switch": 0.5}


def test_what_is_done_within_a_phase_is_announced_and_the_phase_goes_on() -> None:
    now: Any = SimpleNamespace(ms=0)
    clock: Any = SimpleNamespace(monotonic_ms=lambda: now.ms)
    announced: list[tuple[str, int]] = []
    phases = Phases(clock, lambda name, ahead: announced.append((name, ahead)))
    phases.begin("fold", 7)
    now.ms = 500
    phases.passed("t/0 folded", 3)
    now.ms = 1_500
    phases.end()
    assert announced == [("fold", 7), ("t/0 folded", 3)]
    assert phases.seconds == {"fold": 1.5}


def test_phases_need_no_listener() -> None:
    clock: Any = SimpleNamespace(monotonic_ms=lambda: 0)
    phases = Phases(clock, None)
    phases.begin("fold")
    phases.passed("t/0 folded", 0)
    phases.end()
    assert phases.seconds == {"fold": 0.0}


def test_a_total_leaves_out_what_is_named() -> None:
    phases = Phases(SystemClock(), None)
    phases.seconds |= {"session": 10.0, "fold": 2.0, "load": 0.5}
    assert phases.with_total("session") == {
        "session": 10.0, "fold": 2.0, "load": 0.5, "total": 2.5,
    }  # fmt: skip
    assert phases.with_total()["total"] == 12.5


def test_an_interlude_takes_none_of_the_time_of_the_phase_that_it_interrupts() -> None:
    now: Any = SimpleNamespace(ms=0)
    clock: Any = SimpleNamespace(monotonic_ms=lambda: now.ms)
    announced: list[tuple[str, int]] = []
    phases = Phases(clock, lambda name, ahead: announced.append((name, ahead)))
    phases.begin("begin")
    now.ms = 1_000
    with phases.interlude("session"):
        now.ms = 9_000
    now.ms = 9_500
    phases.begin("fold", 3)
    phases.end()
    with phases.interlude("later"):
        now.ms = 9_700
    assert phases.seconds == {"begin": 1.5, "session": 8.0, "fold": 0.0, "later": 0.2}
    assert announced == [("begin", 0), ("session", 0), ("fold", 3), ("later", 0)]
