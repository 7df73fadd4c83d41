"""Processes that come when there is work, and whose ends cost nobody more than time."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headrace_mq.broker.fetch.filter_workers import workers as sifters_module
from headrace_mq.broker.fetch.filter_workers.jobs import Job, JobResult
from headrace_mq.broker.fetch.filter_workers.workers import FilterWorkers
from headrace_mq.store.message_store import MessageStore
from tests.unit.headrace_mq.broker.fetch.filter_workers.conftest import (
    BATCHES,
    QUEUE,
    RARE,
    RECORDS,
)

END = BATCHES * RECORDS
LONG_S = 60.0


def job(store: MessageStore) -> Job:
    stretch = store.file_range_from(QUEUE, 0, 1 << 30, 1 << 30)
    assert stretch is not None
    return Job(RARE, True, *QUEUE, str(stretch.path), stretch.shift, stretch.entries, 1 << 30)


@asynccontextmanager
async def running(
    processes_max: int = 1, *, job_s_max: float = LONG_S, idle_s: float = LONG_S
) -> AsyncIterator[FilterWorkers]:
    """Processes of which one is ready."""
    workers = FilterWorkers(processes_max, job_s_max=job_s_max, idle_s=idle_s)
    try:
        assert not workers.ready()
        await until(workers.ready)
        yield workers
    finally:
        await workers.aclose()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not holds():
            await asyncio.sleep(0)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_jobs_are_done_and_the_processes_end_with_the_broker(store: MessageStore) -> None:
    async with running(2) as workers:
        answers = [workers.submit(job(store)) for _ in range(8)]
        for answer in answers:
            result = await answer
            assert result is not None
            assert result.next == END
        await until(lambda: len(workers.pids) == 2)
        pids = workers.pids
    assert workers.pids == []
    assert not any(map(is_alive, pids))
    # Whoever comes later does it himself.
    assert await workers.submit(job(store)) is None
    assert not workers.ready()


async def test_no_more_processes_run_than_may(store: MessageStore) -> None:
    async with running(1) as workers:
        answers = [workers.submit(job(store)) for _ in range(4)]
        assert len(workers.pids) == 1
        assert workers.waiting == 4
        await asyncio.gather(*answers)
        assert len(workers.pids) == 1
        assert workers.waiting == 0


async def test_the_job_of_a_killed_process_has_no_result(store: MessageStore) -> None:
    async with running() as workers:
        (pid,) = workers.pids
        os.kill(pid, signal.SIGSTOP)
        answers = [workers.submit(job(store)) for _ in range(3)]
        # The first one is on its way before the process dies.
        await until(lambda: workers.waiting == 2)
        os.kill(pid, signal.SIGKILL)
        assert await asyncio.gather(*answers) == [None, None, None]
        await until(lambda: not workers.pids)
        # What it died of may still be there: nobody tries at once.
        assert not workers.at_hand
        assert not workers.ready()
        assert workers.pids == []


async def test_another_one_is_started_after_the_pause(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sifters_module, "_PAUSE_S", 0.0)
    async with running() as workers:
        (pid,) = workers.pids
        os.kill(pid, signal.SIGKILL)
        assert await workers.submit(job(store)) is None
        await until(workers.ready)
        assert workers.pids != [pid]
        result = await workers.submit(job(store))
        assert result is not None
        assert result.next == END


async def test_a_process_that_stands_still_is_given_up(store: MessageStore) -> None:
    async with running(job_s_max=0.05) as workers:
        (pid,) = workers.pids
        os.kill(pid, signal.SIGSTOP)
        assert await workers.submit(job(store)) is None
        await until(lambda: not workers.pids)
        assert not is_alive(pid)


async def test_an_idle_process_ends_and_is_reported(store: MessageStore) -> None:
    rests: list[JobResult | None] = []
    async with running(idle_s=0.05) as workers:
        workers.on_rest = lambda: rests.append(None)
        await until(lambda: bool(rests))
        assert workers.pids == []
        # That was no failure: the next reader gets one at once.
        assert workers.at_hand
        assert not workers.ready()
        # It is being started, which takes a while: until then nobody need look at what there is to do.
        assert not workers.at_hand
        await until(workers.ready)


@pytest.mark.parametrize("error", [FileNotFoundError, NotImplementedError])
async def test_jobs_do_not_wait_if_no_process_can_be_started(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    workers = FilterWorkers(2)
    assert not workers.ready()
    answer = workers.submit(job(store))
    assert await answer is None
    assert not workers.ready()
    await workers.aclose()
