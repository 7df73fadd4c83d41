"""Background tasks: failures surface, stopping has an order."""

import asyncio

import pytest

from headrace._runtime import tasks as tasks_module
from headrace._runtime.tasks import TaskSet, finish


async def forever() -> None:
    await asyncio.Event().wait()


async def fail(error: Exception) -> None:
    raise error


async def test_watch_returns_what_the_owners_work_returns():
    async def work() -> int:
        return 5

    assert await TaskSet("owner").watch(work()) == 5


async def test_a_failure_of_a_background_task_is_raised_and_the_work_cancelled():
    tasks = TaskSet("owner")
    ended = []

    async def work() -> None:
        try:
            await forever()
        finally:
            ended.append(True)

    watching = asyncio.create_task(tasks.watch(work()))
    await asyncio.sleep(0)
    tasks.start("bad", fail(KeyError("boom")))
    with pytest.raises(KeyError, match="boom"):
        await watching
    assert ended == [True]


async def test_the_first_failure_is_the_one_that_is_raised():
    tasks = TaskSet("owner")
    tasks.start("bad", fail(KeyError("first")))
    tasks.start("worse", fail(KeyError("second")))
    with pytest.raises(KeyError, match="first"):
        await tasks.watch(forever())


async def test_an_error_of_the_work_itself_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError):
        await TaskSet("owner").watch(fail(ZeroDivisionError()))


async def test_a_task_that_ends_well_leaves_the_set():
    tasks = TaskSet("owner")

    async def work() -> None:
        pass

    task = tasks.start("short", work())
    assert (len(tasks), task.get_name()) == (1, "owner: short")
    await task
    await asyncio.sleep(0)
    assert len(tasks) == 0


async def test_cancelling_the_owner_cancels_the_work_and_leaves_the_tasks_to_it():
    tasks = TaskSet("owner")
    background = tasks.start("background", forever())
    watching = asyncio.create_task(tasks.watch(forever()))
    await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait({watching})
    assert watching.cancelled()
    assert not background.done()
    await tasks.aclose()
    assert background.cancelled()


async def test_tasks_are_stopped_one_by_one_the_last_started_first():
    tasks = TaskSet("owner")
    stopped = []

    async def work(name: str) -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            stopped.append(name)

    for name in ("a", "b", "c"):
        tasks.start(name, work(name))
    await asyncio.sleep(0)
    await tasks.aclose()
    assert stopped == ["c", "b", "a"]


async def test_a_task_that_does_not_stop_is_left_behind_after_a_bounded_wait(monkeypatch):
    monkeypatch.setattr(tasks_module, "STOP_MS_MAX", 1)
    tasks = TaskSet("owner")
    go_on = asyncio.Event()

    async def stubborn() -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    task = tasks.start("stubborn", stubborn())
    await asyncio.sleep(0)
    await tasks.aclose()
    assert not task.done()
    go_on.set()
    await task


async def test_a_task_cancelled_by_a_stranger_is_a_failure():
    tasks = TaskSet("owner")
    task = tasks.start("background", forever())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(RuntimeError, match="owner: background was cancelled"):
        await tasks.watch(forever())


async def test_work_comes_to_its_end_although_its_owner_is_stopped() -> None:
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()
        ended.set()

    owner = asyncio.create_task(finish(work()))
    await begun.wait()
    owner.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await owner
    assert ended.is_set()


async def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await finish(work())


async def test_work_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace._runtime.tasks.FINISH_MS_MAX", 1)
    cut = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()

    owner = asyncio.create_task(finish(work()))
    await asyncio.sleep(0)
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    assert cut.is_set()
