"""A call has a bound, and one that hangs keeps no process alive."""

import asyncio
import itertools
import threading

import pytest

from headrace.alarms.calls import BoundedCalls


async def test_a_call_returns_or_raises_what_its_action_does() -> None:
    calls = BoundedCalls()
    assert await calls.call("a", lambda: 7, bound_s=60) == 7
    with pytest.raises(ValueError, match="no number"):
        await calls.call("a", lambda: int("no number"), bound_s=60)


async def test_a_call_that_hangs_is_given_up_and_refused_until_it_has_ended() -> None:
    calls, free, ended = BoundedCalls(), threading.Event(), threading.Event()

    def hang() -> None:
        free.wait(60)
        ended.set()

    try:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
            await calls.call("a", hang, bound_s=0.01)
        with pytest.raises(TimeoutError, match="an earlier attempt still waits"):
            await calls.call("a", hang, bound_s=60)
        assert await calls.call("b", lambda: 7, bound_s=60) == 7
        own = [one for one in threading.enumerate() if one.name == "alarms: a"]
        assert all(one.daemon for one in own)
    finally:
        free.set()
    assert ended.wait(60)


async def test_a_call_that_is_shared_joins_an_earlier_one_until_it_has_ended() -> None:
    calls, free, runs = BoundedCalls(), threading.Event(), itertools.count(1)

    def hang() -> int:
        free.wait(60)
        return next(runs)

    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        await calls.share("a", hang, bound_s=0.01)
    both = asyncio.gather(*(calls.share("a", hang, bound_s=60) for _ in range(2)))
    await asyncio.sleep(0)  # both wait for the first
    free.set()
    assert await both == [1, 1]
    assert await calls.share("a", hang, bound_s=60) == 2
