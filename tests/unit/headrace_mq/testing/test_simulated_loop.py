"""The loop with virtual time: asyncio's promises, time that jumps, and one order per seed."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from headrace_mq.testing.processes import Process
from headrace_mq.testing.simulated_loop import (
    SimulatedLoop,
    SimulationLivelocked,
    SimulationStalled,
    elapse,
)

DAY_S = 86_400.0


def made(seed: int = 0) -> SimulatedLoop:
    return SimulatedLoop(random.Random(seed))


async def late(answer: str, seconds: float) -> str:
    await elapse(seconds)
    return answer


@pytest.fixture
def simulated() -> Iterator[SimulatedLoop]:
    loop = made()
    yield loop
    loop.close()
    assert loop.is_closed()


def test_time_jumps_to_what_is_next(simulated: SimulatedLoop) -> None:
    simulated.run_until_complete(elapse(365 * DAY_S))
    assert simulated.time() == pytest.approx(365 * DAY_S)


def test_callbacks_run_in_the_order_in_which_they_were_scheduled(simulated: SimulatedLoop) -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(50):
            simulated.call_soon(seen.append, number)
        await asyncio.sleep(0)
        return seen

    assert simulated.run_until_complete(main()) == list(range(50))


def test_timers_run_by_their_time_and_ties_by_the_seed() -> None:
    def order(seed: int) -> tuple[list[int], list[int]]:
        loop, ties, late = made(seed), list[int](), list[int]()

        async def main() -> None:
            for number in range(10):
                loop.call_at(1.0, ties.append, number)
                loop.call_at(3.0 - number / 10, late.append, number)
            await elapse(5)

        loop.run_until_complete(main())
        return ties, late

    assert order(1) == order(1)
    assert sorted(order(1)[0]) == list(range(10))
    assert len({tuple(order(seed)[0]) for seed in range(5)}) > 1
    assert order(1)[1] == list(range(9, -1, -1))


def test_a_cancelled_timer_does_not_run(simulated: SimulatedLoop) -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        simulated.call_later(1, seen.append, 1).cancel()
        simulated.call_soon(seen.append, 2).cancel()
        await elapse(2)
        return seen

    assert simulated.run_until_complete(main()) == []


def test_timeouts_tasks_and_groups_of_asyncio_work(simulated: SimulatedLoop) -> None:
    async def main() -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(late("a", 1))
            second = group.create_task(late("b", 2), name="named")
        assert second.get_name() == "named"
        return first.result() + second.result()

    assert simulated.run_until_complete(main()) == "ab"
    assert simulated.time() == pytest.approx(12)
    assert not simulated.is_running()


def test_a_loop_that_waits_for_ever_raises(simulated: SimulatedLoop) -> None:
    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()

    task = simulated.create_task(main())
    with pytest.raises(SimulationStalled):
        simulated.run_until_complete(task)
    task.cancel()
    simulated.run_out()
    assert task.done()


def test_a_loop_that_never_lets_time_pass_raises(
    simulated: SimulatedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_mq.testing.simulated_loop.STEPS_PER_INSTANT_MAX", 100)
    going = True

    def again() -> None:
        if going:
            simulated.call_soon(again)

    again()
    with pytest.raises(SimulationLivelocked):
        simulated.run_until_complete(elapse(1))
    going = False
    simulated.run_out()


def test_jobs_of_threads_run_later_in_the_order_of_their_executor(
    simulated: SimulatedLoop,
) -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        executor = object()
        jobs = [simulated.run_in_executor(executor, seen.append, n) for n in range(20)]
        assert seen == []
        await asyncio.gather(*jobs)
        assert await asyncio.to_thread(max, seen) == 19
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        return seen

    assert simulated.run_until_complete(main()) == list(range(20))
    assert simulated.time() > 0


def test_a_stopped_process_does_later_what_was_due(simulated: SimulatedLoop) -> None:
    process, other = Process("one", "a"), Process("two", "b")
    seen: list[tuple[str, int]] = []

    async def tick(name: str) -> None:
        for _ in range(3):
            await elapse(1)
            seen.append((name, int(simulated.time())))

    async def main() -> None:
        tasks = [process.spawn(tick("one")), other.spawn(tick("two"))]
        await asyncio.sleep(0)
        process.stopped = True
        await elapse(10)
        simulated.resume(process)
        await asyncio.wait(tasks)

    simulated.run_until_complete(main())
    assert [entry for entry in seen if entry[0] == "two"] == [("two", 1), ("two", 2), ("two", 3)]
    assert [entry for entry in seen if entry[0] == "one"] == [("one", 10), ("one", 11), ("one", 12)]


def test_a_failure_without_a_listener_is_kept(simulated: SimulatedLoop) -> None:
    async def main() -> None:
        simulated.call_soon(divmod, 1, 0)
        await elapse(1)

    simulated.run_until_complete(main())
    ((process, context),) = simulated.failures
    assert process is None
    assert isinstance(context["exception"], ZeroDivisionError)
    assert not simulated.get_debug()
    assert simulated.steps > 0


async def test_time_does_not_elapse_on_a_real_loop() -> None:
    with pytest.raises(RuntimeError, match="in a simulation only"):
        await elapse(1)
