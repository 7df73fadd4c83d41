"""SIGKILL at any moment: nothing acknowledged is lost, nothing is half there."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 10


def test_nothing_acknowledged_is_lost_when_the_process_is_killed_again_and_again(
    tmp_path: Path, start_appender: Callable[..., Any], check_store: Callable[..., int]
) -> None:
    chosen = random.Random(20)
    directory = tmp_path / "store"
    acks: list[tuple[int, int, int]] = []
    for round_number in range(ROUNDS):
        child = start_appender(directory, seed=round_number)
        child.run(chosen.randint(1, 120))
        child.kill()
        assert child.acks
        acks += child.acks
        found = check_store(directory, acks)
        assert found >= len(acks)
    assert len({ack[:2] for ack in acks}) == len(acks)


def test_nothing_is_lost_or_torn_when_the_process_is_killed_before_a_sync(
    tmp_path: Path, start_appender: Callable[..., Any], check_store: Callable[..., int]
) -> None:
    directory = tmp_path / "store"
    acks: list[tuple[int, int, int]] = []
    for stop_at in (1, 2, 3, 4, 20):
        child = start_appender(directory, seed=stop_at, stop_at=stop_at)
        child.run(1_000)
        assert child.stopped
        child.kill()
        acks += child.acks
        check_store(directory, acks)
