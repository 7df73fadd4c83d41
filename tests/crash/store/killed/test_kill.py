"""SIGKILL at random, and at every change of the disk: nothing acknowledged is lost or half there."""

import itertools
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Lives in one directory before a new one: recovery reads all of it each time.
LIVES_PER_STORE = 10
# Small enough for several segments in one short life.
SMALL = {"segment_bytes": 64 * 1024, "groups": 12}
WHENS = ("before", "half-way", "after")


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("flush", ["always", "interval"])
def test_nothing_acknowledged_is_lost_when_the_process_is_killed_again_and_again(
    tmp_path: Path,
    appender: Any,
    judge_acks: Callable[..., Counter[str]],
    rounds: Callable[..., int],
    figures: Callable[..., None],
    flush: str,
) -> None:
    chosen = random.Random(20)
    faults: Counter[str] = Counter()
    acks: list[Any] = []
    total, kills = 0, rounds(10, share=1 / 3)
    for number in range(kills):
        if number % LIVES_PER_STORE == 0:
            total, acks = total + len(acks), []
        directory = tmp_path / str(number // LIVES_PER_STORE)
        appender.live(directory, seed=number, flush=flush)
        appender.run(acks=chosen.randint(1, 120))
        appender.kill()
        assert appender.status == signal.SIGKILL
        acks += appender.acks
        # What the machine's memory held survives the process, so `interval` loses nothing either.
        faults += judge_acks(directory, acks)
    figures(
        f"kills at random, flush={flush}", kills=kills, acks_checked=total + len(acks), **faults
    )
    assert not faults


@pytest.mark.timeout(3_600)
def test_nothing_acknowledged_is_lost_when_the_process_is_killed_at_any_change_of_the_disk(
    tmp_path: Path,
    appender: Any,
    judge_acks: Callable[..., Counter[str]],
    rounds: Callable[..., int],
    figures: Callable[..., None],
) -> None:
    faults: Counter[str] = Counter()
    kills = checked = 0
    steps = steps_of_a_life(appender, tmp_path)
    # Every step once in each of three ways, however few rounds were asked for.
    for number in range(max(rounds(1), steps * len(WHENS))):
        sweep, rest = divmod(number, steps * len(WHENS))
        step, when = rest // len(WHENS) + 1, WHENS[rest % len(WHENS)]
        directory = tmp_path / str(number)
        acks: list[Any] = []
        # Twice: the second time while what the first one left is recovered and added to.
        for kill_at in (step, step // 2 + 1):
            appender.live(directory, seed=sweep, kill_at=kill_at, when=when, **SMALL)
            appender.run()
            acks += appender.acks
            killed = appender.status == signal.SIGKILL
            kills += killed
            if killed:
                faults += judge_acks(directory, acks)
        checked += len(acks)
    figures("kills at every change of the disk", kills=kills, acks_checked=checked, **faults)
    assert kills > steps * len(WHENS)
    assert not faults


def test_acknowledging_too_early_is_noticed_by_the_same_kills(
    tmp_path: Path, appender: Any, judge_acks: Callable[..., Counter[str]]
) -> None:
    faults: Counter[str] = Counter()
    for step, when in itertools.product(range(18, 30), WHENS):
        directory = tmp_path / f"{step}-{when}"
        appender.live(directory, seed=1, kill_at=step, when=when, early=True, **SMALL)
        appender.run()
        faults += judge_acks(directory, appender.acks)
    assert faults["lost_acks"] > 0


def steps_of_a_life(appender: Any, folder: Path) -> int:
    """Runs a whole life; returns how many changes of the disk it made."""
    appender.live(folder / "whole", seed=0, **SMALL)
    appender.run()
    assert appender.status == 0
    assert appender.steps > SMALL["groups"] * 2
    return int(appender.steps)
