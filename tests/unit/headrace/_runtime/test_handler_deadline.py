"""A handler's time: nothing for one that never waits, and a limit for one that does."""

import asyncio

import pytest

from headrace._runtime import handler_deadline as deadline
from headrace._runtime.handler_deadline import Deadline


async def test_work_that_never_waits_needs_no_timer(monkeypatch):
    def refuse(_when: object) -> None:
        raise AssertionError("a timer was made")

    monkeypatch.setattr(asyncio, "timeout_at", refuse)
    done = []

    async def work() -> None:
        done.append(1)

    limit = Deadline()
    await limit.run(work())
    assert done == [1]
    assert not limit.expired()


async def test_work_that_waits_gets_what_it_waits_for_in_the_same_task():
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    seen = []

    async def work() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(await first)
        try:
            await second
        except LookupError as error:
            seen.append(error)
        seen.append(asyncio.current_task())

    loop.call_soon(first.set_result, "a")
    lost = LookupError()
    loop.call_soon(second.set_exception, lost)
    await Deadline().run(work())
    task = asyncio.current_task()
    assert seen == [task, "a", lost, task]


@pytest.mark.parametrize("turns", [0, 1])
async def test_what_work_raises_is_raised(turns):
    async def work() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise LookupError("odd")

    limit = Deadline()
    with pytest.raises(LookupError, match="odd"):
        await limit.run(work())
    assert not limit.expired()


async def test_work_that_waits_too_long_is_cancelled_and_expired(monkeypatch):
    monkeypatch.setattr(deadline, "HANDLER_MS_MAX", 1)
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    limit = Deadline()
    with pytest.raises(TimeoutError):
        await limit.run(work())
    assert cancelled == [1]
    assert limit.expired()


@pytest.mark.parametrize("pause_first", [True, False])
async def test_a_pause_does_not_count_and_what_follows_it_does(monkeypatch, pause_first):
    limit = Deadline()
    loop = asyncio.get_running_loop()
    reached = []

    async def work() -> None:
        if not pause_first:
            await asyncio.sleep(0)
        limit.pause()
        monkeypatch.setattr(deadline, "HANDLER_MS_MAX", 1)
        begun = loop.time()
        while loop.time() < begun + 0.005:
            await asyncio.sleep(0)
        reached.append("the end of the pause")
        limit.resume()
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await limit.run(work())
    assert reached == ["the end of the pause"]


async def test_a_caller_that_is_cancelled_cancels_the_work():
    begun, ended = asyncio.Event(), []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    limit = Deadline()
    caller = asyncio.create_task(limit.run(work()))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [1]
    assert not limit.expired()
