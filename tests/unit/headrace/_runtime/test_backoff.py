"""Pauses that grow, and actions that are repeated."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._runtime.backoff import Backoff
from headrace.errors import SerializationError, SubjectKeysAway


@given(attempt=st.integers(1, 10_000), ms_min=st.integers(1, 1_000), ms_max=st.integers(1, 60_000))
def test_a_pause_doubles_up_to_the_longest_with_jitter_over_its_upper_half(attempt, ms_min, ms_max):
    full = min(ms_min * 2 ** min(attempt - 1, 64), max(ms_min, ms_max))
    pause = Backoff(ms_min=ms_min, ms_max=ms_max).pause_ms(attempt)
    assert full / 2 <= pause <= full


def test_pauses_differ_so_that_many_do_not_come_back_together():
    backoff = Backoff(ms_min=1_000, ms_max=1_000)
    assert len({backoff.pause_ms(1) for _ in range(20)}) > 1


async def test_an_action_is_repeated_until_it_succeeds():
    errors = [OSError("away"), KeyError("odd"), OSError("away")]

    async def action() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert await Backoff(ms_min=1, ms_max=1).persist(action, what="act") == "done"
    assert errors == []


async def test_errors_that_time_does_not_cure_are_raised_at_once():
    attempts = []

    async def action() -> None:
        attempts.append(1)
        raise SerializationError("broken for good")

    with pytest.raises(SerializationError):
        await Backoff(ms_min=1, ms_max=1).persist(action, what="act")
    assert len(attempts) == 1


async def test_keys_that_are_away_are_waited_for():
    errors = [SubjectKeysAway("away")] * 5

    async def action() -> int:
        if errors:
            raise errors.pop()
        return 1

    assert await Backoff(ms_min=1, ms_max=1).persist(action, what="act") == 1


async def test_with_no_exceptions_to_the_rule_every_error_is_repeated():
    errors = [SerializationError("odd")]

    async def action() -> int:
        if errors:
            raise errors.pop()
        return 1

    assert await Backoff(ms_min=1, ms_max=1).persist(action, what="act", unless=()) == 1


async def test_persisting_ends_when_it_is_cancelled():
    started = asyncio.Event()

    async def action() -> None:
        started.set()
        raise OSError("away")

    task = asyncio.create_task(Backoff(ms_min=60_000, ms_max=60_000).persist(action, what="act"))
    await started.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_pause_of_the_caller_may_give_up():
    pauses = []

    async def action() -> None:
        raise OSError("away")

    async def pause(attempt: int) -> None:
        pauses.append(attempt)
        if attempt == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await Backoff(ms_min=60_000, ms_max=60_000).persist(action, what="act", pause=pause)
    assert pauses == [1, 2]
