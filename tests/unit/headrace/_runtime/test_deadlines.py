"""Many waits, one timer: each ends in its time, and those that are done stay as they are."""

import asyncio

import pytest

from headrace._runtime.deadlines import Deadlines


def future_that_ends(deadlines: Deadlines, end: float) -> asyncio.Future:
    waiting = asyncio.get_running_loop().create_future()
    deadlines.add(waiting, end)
    return waiting


async def test_waits_end_in_the_order_of_their_deadlines_whatever_order_they_came_in():
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    ended: list[asyncio.Future] = []
    late = future_that_ends(deadlines, now + 0.02)
    early = future_that_ends(deadlines, now + 0.01)
    for waiting in (late, early):
        waiting.add_done_callback(ended.append)
    with pytest.raises(TimeoutError):
        await late
    assert ended == [early, late]
    with pytest.raises(TimeoutError):
        await early
    assert len(deadlines) == 0


async def test_waits_that_are_over_at_once_end_in_that_order_too():
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    ended: list[asyncio.Future] = []
    waits = [future_that_ends(deadlines, now - ago) for ago in (1, 2, 3)]
    for waiting in waits:
        waiting.add_done_callback(ended.append)
    with pytest.raises(TimeoutError):
        await waits[0]
    assert ended == waits[::-1]


async def test_what_is_done_stays_as_it_is():
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    done, other = future_that_ends(deadlines, now), future_that_ends(deadlines, now)
    done.set_result("done")
    with pytest.raises(TimeoutError):
        await other
    assert done.result() == "done"


async def test_what_is_discarded_is_forgotten():
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    discarded, other = future_that_ends(deadlines, now), future_that_ends(deadlines, now)
    deadlines.discard(discarded)
    deadlines.discard(discarded)
    with pytest.raises(TimeoutError):
        await other
    assert not discarded.done()


async def test_closed_it_ends_nothing_any_more():
    deadlines, now = Deadlines(), asyncio.get_running_loop().time()
    waiting = future_that_ends(deadlines, now)
    deadlines.close()
    other = Deadlines()
    with pytest.raises(TimeoutError):
        await future_that_ends(other, now)
    assert not waiting.done()
