"""Simulated processes: what belongs to one, and what becomes of it when it is killed."""

import asyncio
import random

from headrace_mq.testing.processes import PROCESS, TIDY_EVERY, Process
from headrace_mq.testing.simulated_loop import SimulatedLoop, elapse


def run(main: object) -> None:
    SimulatedLoop(random.Random(0)).run_until_complete(main)  # type: ignore[arg-type]  # any coroutine


def test_tasks_and_their_tasks_belong_to_the_process_that_started_them() -> None:
    process = Process("one", "a")
    seen: list[Process | None] = []

    async def child() -> None:
        seen.append(PROCESS.get())

    async def parent() -> None:
        await asyncio.create_task(child())
        asyncio.get_running_loop().call_soon(lambda: seen.append(PROCESS.get()))
        await elapse(1)

    async def main() -> None:
        await process.spawn(parent(), name="parent")
        await child()

    run(main())
    assert seen == [process, process, None]
    assert str(process) == "one"


def test_a_killed_process_ends_all_its_tasks() -> None:
    process = Process("one", "a")
    ended: list[str] = []

    async def wait(name: str, *, fails: bool) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
            if fails:
                raise RuntimeError("a ghost's last words are not heard")

    async def main() -> None:
        tasks = [process.spawn(wait("a", fails=False)), process.spawn(wait("b", fails=True))]
        await elapse(1)
        process.end()
        await asyncio.wait(tasks)

    run(main())
    assert sorted(ended) == ["a", "b"]
    assert not process.alive


def test_a_process_forgets_tasks_that_are_done() -> None:
    process = Process("one", "a")

    async def main() -> None:
        for _ in range(20 * TIDY_EVERY):
            await process.spawn(asyncio.sleep(0))

    run(main())
    assert len(process._tasks) <= 2 * TIDY_EVERY
